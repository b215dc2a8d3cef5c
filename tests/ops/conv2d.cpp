// conv2d and conv2d_relu. Their gradients are the cases of conv2d_backward_data and
// conv2d_backward_weight.
#include <fmt/format.h>

#include <cmath>

#include "tests/catch.h"
#include "tests/harness.h"

namespace engine::test {
namespace {

struct Form {
  std::string name;
  Shape x, weight;
  Conv2dAttrs attrs;
};

OpCase make(const char* op, const Form& form, bool bias) {
  const bool relu = std::string(op) == "conv2d_relu";
  const Conv2dAttrs attrs = form.attrs;
  // With relu mostly positive results, so that most of them pass.
  const double low = !relu ? -1 : (form.weight.numel() == 1 ? 0.1 : -0.4);
  OpCase c{
      .op = op,
      .name = fmt::format("{}{}, {}", relu ? "relu, " : "", bias ? "bias" : "no bias", form.name),
      .inputs = {uniform(form.x, relu ? 0 : -1, 1), uniform(form.weight, low, 1)},
      .call =
          [=](const Tensors& t) {
            const Tensor b = t.size() > 2 ? t[2] : Tensor();
            return (relu ? ops::conv2d_relu : ops::conv2d)(t[0], t[1], b, attrs);
          },
      .reference =
          [=](const Arrays& in) {
            const Array y = reference::conv2d(in, attrs);
            return relu ? reference::map(y, reference::relu) : y;
          },
      .terms = static_cast<double>(form.weight.product(1, 4) + 1),
      // Strides beyond the kernel leave pixels that nothing reads.
      .zero_gradient = attrs.stride[0] > form.weight[1] || attrs.stride[1] > form.weight[2]};
  if (bias) c.inputs.push_back(uniform({form.weight[0]}, 0.1, 0.5));
  return c;
}

std::string pair(const std::array<int32_t, 2>& p) { return fmt::format("{}x{}", p[0], p[1]); }

// stride x dilation x groups x padding, both axes different wherever they can be.
std::vector<Form> grid() {
  struct Padding {
    std::array<int32_t, 2> begin, end;
  };
  const Padding paddings[] = {{{0, 0}, {0, 0}}, {{1, 2}, {1, 2}}, {{1, 0}, {0, 2}}};
  std::vector<Form> forms;
  for (const std::array<int32_t, 2> stride :
       {std::array{1, 1}, std::array{2, 1}, std::array{1, 3}}) {
    for (const std::array<int32_t, 2> dilation :
         {std::array{1, 1}, std::array{2, 1}, std::array{1, 2}}) {
      for (const int groups : {1, 2, 4}) {
        for (const Padding& p : paddings) {
          const Conv2dAttrs attrs{stride, p.begin, p.end, dilation, groups};
          forms.push_back(
              {fmt::format("stride {}, dilation {}, groups {}, padding {} {}", pair(stride),
                           pair(dilation), groups, pair(p.begin), pair(p.end)),
               Shape{1, 6, 7, 4}, Shape{4, 3, 2, 4 / groups}, attrs});
        }
      }
    }
  }
  return forms;
}

std::vector<Form> forms() {
  const std::array<int32_t, 2> one{1, 1}, none{0, 0};
  return {
      {"1x1", {2, 5, 3, 7}, {3, 1, 1, 7}, {}},
      {"1x1, stride 2", {2, 5, 4, 7}, {3, 1, 1, 7}, {{2, 2}, none, none, one, 1}},
      {"all sizes 1", {1, 1, 1, 1}, {1, 1, 1, 1}, {}},
      {"one output pixel", {3, 3, 5, 2}, {4, 3, 5, 2}, {}},
      {"kernel wider than the image", {2, 2, 3, 3}, {2, 3, 5, 3}, {one, {1, 1}, {1, 1}, one, 1}},
      {"5x5 few channels", {2, 9, 8, 1}, {6, 5, 5, 1}, {}},
      {"5x5 six channels", {2, 7, 7, 6}, {16, 5, 5, 6}, {}},
      {"3 channels, padding 2", {2, 8, 7, 3}, {6, 5, 5, 3}, {one, {2, 2}, {2, 2}, one, 1}},
      {"7x7, stride 2, padding 3", {1, 11, 12, 3}, {8, 7, 7, 3}, {{2, 2}, {3, 3}, {3, 3}, one, 1}},
      {"channels of full vectors", {2, 6, 5, 16}, {32, 3, 3, 16}, {one, one, one, one, 1}},
      {"odd channels", {2, 6, 5, 17}, {19, 3, 3, 17}, {one, one, one, one, 1}},
      {"depthwise", {2, 6, 5, 8}, {8, 3, 3, 1}, {one, one, one, one, 8}},
      {"depthwise, stride 2", {2, 7, 8, 6}, {6, 3, 3, 1}, {{2, 2}, one, one, one, 6}},
      {"depthwise, two filters each", {2, 6, 5, 4}, {8, 3, 3, 1}, {one, one, one, one, 4}},
      {"groups 3, stride 4x1", {2, 9, 6, 6}, {9, 3, 3, 2}, {{4, 1}, one, one, one, 3}},
      {"groups 2 of 8 channels", {2, 5, 5, 16}, {16, 3, 3, 8}, {one, one, one, one, 2}},
      {"padding top 1 and bottom 1 of 7x5",
       {1, 7, 5, 1},
       {1, 3, 3, 1},
       {{2, 2}, {1, 0}, {1, 0}, one, 1}},
      {"padding left only", {1, 5, 6, 2}, {3, 3, 3, 2}, {one, {0, 2}, {0, 0}, one, 1}},
      {"padding wider than the kernel", {1, 5, 5, 2}, {3, 2, 2, 2}, {one, {3, 1}, {0, 3}, one, 1}},
      {"stride beyond the kernel", {2, 9, 10, 2}, {3, 2, 1, 2}, {{4, 3}, none, none, one, 1}},
      {"dilation 3x2", {1, 9, 8, 3}, {4, 3, 3, 3}, {one, {2, 1}, {2, 1}, {3, 2}, 1}},
      {"many threads", {4, 20, 20, 8}, {16, 3, 3, 8}, {one, one, one, one, 1}},
      {"many threads, one channel", {8, 28, 28, 1}, {6, 5, 5, 1}, {one, {2, 2}, {2, 2}, one, 1}},
      {"many threads, depthwise", {2, 33, 31, 16}, {16, 3, 3, 1}, {{2, 1}, one, one, one, 16}},
  };
}

// A group's filters see their own channels only: of 4 channels the last is 1, in group 2 of 2.
OpCase second_group() {
  OpCase c = make(
      "conv2d", {"only the second group sees", {1, 1, 1, 4}, {16, 1, 1, 2}, {.groups = 2}}, false);
  c.inputs = {values({1, 1, 1, 4}, {0, 0, 0, 1}).no_grad(), constant({16, 1, 1, 2}, 1).no_grad()};
  c.reference = [](const Arrays&) {
    Array y(Shape{1, 1, 1, 16});
    for (int64_t o = 8; o < 16; ++o) y[o] = 1;
    return y;
  };
  c.ulps = 0;
  return c;
}

std::vector<OpCase> cases() {
  std::vector<OpCase> all;
  for (const Form& form : grid()) all.push_back(make("conv2d", form, true));
  for (const Form& form : forms()) {
    all.push_back(make("conv2d", form, true));
    all.push_back(make("conv2d", form, false));
    all.push_back(make("conv2d_relu", form, true));
    all.push_back(make("conv2d_relu", form, false));
  }
  for (const char* op : {"conv2d", "conv2d_relu"}) {
    for (const int groups : {1, 2}) {
      // No images: the weights' gradients are exactly 0.
      const Form no_images{fmt::format("no images, groups {}", groups),
                           {0, 5, 6, 4},
                           {6, 3, 3, 4 / groups},
                           {.groups = groups}};
      all.push_back(make(op, no_images, true).with_zero_gradient());
      all.push_back(make(op, no_images, false).with_zero_gradient());
    }
  }
  OpCase nan =
      make("conv2d", {"a NaN reaches its windows only", {1, 5, 5, 1}, {2, 3, 3, 1}, {}}, true);
  nan.inputs[0] = values(
      {1, 5, 5, 1}, {NAN, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6});
  nan.inputs[1] = uniform({2, 3, 3, 1}, 0.1, 1);
  nan.term = 9;
  all.push_back(without_gradient(nan));
  nan.name = "relu, a NaN reaches its windows only";
  nan.op = "conv2d_relu";
  nan.call = [](const Tensors& t) { return ops::conv2d_relu(t[0], t[1], t[2]); };
  nan.reference = [](const Arrays& in) {
    return reference::map(reference::conv2d(in, {}), reference::relu);
  };
  all.push_back(without_gradient(nan));
  all.push_back(second_group());
  return all;
}

const CaseFile kFile(cases);

}  // namespace

TEST_CASE("op conv2d") { run_cases(cases()); }

TEST_CASE("op conv2d with some gradients only") {
  // Each subset of (x, weight, bias) alone gives the same gradients as all together.
  const std::vector<Shape> shapes{{2, 5, 4, 3}, {4, 3, 3, 3}, {4}};
  const auto gradients = [&](int wanted) {
    Tensors t;
    for (size_t i = 0; i < 3; ++i) {
      Generator g(i + 1);
      t.push_back(empty(shapes[i]));
      ops::uniform_(t[i], -1, 1, g);
      if ((wanted >> i & 1) != 0) t[i].set_requires_grad(true);
    }
    ops::sum(ops::mul(ops::conv2d(t[0], t[1], t[2]), full({2, 3, 2, 4}, 0.5))).backward();
    return t;
  };
  const Tensors all = gradients(7);
  for (int wanted = 1; wanted < 7; ++wanted) {
    const Tensors some = gradients(wanted);
    for (size_t i = 0; i < 3; ++i) {
      CAPTURE(wanted, i);
      const bool is_wanted = (wanted >> i & 1) != 0;
      REQUIRE(some[i].grad().defined() == is_wanted);
      if (!is_wanted) continue;
      const auto got = to_array(some[i].grad()).values, expected = to_array(all[i].grad()).values;
      for (size_t k = 0; k < got.size(); ++k) CHECK(got[k] == Approx(expected[k]).margin(1e-5));
    }
  }
}

TEST_CASE("op conv2d sees weights that changed in place") {
  // Reordered weights may be kept while they are unchanged, and no longer.
  const Tensor x = full({1, 4, 4, 16}, 1), weight = full({16, 3, 3, 16}, 1);
  CHECK(ops::conv2d(x, weight).to_vector<float>()[0] == 144);
  ops::fill_(weight, 2);
  CHECK(ops::conv2d(x, weight).to_vector<float>()[0] == 288);
  const Tensor other = full({16, 3, 3, 16}, 3);
  CHECK(ops::conv2d(x, other).to_vector<float>()[0] == 432);
  // New weights where old ones have been.
  for (const double value : {4.0, 5.0}) {
    const Tensor brief = full({16, 3, 3, 16}, value);
    CHECK(ops::conv2d(x, brief).to_vector<float>()[0] == static_cast<float>(144 * value));
  }
}

TEST_CASE("op conv2d errors") {
  const Tensor x = full({2, 6, 5, 4}, 1), weight = full({8, 3, 3, 4}, 1);
  for (const auto conv : {ops::conv2d, ops::conv2d_relu}) {
    const std::string op = conv == ops::conv2d ? "[conv2d]" : "[conv2d_relu]";
    const auto fails = [&](const Tensor& in, const Tensor& filter, const Tensor& bias,
                           const Conv2dAttrs& attrs, std::vector<std::string> parts) {
      parts.insert(parts.begin(), op);
      check_error([&] { conv(in, filter, bias, attrs); }, parts);
    };
    fails(full({2, 6, 5}, 1), weight, {}, {}, {"[2, 6, 5]", "[8, 3, 3, 4]"});
    fails(x, full({8, 3, 3}, 1), {}, {}, {"[2, 6, 5, 4]", "[8, 3, 3]"});
    fails(x, full({8, 3, 3, 3}, 1), {}, {}, {"[2, 6, 5, 4]", "[8, 3, 3, 3]"});
    fails(x, full({8, 3, 3, 2}, 1), {}, {.groups = 3}, {"[2, 6, 5, 4]", "[8, 3, 3, 2]", "3"});
    fails(x, full({7, 3, 3, 2}, 1), {}, {.groups = 2}, {"[7, 3, 3, 2]", "2"});
    fails(x, weight, full({7}, 1), {}, {"f32[7]", "f32[8]"});
    fails(x, weight, full({8, 1}, 1), {}, {"f32[8, 1]"});
    fails(x, full({8, 7, 3, 4}, 1), {}, {}, {"height", "7", "6"});
    fails(x, full({8, 3, 7, 4}, 1), {}, {}, {"width", "7", "5"});
    fails(x, weight, {}, {.dilation = {1, 3}}, {"width", "7", "5"});
    fails(x, weight, {}, {.stride = {0, 1}}, {"stride"});
    fails(x, weight, {}, {.dilation = {1, 0}}, {"dilation"});
    fails(x, weight, {}, {.padding_end = {0, -1}}, {"padding"});
    fails(x, weight, {}, {.groups = 0}, {"groups"});
    // Images without pixels or channels: only their number may be 0.
    fails(full({2, 0, 5, 4}, 1), weight, {}, {.padding_begin = {2, 0}, .padding_end = {1, 0}},
          {"[2, 0, 5, 4]"});
    fails(full({2, 6, 5, 0}, 1), full({8, 3, 3, 0}, 1), {}, {}, {"[2, 6, 5, 0]"});
    fails(full({2, 6, 5, 4}, 1, DType::u8), weight, {}, {}, {"u8[2, 6, 5, 4]"});
  }
}

}  // namespace engine::test
