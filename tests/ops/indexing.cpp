// slice, split, concat, stack, flip, pad, repeat, gather, scatter_add, embedding.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "core/backend.h"
#include "core/launch.h"
#include "tests/catch.h"
#include "tests/harness.h"

namespace engine::test {
namespace {

using Index = std::vector<int64_t>;
using reference::remap;

Input any_dtype(const Shape& shape, DType dtype) {
  const Input input = uniform(shape, 1, 200).as(dtype);
  return dtype == DType::f32 ? input : input.no_grad();
}

OpCase slice(const Shape& shape, int axis, int64_t begin, int64_t end, int64_t step = 1,
             DType dtype = DType::f32) {
  const bool rows = axis == 0 && step == 1;
  const auto k = static_cast<size_t>(axis < 0 ? axis + shape.rank() : axis);
  const int64_t size = shape[axis], first = begin < 0 ? begin + size : begin,
                last = end < 0 ? end + size : end;
  const Shape result = shape.with(static_cast<int>(k), (last - first + step - 1) / step);
  return OpCase{.op = rows ? "slice_rows" : "slice",
                .name = fmt::format("slice, {}{} at axis {}, {} to {} by {}", name(dtype),
                                    to_string(shape), axis, begin, end, step),
                .inputs = {any_dtype(shape, dtype)},
                .call = [=](const Tensors& t) { return ops::slice(t[0], axis, begin, end, step); },
                .reference =
                    [=](const Arrays& in) {
                      return remap(in[0], result, [=](Index& at) {
                        at[k] = first + at[k] * step;
                        return true;
                      });
                    },
                .ulps = 0,
                .zero_gradient = true};
}

OpCase concat(const std::string& what, std::vector<Input> parts, int axis) {
  const int along = axis < 0 ? axis + parts[0].shape.rank() : axis;
  return OpCase{.op = "concat",
                .name = "concat, " + what,
                .inputs = std::move(parts),
                .call = [axis](const Tensors& t) { return ops::concat(t, axis); },
                .reference = [along](const Arrays& in) { return reference::concat(in, along); },
                .ulps = 0};
}

OpCase stack(const Shape& shape, int axis) {
  std::vector<int64_t> dims(shape.begin(), shape.end());
  dims.insert(dims.begin() + axis, 1);
  return OpCase{.op = "concat",
                .name = fmt::format("stack, {} at {}", to_string(shape), axis),
                .inputs = {uniform(shape), uniform(shape), uniform(shape)},
                .call = [axis](const Tensors& t) { return ops::stack(t, axis); },
                .reference =
                    [=](const Arrays& in) {
                      Arrays wide;
                      for (const Array& part : in)
                        wide.push_back(reference::reshape(part, Shape(dims)));
                      return reference::concat(wide, axis);
                    },
                .ulps = 0};
}

OpCase flip(const Shape& shape, const Index& axes, DType dtype = DType::f32) {
  return OpCase{
      .op = "flip",
      .name = fmt::format("flip, {}{} at {}", name(dtype), to_string(shape), fmt::join(axes, " ")),
      .inputs = {any_dtype(shape, dtype)},
      .call = [axes](const Tensors& t) { return ops::flip(t[0], axes); },
      .reference =
          [=](const Arrays& in) {
            return remap(in[0], shape, [&](Index& at) {
              for (const int64_t axis : axes) {
                auto& i = at[static_cast<size_t>(axis)];
                i = shape[static_cast<int>(axis)] - 1 - i;
              }
              return true;
            });
          },
      .ulps = 0};
}

OpCase pad(const Shape& shape, const Index& begin, const Index& end, PadMode mode, double value = 0,
           DType dtype = DType::f32) {
  Shape result = shape;
  for (int i = 0; i < shape.rank(); ++i) {
    const auto k = static_cast<size_t>(i);
    result = result.with(i, begin[k] + shape[i] + end[k]);
  }
  return OpCase{
      .op = "pad",
      .name = fmt::format("pad, {}{} by {} and {}, mode {}", name(dtype), to_string(shape),
                          fmt::join(begin, " "), fmt::join(end, " "), static_cast<int>(mode)),
      .inputs = {any_dtype(shape, dtype)},
      .call = [=](const Tensors& t) { return ops::pad(t[0], begin, end, mode, value); },
      .reference =
          [=](const Arrays& in) {
            return remap(
                in[0], result,
                [&](Index& at) {
                  for (int i = 0; i < shape.rank(); ++i) {
                    const auto k = static_cast<size_t>(i);
                    const int64_t last = shape[i] - 1;
                    int64_t& p = at[k];
                    p -= begin[k];
                    if (p >= 0 && p <= last) continue;
                    if (mode == PadMode::constant) return false;
                    if (mode == PadMode::replicate)
                      p = std::clamp<int64_t>(p, 0, last);
                    else
                      p = p < 0 ? -p : 2 * last - p;
                  }
                  return true;
                },
                value);
          },
      .ulps = 0,
      .zero_output = mode == PadMode::constant && value == 0,
      .zero_gradient = shape.numel() == 0};
}

OpCase repeat(const Shape& shape, const Index& times) {
  std::vector<int64_t> dims;
  const size_t extra = times.size() - static_cast<size_t>(shape.rank());
  for (size_t i = 0; i < times.size(); ++i)
    dims.push_back(times[i] * (i < extra ? 1 : shape[static_cast<int>(i - extra)]));
  return OpCase{.op = "broadcast_to",
                .name = fmt::format("repeat, {} by {}", to_string(shape), fmt::join(times, " ")),
                .inputs = {uniform(shape)},
                .call = [times](const Tensors& t) { return ops::repeat(t[0], times); },
                .reference =
                    [=](const Arrays& in) {
                      return remap(in[0], Shape(dims), [&](Index& at) {
                        at.erase(at.begin(), at.begin() + static_cast<std::ptrdiff_t>(extra));
                        for (size_t i = 0; i < at.size(); ++i) at[i] %= shape[static_cast<int>(i)];
                        return true;
                      });
                    },
                .ulps = 0};
}

OpCase gather(const Shape& shape, int axis, const Shape& index, DType dtype = DType::f32) {
  return OpCase{
      .op = "gather",
      .name = fmt::format("gather, {}{} at {} by {}", name(dtype), to_string(shape), axis,
                          to_string(index)),
      .inputs = {any_dtype(shape, dtype), below(index, shape[axis])},
      .call = [axis](const Tensors& t) { return ops::gather(t[0], axis, t[1]); },
      .reference = [axis](const Arrays& in) { return reference::gather(in[0], axis, in[1]); },
      .ulps = 0,
      .zero_gradient = true};
}

OpCase scatter_add(const Shape& shape, int axis, const Shape& index) {
  return OpCase{
      .op = "scatter_add",
      .name = fmt::format("scatter_add, {} at {} by {}", to_string(shape), axis, to_string(index)),
      .inputs = {uniform(shape), below(index, shape[axis]), uniform(index)},
      .call = [axis](const Tensors& t) { return ops::scatter_add(t[0], axis, t[1], t[2]); },
      .reference =
          [axis](const Arrays& in) { return reference::scatter_add(in[0], axis, in[1], in[2]); },
      .terms = 3};
}

OpCase embedding(const std::string& what, int64_t rows, int64_t width, Input ids) {
  return OpCase{.op = "embedding",
                .name = "embedding, " + what,
                .inputs = {uniform({rows, width}), std::move(ids)},
                .call = [](const Tensors& t) { return ops::embedding(t[0], t[1]); },
                .reference =
                    [width](const Arrays& in) {
                      std::vector<int64_t> dims(in[1].shape.begin(), in[1].shape.end());
                      dims.push_back(width);
                      Array y{Shape(dims)};
                      for (int64_t i = 0; i < y.shape.numel(); ++i) {
                        const auto id = static_cast<int64_t>(in[1][i / width]);
                        y[i] = in[0][id * width + i % width];
                      }
                      return y;
                    },
                .ulps = 0,
                .zero_gradient = true};
}

std::vector<OpCase> cases() {
  std::vector<OpCase> all{
      slice({7, 5}, 0, 2, 5),
      slice({7, 5}, 0, 1, 7, 2),
      slice({7, 5}, 1, 1, 4),
      slice({7, 5}, -1, 0, 5, 3),
      slice({3, 4, 5, 2}, 2, 1, 3),
      slice({3, 4, 5}, 1, -3, -1),
      slice({4, 3}, 0, 2, 2),
      slice({4, 3}, 1, 3, 3),
      slice({6}, 0, 1, 6, 5),
      slice({0, 3}, 1, 0, 2),
      slice({301, 173}, 1, 3, 170),
      slice({301, 173}, 1, 3, 170, 2),
      slice({5, 3}, 0, 1, 4, 1, DType::i64),
      slice({5, 3}, 1, 1, 3, 1, DType::u8),
      flip({5}, {0}),
      flip({3, 4, 5}, {1}),
      flip({3, 4, 5}, {0, 2}),
      flip({2, 3}, {}),
      flip({0, 3}, {1}),
      flip({211, 307}, {0, 1}),
      flip({4, 3}, {1}, DType::u8),
      stack({3, 4}, 0),
      stack({3, 4}, 2),
      stack({}, 0),
      repeat({3}, {4}),
      repeat({2, 3}, {2, 1, 3}),
      repeat({2, 1, 3}, {1, 5, 2}),
      gather({5, 4}, 0, {3, 4}),
      gather({5, 4}, 1, {5, 7}),
      gather({5, 4}, 1, {2, 2}),
      gather({3, 4, 5}, 1, {3, 6, 5}),
      gather({4}, 0, {9}),
      gather({3, 4}, 0, {0, 4}),
      gather({97, 101}, 1, {97, 211}),
      gather({5, 4}, 0, {3, 4}, DType::i64),
      scatter_add({5, 4}, 0, {3, 4}),
      scatter_add({5, 4}, 1, {5, 9}),
      scatter_add({3, 4, 5}, 1, {3, 6, 5}),
      scatter_add({4}, 0, {12}),
      scatter_add({4, 3}, 0, {0, 3}),
      scatter_add({97, 101}, 1, {97, 211}),
      embedding("some ids", 7, 5, labels({3, 0, 6, 3})),
      embedding("all ids 0", 3, 4, labels({0, 0, 0, 0, 0})),
      embedding("ids of rank 2", 11, 6, below({3, 5}, 11)),
      embedding("no ids", 4, 3, below({0}, 4)),
      embedding("many threads", 50, 130, below({7, 97}, 50)),
  };
  all.push_back(concat("rows", {uniform({2, 3}), uniform({1, 3}), uniform({4, 3})}, 0));
  all.push_back(concat("columns", {uniform({3, 2}), uniform({3, 5})}, -1));
  all.push_back(concat("middle, an empty part",
                       {uniform({2, 3, 2}), uniform({2, 0, 2}), uniform({2, 1, 2})}, 1));
  all.push_back(concat("one", {uniform({2, 3})}, 1));
  all.push_back(concat("without a gradient between",
                       {uniform({2, 3}), uniform({2, 2}).no_grad(), uniform({2, 1})}, 1));
  all.push_back(concat("many threads", {uniform({61, 301, 2}), uniform({61, 103, 2})}, 1));
  all.push_back(
      concat("i32", {below({2, 3}, 9).as(DType::i32), below({4, 3}, 9).as(DType::i32)}, 0));
  for (const PadMode mode : {PadMode::constant, PadMode::reflect, PadMode::replicate}) {
    all.push_back(pad({4}, {2}, {3}, mode, 0.5));
    all.push_back(pad({2, 3, 4, 2}, {0, 1, 2, 0}, {0, 2, 1, 0}, mode));
    all.push_back(pad({3, 5}, {2, 0}, {0, 4}, mode, -1));
    all.push_back(pad({3, 2}, {0, 0}, {0, 0}, mode));
    all.push_back(pad({4, 61, 67, 3}, {0, 3, 3, 0}, {0, 3, 3, 0}, mode));
    all.push_back(pad({3, 4}, {1, 1}, {1, 1}, mode, 7, DType::i32));
  }
  all.push_back(pad({1, 2}, {2, 0}, {0, 3}, PadMode::replicate));
  all.push_back(pad({0, 2}, {1, 0}, {1, 0}, PadMode::constant, 2));
  all.push_back(pad({}, {}, {}, PadMode::constant, 2));
  for (OpCase& c : all) {
    if (c.op == "pad" && c.ulps == 0) c.terms = 0;
  }
  return all;
}

const CaseFile kFile(cases);

}  // namespace

TEST_CASE("op indexing") { run_cases(cases()); }

TEST_CASE("op indexing: slices along the first axis share memory, others are copies") {
  const Tensor x = tensor({4, 3}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  const Tensor rows = ops::slice(x, 0, 1, 3), columns = ops::slice(x, 1, 1, 3);
  ops::fill_(x, -1);
  CHECK(to_array(rows).values == std::vector<double>(6, -1));
  CHECK(to_array(columns).values == std::vector<double>{1, 2, 4, 5, 7, 8, 10, 11});
  // Every other element of two axes is what a copy of them is.
  const Tensor weight = tensor({2, 4, 4}, [] {
    std::vector<double> list;
    for (int i = 0; i < 32; ++i) list.push_back(i);
    return list;
  }());
  const Tensor thin = ops::slice(ops::slice(weight, 1, 0, 4, 2), 2, 0, 4, 2);
  CHECK(to_array(thin).values == std::vector<double>{0, 2, 8, 10, 16, 18, 24, 26});
  CHECK(to_array(ops::scale(ops::slice(thin, 0, 1, 2), 2)).values ==
        std::vector<double>{32, 36, 48, 52});
}

TEST_CASE("op indexing: split gives the parts back") {
  const Tensor x = tensor({2, 5}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  const std::vector<Tensor> parts = ops::split(x, std::vector<int64_t>{1, 0, 4}, 1);
  REQUIRE(parts.size() == 3);
  CHECK(parts[1].shape() == Shape{2, 0});
  CHECK(to_array(parts[2]).values == std::vector<double>{1, 2, 3, 4, 6, 7, 8, 9});
  CHECK(to_array(ops::concat(parts, 1)).values == to_array(x).values);
}

TEST_CASE("op indexing errors") {
  const Tensor x = full({2, 2, 3}, 1);
  const auto ids = [](std::vector<double> list) {
    const Shape shape{static_cast<int64_t>(list.size())};
    return tensor(shape, list, DType::i64);
  };
  check_error([&] { ops::slice(x, 2, 1, 4); }, {"[slice]", "end <= 3", "f32[2, 2, 3]", "4"});
  check_error([&] { ops::slice(x, 2, 2, 1); }, {"[slice]", "2", "1"});
  check_error([&] { ops::slice(x, 0, 0, 1, 0); }, {"[slice]", "step"});
  check_error([&] { ops::slice(x, 3, 0, 1); }, {"[slice]", "axis"});
  check_error([&] { ops::concat({}, 0); }, {"[concat]", "none"});
  check_error(
      [&] {
        ops::concat(std::vector<Tensor>{x, full({2, 3, 3}, 1)}, 0);
      },
      {"[concat]", "[2, 2, 3]", "[2, 3, 3]"});
  check_error(
      [&] {
        ops::concat(std::vector<Tensor>{x, full({2, 2, 3}, 1, DType::i32)}, 0);
      },
      {"[concat]", "f32[2, 2, 3]", "i32[2, 2, 3]"});
  check_error(
      [&] {
        ops::stack(std::vector<Tensor>{x, full({2}, 1)}, 0);
      },
      {"[stack]", "[2, 2, 3]", "[2]"});
  check_error([&] { ops::split(x, std::vector<int64_t>{1, 3}, 1); }, {"[split]", "2", "[1, 3]"});
  check_error([&] { ops::split(x, std::vector<int64_t>{-1, 3}, 1); }, {"[split]", "[-1, 3]"});
  const int64_t most = std::numeric_limits<int64_t>::max();
  check_error([&] { ops::split(x, std::vector<int64_t>{most, most, 4}, 1); }, {"[split]", "2"});
  check_error([&] { ops::flip(x, std::vector<int64_t>{1, 1}); }, {"[flip]", "twice"});
  const std::vector<int64_t> none{0, 0, 0}, five{5, 5, 0};
  check_error([&] { ops::pad(x, five, none, PadMode::reflect); },
              {"[pad]", "reflected", "5", "f32[2, 2, 3]"});
  check_error([&] { ops::pad(x, std::vector<int64_t>{1}, none); }, {"[pad]", "each axis"});
  check_error([&] { ops::pad(x, std::vector<int64_t>{0, -1, 0}, none); }, {"[pad]", "at least 0"});
  check_error(
      [&] {
        ops::pad(full({0, 2}, 1), std::vector<int64_t>{1, 0}, std::vector<int64_t>{0, 0},
                 PadMode::replicate);
      },
      {"[pad]", "not empty"});
  check_error([&] { ops::repeat(x, std::vector<int64_t>{2}); }, {"[repeat]", "f32[2, 2, 3]"});
  const Tensor weight = full({3, 4}, 1);
  check_error([&] { ops::embedding(weight, ids({0, -1})); }, {"[embedding]", "-1", "position 1"});
  check_error([&] { ops::embedding(weight, ids({3})); }, {"[embedding]", "[0, 3)", "3"});
  check_error([&] { ops::embedding(weight, x); }, {"[embedding]", "i64", "f32[2, 2, 3]"});
  check_error([&] { ops::gather(weight, 0, ids({0})); }, {"[gather]", "f32[3, 4]", "i64[1]"});
  const Tensor outside = tensor({1, 4}, {0, 1, 2, 5}, DType::i64);
  check_error([&] { ops::gather(weight, 0, outside); }, {"[gather]", "[0, 3)", "5"});
  check_error(
      [&] {
        ops::scatter_add(weight, 0, outside, full({1, 4}, 1));
      },
      {"[scatter_add]", "[0, 3)", "5"});
  check_error(
      [&] {
        ops::scatter_add(weight, 0, outside, full({1, 3}, 1));
      },
      {"[scatter_add]", "f32[1, 4]", "f32[1, 3]"});
  for (const Device device : test_devices()) {
    check_error(
        [&] {
          ops::scatter_add(full({0, 4}, 1, DType::f32, device), 0,
                           tensor({1, 4}, {0, 1, 2, 5}, DType::i64, device),
                           full({1, 4}, 1, DType::f32, device));
          backend(device).synchronize();
        },
        {"[scatter_add]", "[0, 0)", "position 0"});
  }
  // The engine stays usable.
  CHECK(ops::embedding(weight, ids({2})).numel() == 4);
}

}  // namespace engine::test
