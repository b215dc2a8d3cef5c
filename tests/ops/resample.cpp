// conv_transpose2d, adaptive_avg_pool2d, interpolate.
#include <fmt/format.h>

#include "tests/catch.h"
#include "tests/harness.h"

namespace engine::test {
namespace {

using Pair = std::array<int32_t, 2>;

OpCase transposed(const std::string& what, const Shape& x, const Shape& weight,
                  const Conv2dAttrs& attrs, Pair output_padding, bool bias = true) {
  OpCase c{
      .op = "conv_transpose2d",
      .name = fmt::format("transposed, {}{}", what, bias ? "" : ", no bias"),
      .inputs = {uniform(x), uniform(weight)},
      .call =
          [=](const Tensors& t) {
            return ops::conv_transpose2d(t[0], t[1], t.size() > 2 ? t[2] : Tensor(), attrs,
                                         output_padding);
          },
      .reference =
          [=](const Arrays& in) { return reference::conv_transpose2d(in, attrs, output_padding); },
      .terms = static_cast<double>(weight[0] * weight[1] * weight[2]),
      .zero_output = x[0] == 0 || !bias,
      .zero_gradient = x[0] == 0};
  if (bias) c.inputs.push_back(uniform({weight[3] * attrs.groups}));
  return c;
}

OpCase adaptive(const Shape& x, int64_t height, int64_t width) {
  return OpCase{
      .op = "adaptive_avg_pool2d",
      .name = fmt::format("adaptive, {} to {}x{}", to_string(x), height, width),
      .inputs = {uniform(x)},
      .call = [=](const Tensors& t) { return ops::adaptive_avg_pool2d(t[0], height, width); },
      .reference =
          [=](const Arrays& in) { return reference::adaptive_avg_pool2d(in[0], height, width); },
      .ulps = 4,
      .terms = 1,
      .zero_output = x[0] == 0};
}

OpCase resized(const Shape& x, int64_t height, int64_t width, ResampleMode mode, bool corners) {
  return OpCase{
      .op = "interpolate",
      .name =
          fmt::format("{}, {} to {}x{}{}", mode == ResampleMode::nearest ? "nearest" : "bilinear",
                      to_string(x), height, width, corners ? ", corners" : ""),
      .inputs = {uniform(x)},
      .call =
          [=](const Tensors& t) { return ops::interpolate(t[0], height, width, mode, corners); },
      .reference =
          [=](const Arrays& in) {
            return reference::interpolate(in[0], height, width, mode, corners);
          },
      .ulps = mode == ResampleMode::nearest ? 0.0 : 4.0,
      .terms = mode == ResampleMode::nearest ? 0.0 : 4.0,
      .zero_output = x[0] == 0,
      .zero_gradient = height < x[1] || width < x[2]};  // pixels that nothing takes
}

std::vector<OpCase> cases() {
  std::vector<OpCase> all;
  for (const Pair stride : {Pair{1, 1}, Pair{2, 1}, Pair{3, 2}}) {
    for (const Pair dilation : {Pair{1, 1}, Pair{2, 1}}) {
      for (const int groups : {1, 2}) {
        const Pair extra{stride[0] - 1, std::max(stride[1], dilation[1]) - 1};
        const Conv2dAttrs attrs{stride, {1, 0}, {0, 1}, dilation, groups};
        all.push_back(transposed(fmt::format("stride {}x{}, dilation {}x{}, groups {}", stride[0],
                                             stride[1], dilation[0], dilation[1], groups),
                                 {2, 4, 5, 4}, {4, 3, 2, 3}, attrs, extra));
      }
    }
  }
  all.push_back(transposed("1x1", {2, 3, 3, 5}, {5, 1, 1, 4}, {}, {0, 0}));
  all.push_back(transposed("a kernel below the stride", {1, 3, 4, 2}, {2, 1, 2, 3},
                           {.stride = {2, 3}}, {1, 2}));
  all.push_back(transposed("a kernel below the stride", {1, 3, 4, 2}, {2, 1, 2, 3},
                           {.stride = {2, 3}}, {1, 2}, false));
  all.push_back(
      transposed("depthwise", {2, 4, 4, 6}, {6, 3, 3, 1}, {.stride = {2, 2}, .groups = 6}, {1, 1}));
  all.push_back(transposed("one pixel", {1, 1, 1, 1}, {1, 3, 3, 1}, {}, {0, 0}));
  all.push_back(transposed("no images", {0, 3, 3, 2}, {2, 2, 2, 3}, {}, {0, 0}));
  all.push_back(
      transposed("full vectors", {2, 6, 6, 32}, {32, 3, 3, 16}, {{2, 2}, {1, 1}, {1, 1}}, {1, 1}));

  for (const Shape& x : {Shape{2, 5, 7, 3}, Shape{1, 4, 6, 1}, Shape{2, 3, 2, 17}}) {
    for (const std::array<int64_t, 2> size :
         {std::array<int64_t, 2>{1, 1}, {2, 3}, {3, 2}, {4, 6}, {7, 9}, {12, 5}}) {
      all.push_back(adaptive(x, size[0], size[1]));
      all.push_back(resized(x, size[0], size[1], ResampleMode::nearest, false));
      for (const bool corners : {false, true})
        all.push_back(resized(x, size[0], size[1], ResampleMode::bilinear, corners));
    }
  }
  all.push_back(adaptive({3, 17, 19, 300}, 6, 5));
  all.push_back(adaptive({0, 3, 3, 2}, 2, 2));
  all.push_back(resized({3, 9, 7, 70}, 20, 31, ResampleMode::bilinear, false));
  all.push_back(resized({3, 9, 7, 70}, 20, 31, ResampleMode::nearest, false));
  all.push_back(resized({0, 3, 3, 2}, 6, 6, ResampleMode::bilinear, false));
  all.push_back(resized({1, 1, 1, 3}, 4, 5, ResampleMode::bilinear, true));
  return all;
}

const CaseFile kFile(cases);

}  // namespace

TEST_CASE("op resample") { run_cases(cases()); }

TEST_CASE("op resample errors") {
  const Tensor x = full({2, 4, 5, 6}, 1), weight = full({6, 3, 3, 2}, 1);
  const auto fails = [&](const Tensor& in, const Tensor& w, const Conv2dAttrs& attrs, Pair padding,
                         std::vector<std::string> parts) {
    parts.insert(parts.begin(), "[conv_transpose2d]");
    check_error([&] { ops::conv_transpose2d(in, w, {}, attrs, padding); }, parts);
  };
  fails(full({4, 5, 6}, 1), weight, {}, {0, 0}, {"[4, 5, 6]"});
  fails(x, full({5, 3, 3, 2}, 1), {}, {0, 0}, {"[2, 4, 5, 6]", "[5, 3, 3, 2]"});
  fails(x, weight, {}, {1, 0}, {"output padding", "1"});
  fails(x, weight, {.stride = {2, 2}}, {0, 2}, {"output padding", "2"});
  fails(x, weight, {}, {-1, 0}, {"output padding", "-1"});
  fails(x, weight, {.stride = {0, 1}}, {0, 0}, {"stride"});
  fails(x, weight, {.padding_begin = {3, 0}, .padding_end = {3, 0}}, {0, 0},
        {"[2, 4, 5, 6]", "0x7"});
  fails(x, weight, {.groups = 4}, {0, 0}, {"groups", "4"});
  fails(x, ops::cast(weight, DType::bf16), {}, {0, 0}, {"bf16"});
  fails(full({2, 0, 5, 6}, 1), weight, {}, {0, 0}, {"[2, 0, 5, 6]"});
  check_error([&] { ops::conv_transpose2d(x, weight, full({6}, 1)); },
              {"[conv_transpose2d]", "f32[2]", "f32[6]"});
  check_error([&] { ops::adaptive_avg_pool2d(x, 0, 2); }, {"[adaptive_avg_pool2d]", "0x2"});
  check_error(
      [&] {
        ops::adaptive_avg_pool2d(full({4, 5}, 1), 1, 1);
      },
      {"[adaptive_avg_pool2d]", "[4, 5]"});
  check_error(
      [&] {
        ops::adaptive_avg_pool2d(full({1, 0, 3, 2}, 1), 1, 1);
      },
      {"[adaptive_avg_pool2d]", "[1, 0, 3, 2]"});
  // Of no image at all any size is made at once.
  const int64_t huge = int64_t{1} << 40;
  CHECK(ops::interpolate(full({0, 2, 2, 3}, 1), huge, 1).shape() == Shape{0, huge, 1, 3});
  CHECK(ops::adaptive_avg_pool2d(full({0, 2, 2, 3}, 1), 1, huge).shape() == Shape{0, 1, huge, 3});
  check_error(
      [&] {
        ops::interpolate(full({1, 2, 2, 3}, 1), huge, huge);
      },
      {"[interpolate]", "2^63"});
  check_error([&] { ops::interpolate(x, 3, -1); }, {"[interpolate]", "3x-1"});
  check_error([&] { ops::interpolate(x, 3, 3, ResampleMode::nearest, true); },
              {"[interpolate]", "bilinear"});
  check_error([&] { ops::interpolate(x, 3, 3, ResampleMode::average); },
              {"[interpolate]", "adaptive_avg_pool2d"});
  check_error(
      [&] {
        ops::interpolate(full({1, 2, 2, 1}, 1, DType::u8), 3, 3);
      },
      {"[interpolate]", "u8"});
}

}  // namespace engine::test
