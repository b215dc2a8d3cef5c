// Faults that other engines have had and that no single op's cases show, on every device: batches
// beyond the 65535 blocks of a grid's second axis, memory that is used again while work on it is
// still to run, wrong indices where there is nothing to read. All right values are worked out by
// hand.
#include <fmt/format.h>

#include <cmath>
#include <functional>

#include "core/backend.h"
#include "tests/catch.h"
#include "tests/harness.h"

namespace engine::test {
namespace {

constexpr int64_t kMany = 65537;

// Row i of the batch: (i % 7, i % 5).
double a(int64_t i) { return static_cast<double>(i % 7); }
double b(int64_t i) { return static_cast<double>(i % 5); }
double higher(int64_t i) { return std::max(a(i), b(i)); }
// a of the row after layer normalisation; b is its negative.
double normal(int64_t i) {
  const double half = (a(i) - b(i)) / 2;
  return half / std::sqrt(half * half + 1e-5);
}
double share(int64_t i) { return 1 / (1 + std::exp(b(i) - a(i))); }  // softmax of a
double a_or_b(int64_t i, int64_t k) { return k == 0 ? a(i) : b(i); }

std::vector<double> batch() {
  std::vector<double> list;
  for (int64_t i = 0; i < kMany; ++i) list.insert(list.end(), {a(i), b(i)});
  return list;
}

Tensor labels(Device device) {  // i % 2
  std::vector<double> list;
  for (int64_t i = 0; i < kMany; ++i) list.push_back(static_cast<double>(i % 2));
  return tensor({kMany}, list, DType::i64, device);
}

// An op over the batch: the input's shape, what it gives at element k of row i, and, for an
// upstream gradient of ones, the gradient there.
struct Many {
  const char* name;
  Shape shape;
  std::function<Tensor(const Tensor&)> call;
  std::function<double(int64_t i, int64_t k)> expected;
  std::function<double(int64_t i, int64_t k)> gradient = nullptr;
};

std::vector<Many> many() {
  const Shape rows{kMany, 2}, images{kMany, 1, 2, 1};
  const auto on = [](const Tensor& x, const Shape& shape, std::vector<double> list,
                     DType dtype = DType::f32) { return tensor(shape, list, dtype, x.device()); };
  const auto one = [](int64_t, int64_t) { return 1.0; };
  const auto zero = [](int64_t, int64_t) { return 0.0; };
  const auto two_three = [](int64_t, int64_t k) { return k == 0 ? 2.0 : 3.0; };
  const auto norms = [](int64_t i, int64_t k) { return k == 0 ? normal(i) : -normal(i); };
  const auto shares = [](int64_t i, int64_t k) { return k == 0 ? share(i) : 1 - share(i); };
  const auto mean = [](int64_t i, int64_t) { return (a(i) + b(i)) / 2; };
  const auto half = [](int64_t, int64_t) { return 0.5; };
  const auto weighted = [](int64_t i, int64_t) { return 2 * a(i) + 3 * b(i); };
  // The first of two equal ones gets it all.
  const auto winner = [](int64_t i, int64_t k) { return (k == 0) == (a(i) >= b(i)) ? 1.0 : 0.0; };
  const Pool2dAttrs window{{1, 2}, {1, 2}};
  return {
      {"neg", rows, ops::neg, [](int64_t i, int64_t k) { return -a_or_b(i, k); },
       [](int64_t, int64_t) { return -1.0; }},
      {"add of a row", rows,
       [=](const Tensor& x) {
         return ops::add(x, on(x, {2}, {1, 2}));
       },
       [](int64_t i, int64_t k) { return a_or_b(i, k) + 1 + static_cast<double>(k); }, one},
      {"softmax", rows, [](const Tensor& x) { return ops::softmax(x); }, shares, zero},
      {"cross_entropy", rows,
       [](const Tensor& x) {
         return ops::cross_entropy(x, labels(x.device()), {.reduction = Reduction::none});
       },
       [](int64_t i, int64_t) { return -std::log(i % 2 == 0 ? share(i) : 1 - share(i)); },
       [=](int64_t i, int64_t k) { return shares(i, k) - (i % 2 == k ? 1 : 0); }},
      {"layer_norm", rows, [](const Tensor& x) { return ops::layer_norm(x, 1); }, norms, zero},
      {"rms_norm", rows, [](const Tensor& x) { return ops::rms_norm(x, 1); },
       [](int64_t i, int64_t k) {
         return a_or_b(i, k) / std::sqrt((a(i) * a(i) + b(i) * b(i)) / 2 + 1e-5);
       }},
      {"group_norm", rows, [](const Tensor& x) { return ops::group_norm(x, 1); }, norms, zero},
      {"sum", rows, [](const Tensor& x) { return ops::sum(x, std::array<int64_t, 1>{1}); },
       [](int64_t i, int64_t) { return a(i) + b(i); }, one},
      {"max", rows, [](const Tensor& x) { return ops::max(x, std::array<int64_t, 1>{1}); },
       [](int64_t i, int64_t) { return higher(i); }},
      {"argmax", rows, [](const Tensor& x) { return ops::argmax(x, 1); },
       [](int64_t i, int64_t) { return a(i) >= b(i) ? 0.0 : 1.0; }},
      {"max_pool2d", images, [=](const Tensor& x) { return ops::max_pool2d(x, window); },
       [](int64_t i, int64_t) { return higher(i); }, winner},
      {"avg_pool2d", images, [=](const Tensor& x) { return ops::avg_pool2d(x, window); }, mean,
       half},
      {"adaptive_avg_pool2d", images,
       [](const Tensor& x) { return ops::adaptive_avg_pool2d(x, 1, 1); }, mean, half},
      {"flip", rows, [](const Tensor& x) { return ops::flip(x, std::array<int64_t, 1>{1}); },
       [](int64_t i, int64_t k) { return a_or_b(i, 1 - k); }, one},
      {"permute",
       {kMany, 2, 1},
       [](const Tensor& x) {
         return ops::permute(x, std::array<int64_t, 3>{1, 0, 2});
       },
       // [2, n]: element k of "row" i in memory is place 2 i + k
       [](int64_t i, int64_t k) {
         const int64_t place = 2 * i + k;
         return a_or_b(place % kMany, place / kMany);
       },
       one},
      {"slice", rows, [](const Tensor& x) { return ops::slice(x, 1, 1, 2); },
       [](int64_t i, int64_t) { return b(i); },
       [](int64_t, int64_t k) { return static_cast<double>(k); }},
      {"linear", rows,
       [=](const Tensor& x) {
         return ops::linear(x, on(x, {1, 2}, {2, 3}));
       },
       weighted, two_three},
      {"matmul",
       {kMany, 1, 2},
       [](const Tensor& x) { return ops::matmul(x, x.detach(), false, true); },
       [](int64_t i, int64_t) { return a(i) * a(i) + b(i) * b(i); },
       a_or_b},
      {"conv2d", images,
       [=](const Tensor& x) {
         return ops::conv2d(x, on(x, {1, 1, 2, 1}, {2, 3}));
       },
       weighted, two_three},
      {"conv2d_relu", images,
       [=](const Tensor& x) {
         return ops::conv2d_relu(x, on(x, {1, 1, 2, 1}, {2, 3}));
       },
       weighted},
  };
}

}  // namespace

TEST_CASE("op conv2d and others: no tail of a batch of 65537 is left out") {
  for (const Device device : test_devices()) {
    for (const Many& c : many()) {
      CAPTURE(c.name, to_string(device));
      Tensor x = tensor(c.shape, batch(), DType::f32, device);
      x.set_requires_grad(c.gradient != nullptr);
      const Tensor y = c.call(x);
      const auto wrong = [](const Array& got, const auto& expected) {
        const int64_t width = got.shape.numel() / kMany;
        int64_t count = 0;
        for (int64_t i = 0; i < kMany; ++i) {
          for (int64_t k = 0; k < width; ++k) {
            const double right = expected(i, k);
            count +=
                !(std::abs(got[i * width + k] - right) <= 2e-4 * std::max(1.0, std::abs(right)));
          }
        }
        return count;
      };
      REQUIRE(y.numel() % kMany == 0);
      CHECK(wrong(to_array(y), c.expected) == 0);
      if (c.gradient == nullptr) continue;
      y.backward(full(y.shape(), 1, DType::f32, device));
      CHECK(wrong(to_array(x.grad()), c.gradient) == 0);
    }
  }
}

TEST_CASE("op embedding: a batch of 65537 ids, and their sums") {
  for (const Device device : test_devices()) {
    Tensor weight = tensor({2, 2}, {1, 2, 3, 4}, DType::f32, device);
    weight.set_requires_grad(true);
    const Tensor y = ops::embedding(weight, labels(device));
    const Array got = to_array(y);
    int64_t wrong = 0;
    for (int64_t i = 0; i < kMany; ++i) {
      wrong += got[2 * i] != (i % 2 == 0 ? 1 : 3);
      wrong += got[2 * i + 1] != (i % 2 == 0 ? 2 : 4);
    }
    CHECK(wrong == 0);
    y.backward(full(y.shape(), 1, DType::f32, device));
    CHECK(to_array(weight.grad()).values == std::vector<double>{32769, 32769, 32768, 32768});
  }
}

TEST_CASE("op embedding: wrong ids are told on every device, also of rows without elements") {
  for (const Device device : test_devices()) {
    for (const int64_t width : {4, 0}) {
      const Tensor weight = full({3, width}, 1, DType::f32, device);
      const auto look_up = [&](std::vector<double> ids) {
        const Shape shape{static_cast<int64_t>(ids.size())};
        const Tensor y = ops::embedding(weight, tensor(shape, ids, DType::i64, device));
        backend(device).synchronize();
        return y;
      };
      CAPTURE(to_string(device), width);
      check_error([&] { look_up({0, -1}); }, {"[embedding]", "[0, 3)", "-1", "position 1"});
      check_error([&] { look_up({2, 0, 3}); }, {"[embedding]", "[0, 3)", "3", "position 2"});
      CHECK(look_up({2, 0, 1}).shape() == Shape{3, width});  // usable
      CHECK(look_up({}).numel() == 0);
    }
  }
}

TEST_CASE("op norm: batches beyond the limits of cuDNN, and one of nothing") {
  for (const Device device : test_devices()) {
    CAPTURE(to_string(device));
    // Half 0 and half 1: mean 1/2, variance 1/4, unbiased 1/4 n / (n - 1).
    constexpr int64_t n = 140000;
    std::vector<double> list;
    for (int64_t i = 0; i < n; ++i) list.push_back(static_cast<double>(i % 2));
    const Tensor x = tensor({n, 1}, list, DType::f32, device);
    const Tensor mean = full({1}, 0, DType::f32, device),
                 variance = full({1}, 0, DType::f32, device);
    const Array y = to_array(ops::batch_norm(x, {}, {}, mean, variance, true, 1));
    int64_t wrong = 0;
    for (int64_t i = 0; i < n; ++i)
      wrong += !(std::abs(y[i] - (i % 2 == 0 ? -1 : 1) / std::sqrt(1 + 4e-5)) <= 1e-5);
    CHECK(wrong == 0);
    CHECK(to_array(mean)[0] == Approx(0.5).epsilon(1e-6));
    CHECK(to_array(variance)[0] == Approx(0.25 * n / (n - 1)).epsilon(1e-6));

    const Tensor threes = full({3}, 3, DType::f32, device),
                 fours = full({3}, 4, DType::f32, device);
    const Array z = to_array(
        ops::batch_norm(full({65536, 3}, 7, DType::f32, device), {}, {}, threes, fours, false));
    for (int64_t i = wrong = 0; i < 65536 * 3; ++i)
      wrong += !(std::abs(z[i] - 4 / std::sqrt(4 + 1e-5)) <= 1e-5);
    CHECK(wrong == 0);

    ops::batch_norm(empty({0, 3}, DType::f32, device), {}, {}, threes, fours, true);
    CHECK(to_array(threes).values == std::vector<double>{3, 3, 3});
    CHECK(to_array(fours).values == std::vector<double>{4, 4, 4});
  }
}

// A weight of NaN is in every sum whose tap lies in the image. Of a sum where its tap lies in the
// padding, nothing is promised, as PyTorch promises nothing (there it is NaN or not by the batch's
// size): libraries add 0 * NaN, or leave the padding out. Other channels never see it.
TEST_CASE("op conv2d: a weight of NaN, with padding") {
  for (const Device device : test_devices()) {
    std::vector<double> list(18, 1);
    list[0] = NAN;  // the first tap of the first channel
    const Tensor y = ops::conv2d(full({1, 4, 4, 1}, 1, DType::f32, device),
                                 tensor({2, 3, 3, 1}, list, DType::f32, device), {},
                                 {.padding_begin = {1, 1}, .padding_end = {1, 1}});
    const Array got = to_array(y);
    for (int64_t i = 0; i < 4; ++i) {
      for (int64_t j = 0; j < 4; ++j) {
        CAPTURE(to_string(device), i, j);
        const double taps = (i % 3 == 0 ? 2 : 3) * (j % 3 == 0 ? 2 : 3);
        const double first = got[(i * 4 + j) * 2], second = got[(i * 4 + j) * 2 + 1];
        CHECK(second == taps);
        if (i > 0 && j > 0)
          CHECK(std::isnan(first));
        else
          CHECK((std::isnan(first) || first == taps));
      }
    }
  }
}

TEST_CASE("ops: memory is not used again before the work on it is done") {
  for (const Device device : test_devices()) {
    CAPTURE(to_string(device));
    // Each round's tensors go back to the allocator before the device has looked at them.
    std::vector<Tensor> kept;
    for (int round = 0; round < 50; ++round) {
      const Tensor x = tensor({3}, {1.0 * round, 2, 3}, DType::f32, device);
      kept.push_back(ops::neg(ops::scale(x, 2)));
    }
    Tensor sum = full({3}, 0, DType::f32, device);
    for (const Tensor& one : kept) sum = ops::add(sum, one);
    kept.clear();
    CHECK(to_array(sum).values == std::vector<double>{-2450, -200, -300});  // 49 * 50, and 50 times
    // A long backward pass: every activation is freed as the walk passes it. y = 2^40 x.
    Tensor x = tensor({2}, {1, -3}, DType::f32, device);
    x.set_requires_grad(true);
    Tensor y = x;
    for (int i = 0; i < 40; ++i) y = ops::add(y, ops::relu(y));
    ops::sum(y).backward();
    CHECK(to_array(y).values == std::vector<double>{0x1p40, -3});
    CHECK(to_array(x.grad()).values == std::vector<double>{0x1p40, 1});
  }
}

}  // namespace engine::test
