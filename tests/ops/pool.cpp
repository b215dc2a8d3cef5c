// max_pool2d and avg_pool2d.
#include <fmt/format.h>

#include <cmath>

#include "tests/catch.h"
#include "tests/harness.h"

namespace engine::test {
namespace {

constexpr double kInf = INFINITY;

OpCase pool(bool max, const std::string& what, Input x, const Pool2dAttrs& attrs) {
  return OpCase{
      .op = max ? "max_pool2d" : "avg_pool2d",
      .name = fmt::format("{}, {}", max ? "max" : "avg", what),
      .inputs = {std::move(x)},
      .call =
          [=](const Tensors& t) { return (max ? ops::max_pool2d : ops::avg_pool2d)(t[0], attrs); },
      .reference =
          [=](const Arrays& a) {
            return (max ? reference::max_pool2d : reference::avg_pool2d)(a[0], attrs);
          },
      .ulps = max ? 0.0 : 2.0,
      .terms = max ? 0.0 : 1.0,
      .zero_gradient = true};  // strides beyond the kernel, and all but the maximum
}

// One 1x1-channel image, and the element of each window that gets its gradient.
OpCase picks(const std::string& what, const Shape& shape, std::vector<double> x,
             const Pool2dAttrs& attrs, std::vector<int64_t> chosen) {
  return pool(true, what, values(shape, std::move(x)), attrs)
      .with_gradient([chosen](const Arrays& in, const Array& upstream) {
        Array dx(in[0].shape);
        for (size_t i = 0; i < chosen.size(); ++i) dx[chosen[i]] += upstream.values[i];
        return Arrays{dx};
      });
}

std::vector<OpCase> cases() {
  struct Form {
    std::string name;
    Shape x;
    Pool2dAttrs attrs;
  };
  std::vector<Form> forms{
      {"2x2", {2, 6, 4, 3}, {{2, 2}, {2, 2}}},
      {"2x2 leaving a row and a column", {2, 7, 5, 3}, {{2, 2}, {2, 2}}},
      {"3x3, stride 2, padding 1", {2, 7, 8, 5}, {{3, 3}, {2, 2}, {1, 1}}},
      {"3x2, stride 1x2, padding 1x0", {1, 5, 6, 2}, {{3, 2}, {1, 2}, {1, 0}}},
      {"2x3, stride 2x1, padding 0x1", {1, 5, 6, 2}, {{2, 3}, {2, 1}, {0, 1}}},
      {"whole image", {3, 4, 5, 7}, {{4, 5}, {1, 1}}},
      {"all sizes 1", {1, 1, 1, 1}, {{1, 1}, {1, 1}}},
      {"stride beyond the kernel", {2, 8, 9, 2}, {{2, 1}, {3, 4}}},
      {"17x17, positions beyond a byte", {1, 18, 19, 2}, {{17, 17}, {1, 1}}},
      {"no images", {0, 4, 4, 3}, {{2, 2}, {2, 2}}},
      {"full vectors of channels", {2, 6, 6, 16}, {{2, 2}, {2, 2}}},
      {"many threads", {4, 31, 33, 24}, {{3, 3}, {2, 2}, {1, 1}}},
  };
  for (const bool ceil_mode : {false, true}) {
    for (const Shape& x : {Shape{1, 6, 7, 2}, Shape{1, 8, 9, 2}, Shape{1, 10, 5, 1}}) {
      forms.push_back({fmt::format("3x3, stride 3x2, padding 1 of {}{}", to_string(x),
                                   ceil_mode ? ", ceil" : ""),
                       x,
                       {{3, 3}, {3, 2}, {1, 1}, ceil_mode}});
      forms.push_back({fmt::format("2x4, stride 3, padding 1x2 of {}{}", to_string(x),
                                   ceil_mode ? ", ceil" : ""),
                       x,
                       {{2, 4}, {3, 3}, {1, 2}, ceil_mode}});
    }
  }
  forms.push_back(
      {"ceil, a last window in the padding dropped", {1, 3, 3, 1}, {{2, 2}, {2, 2}, {1, 1}, true}});
  forms.push_back({"ceil, stride beyond the kernel", {1, 7, 7, 1}, {{1, 2}, {3, 4}, {0, 0}, true}});

  std::vector<OpCase> all;
  for (const Form& form : forms) {
    all.push_back(pool(true, form.name, apart(form.x, 0.0001), form.attrs));
    if (form.x.numel() > 500) all.back().bf16_roundings = 0;  // not all different there
    all.push_back(pool(false, form.name, uniform(form.x), form.attrs));
    if (form.attrs.padding == std::array<int32_t, 2>{0, 0}) continue;
    Pool2dAttrs own = form.attrs;
    own.count_include_pad = false;
    all.push_back(pool(false, form.name + ", padding not counted", uniform(form.x), own));
  }
  const Pool2dAttrs two{{2, 2}, {2, 2}};
  all.push_back(picks("ties: the first wins", {1, 2, 4, 1}, {3, 3, 1, 2, 3, 3, 2, 2}, two, {0, 3}));
  all.push_back(picks("NaN wins, the first of two", {1, 2, 4, 1}, {1, NAN, 5, NAN, NAN, 2, 1, kInf},
                      two, {1, 3}));
  all.push_back(picks("all NaN", {1, 2, 2, 1}, {NAN, NAN, NAN, NAN}, two, {0}));
  all.push_back(picks("all -infinity", {1, 2, 2, 1}, {-kInf, -kInf, -kInf, -kInf}, two, {0}));
  all.push_back(
      picks("all -infinity in padding", {1, 1, 1, 1}, {-kInf}, {{3, 3}, {1, 1}, {1, 1}}, {0}));
  all.push_back(
      picks("overlapping windows add up", {1, 1, 3, 1}, {1, 5, 2}, {{1, 2}, {1, 1}}, {1, 1}));
  all.push_back(pool(false, "NaN and infinity",
                     values({1, 2, 4, 1}, {1, NAN, 5, 1, 1, 2, 1, kInf}).no_grad(), two));
  return all;
}

const CaseFile kFile(cases);

}  // namespace

TEST_CASE("op pool") { run_cases(cases()); }

TEST_CASE("op pool errors") {
  const Tensor x = full({1, 5, 6, 2}, 1);
  for (const auto pool : {ops::max_pool2d, ops::avg_pool2d}) {
    const std::string op = pool == ops::max_pool2d ? "[max_pool2d]" : "[avg_pool2d]";
    const auto fails = [&](const Tensor& in, const Pool2dAttrs& attrs,
                           std::vector<std::string> parts) {
      parts.insert(parts.begin(), op);
      check_error([&] { pool(in, attrs); }, parts);
    };
    fails(full({5, 6, 2}, 1), {{2, 2}, {2, 2}}, {"[5, 6, 2]"});
    fails(x, {{0, 2}, {2, 2}}, {"kernel"});
    fails(x, {{2, 2}, {2, 0}}, {"stride"});
    fails(x, {{3, 3}, {3, 3}, {0, 2}}, {"padding", "0x2", "3x3"});
    fails(full({1, 1, 1, 1}, 1), {{3, 3}, {3, 3}, {3, 3}}, {"padding", "3x3"});
    fails(x, {{3, 3}, {3, 3}, {-1, 0}}, {"padding"});
    fails(x, {{6, 2}, {1, 1}}, {"6", "[1, 5, 6, 2]"});
    fails(x, {{2, 7}, {1, 1}}, {"7", "[1, 5, 6, 2]"});
    fails(full({1, 4, 4, 1}, 1, DType::u8), {{2, 2}, {2, 2}}, {"u8[1, 4, 4, 1]"});
    // An image without pixels: its windows would lie wholly in the padding.
    fails(full({1, 0, 4, 2}, 1), {{2, 2}, {1, 1}, {1, 1}}, {"[1, 0, 4, 2]"});
  }
}

}  // namespace engine::test
