// The backward walk: what it adds up, what it refuses, and what it leaves in memory.
#include <cmath>
#include <limits>

#include "core/backend.h"
#include "core/context.h"
#include "core/ops.h"
#include "tests/catch.h"
#include "tests/harness.h"

namespace engine::test {
namespace {

using Floats = std::vector<float>;

Tensor leaf(const Shape& shape, const std::vector<double>& list) {
  return tensor(shape, list).set_requires_grad(true);
}
Tensor leaf(double value) { return leaf({}, {value}); }

int64_t allocated() { return backend(kCpu).allocator().snapshot().total.allocated; }

// A small network's loss: it saves activations of several kinds.
Tensor loss_of(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const Tensor h = ops::linear_relu(x, weight, bias);
  return ops::mean(ops::mul(h, ops::exp(ops::scale(h, 0.1))));
}

}  // namespace

TEST_CASE("autograd: a scalar's gradient starts at 1") {
  const Tensor x = leaf(3);
  ops::mul(x, x).backward();
  CHECK(x.grad().item() == 6);
  const Tensor y = leaf(3);
  y.backward();
  CHECK(y.grad().item() == 1);
}

TEST_CASE("autograd: diamonds add up over all paths") {
  // z = a b with a = 2x, b = x + 1, and a used once more: z + a; dz/dx = 2b + a + 2.
  const Tensor x = leaf({2}, {3, -1});
  const Tensor a = ops::scale(x, 2), b = ops::shift(x, 1);
  ops::sum(ops::add(ops::mul(a, b), a)).backward();
  CHECK(x.grad().to_vector<float>() == Floats{2 * 4 + 6 + 2, 2 * 0 - 2 + 2});

  // Each level uses the one before it twice: 2^40 paths, each walked once.
  const Tensor start = leaf(1);
  Tensor y = start;
  for (int i = 0; i < 40; ++i) y = ops::add(y, y);
  y.backward();
  CHECK(start.grad().item() == std::ldexp(1.0, 40));
}

TEST_CASE("autograd: consumers made in any order are all waited for") {
  // The deep branch hangs on the same tensor as the short one, made before it.
  const Tensor x = leaf(2);
  const Tensor h = ops::mul(x, x);
  const Tensor brief = ops::scale(h, 3);
  Tensor deep = h;
  for (int i = 0; i < 5; ++i) deep = ops::scale(deep, 2);
  ops::add(deep, brief).backward();
  CHECK(x.grad().item() == (32 + 3) * 4);
}

TEST_CASE("autograd: a leaf in several places of one op") {
  // Element (i, j) is in row j's products as a factor from the left, in column i's from the right:
  // the sum of row j plus the sum of column i. Both parts want to go to the leaf's buffer.
  for (const bool buffer : {false, true}) {
    Tensor x = leaf({2, 2}, {1, 2, 3, 4});
    if (buffer) x.set_grad_buffer(full({2, 2}, NAN));
    ops::sum(ops::matmul(x, x)).backward();
    CHECK(x.grad().to_vector<float>() == Floats{3 + 4, 7 + 4, 3 + 6, 7 + 6});
  }
}

TEST_CASE("autograd: broadcast inputs get sums") {
  const Tensor a = full({2, 1, 4, 64}, 2).set_requires_grad(true);
  const Tensor b = full({2, 1, 4, 1}, 3).set_requires_grad(true);
  ops::sum(ops::mul(a, b)).backward();
  CHECK(a.grad().shape() == Shape{2, 1, 4, 64});
  CHECK(b.grad().shape() == Shape{2, 1, 4, 1});
  CHECK(a.grad().to_vector<float>() == Floats(2 * 4 * 64, 3));
  CHECK(b.grad().to_vector<float>() == Floats(2 * 4, 128));
  // Axes that are missing, of size 1, or both; and a scalar.
  const Tensor c = leaf({3, 1}, {1, 2, 3}), s = leaf(5);
  ops::sum(ops::add(ops::add(full({2, 3, 4}, 0), c), s)).backward();
  CHECK(c.grad().to_vector<float>() == Floats{8, 8, 8});
  CHECK(s.grad().item() == 24);
}

TEST_CASE("autograd: gradients add up until they are forgotten") {
  Tensor x = leaf(3);
  for (int pass = 1; pass <= 3; ++pass) {
    ops::mul(x, x).backward();
    CHECK(x.grad().item() == 6 * pass);
  }
  x.zero_grad();
  CHECK_FALSE(x.grad().defined());
  ops::mul(x, x).backward();
  CHECK(x.grad().item() == 6);
}

TEST_CASE("autograd: a gradient buffer is written, kept and written anew") {
  const Tensor flat = full({6}, NAN);
  Tensor x = leaf({2}, {3, 4});
  x.set_grad_buffer(flat.view({2}, 8));
  CHECK_FALSE(x.grad().defined());
  for (int round = 0; round < 2; ++round) {
    ops::sum(ops::mul(x, x)).backward();
    ops::sum(ops::mul(x, x)).backward();
    const Floats all = flat.to_vector<float>();
    CHECK(all[2] == 12);
    CHECK(all[3] == 16);
    for (const size_t beside : {0, 1, 4, 5}) CHECK(std::isnan(all[beside]));
    x.zero_grad();
    CHECK_FALSE(x.grad().defined());
  }
  check_error([&] { x.set_grad_buffer(flat); }, {"[tensor]", "f32[2]", "f32[6]"});
}

TEST_CASE("autograd: gradients of different leaves share no memory") {
  const Tensor x = leaf({2}, {1, 2}), y = leaf({2}, {3, 4}), upstream = tensor({2}, {5, 6});
  ops::add(x, y).backward(upstream);
  ops::fill_(x.grad(), 0);
  CHECK(y.grad().to_vector<float>() == Floats{5, 6});
  CHECK(upstream.to_vector<float>() == Floats{5, 6});
  // Nor does the caller's upstream gradient change when a leaf collects more.
  const Tensor z = leaf({2}, {1, 2});
  for (int pass = 0; pass < 2; ++pass) ops::reshape(z, {1, 2}).backward(upstream.view({1, 2}));
  CHECK(z.grad().to_vector<float>() == Floats{10, 12});
  CHECK(upstream.to_vector<float>() == Floats{5, 6});
}

TEST_CASE("autograd: one gradient for two tensors is not changed for one of them") {
  // add hands the same gradient to both of its inputs; `left` then collects more.
  const Tensor x = leaf(1), y = leaf(1);
  const Tensor left = ops::scale(x, 1), right = ops::scale(y, 1);
  const Tensor more = ops::scale(left, 5);
  ops::add(ops::add(left, right), more).backward();
  CHECK(x.grad().item() == 6);
  CHECK(y.grad().item() == 1);
}

TEST_CASE("autograd: nothing is recorded where no gradient is wanted") {
  const Tensor x = leaf(3), plain = full({}, 2);
  CHECK_FALSE(ops::exp(plain).requires_grad());
  CHECK_FALSE(ops::exp(x.detach()).requires_grad());
  {
    const NoGradScope no_grad;
    CHECK_FALSE(ops::exp(x).requires_grad());
    const NoGradScope inner;
  }
  CHECK(ops::exp(x).requires_grad());
  // A leaf that takes no part keeps no gradient; a constant beside it gets none.
  const Tensor unused = leaf(1);
  ops::mul(x, plain).backward();
  CHECK(x.grad().item() == 2);
  CHECK_FALSE(unused.grad().defined());
  CHECK_FALSE(plain.grad().defined());
}

TEST_CASE("autograd: a value changed in place since it was saved is refused") {
  const auto change = [](const Tensor& t) {
    const NoGradScope no_grad;
    ops::fill_(t, 1);
  };
  const Tensor x = leaf({2}, {1, 2});
  const Tensor y = ops::exp(x);
  change(y);
  check_error([&] { y.backward(full({2}, 1)); }, {"[exp]", "output 0", "f32[2]", "in place"});
  // Once more: no silence because a walk has been there before.
  CHECK(error_of([&] { y.backward(full({2}, 1)); }) != "");
  CHECK(error_of([&] { ops::sum(y).backward(); }) != "");
  CHECK_FALSE(x.grad().defined());

  // Through a view, and by an op that writes into a given output.
  const Tensor a = leaf({2}, {1, 2}), b = tensor({2}, {3, 4});
  const Tensor product = ops::sum(ops::mul(a, b));
  change(b.view({1}, 4));
  check_error([&] { product.backward(); }, {"[mul]", "input 1", "in place"});
  const Tensor c = tensor({1, 1}, {3}), d = leaf({1, 1}, {2});
  const Tensor square = ops::sum(ops::mul(d, c));
  ops::matmul(d.detach(), d.detach(), false, false, c.detach());
  check_error([&] { square.backward(); }, {"[mul]", "input 1", "in place"});

  // What no gradient reads may change.
  const Tensor sum = ops::sum(ops::add(a, b));
  change(b);
  sum.backward();
  CHECK(a.grad().to_vector<float>() == Floats{1, 1});
}

TEST_CASE("autograd: a tensor under recording is not changed in place") {
  const Tensor x = leaf({2}, {1, 2});
  check_error([&] { ops::fill_(x, 0); }, {"[fill_]", "in place", "f32[2]"});
  check_error([&] { ops::accumulate_(ops::exp(x), x.detach()); }, {"[accumulate_]", "in place"});
  CHECK(x.to_vector<float>() == Floats{1, 2});
}

TEST_CASE("autograd: gradients of gradients are refused") {
  const Tensor x = leaf(3);
  ops::mul(x, ops::mul(x, x)).backward();
  CHECK_FALSE(x.grad().requires_grad());
  check_error([&] { x.grad().backward(); }, {"[backward]", "gradients of gradients"});
  check_error([&] { ops::mul(x.grad(), x.grad()).backward(); },
              {"[backward]", "gradients of gradients"});
}

TEST_CASE("autograd: a second backward pass over one graph is refused") {
  const Tensor x = leaf(3);
  const Tensor h = ops::exp(x), y = ops::mul(h, h), other = ops::scale(h, 2);
  y.backward();
  const double once = x.grad().item();
  check_error([&] { y.backward(); }, {"[mul]", "freed", "forward pass again"});
  check_error([&] { other.backward(); }, {"[exp]", "freed"});  // its lower part is gone
  CHECK(x.grad().item() == once);
}

TEST_CASE("autograd: errors leave the engine usable") {
  const Tensor x = leaf({2}, {1, 2});
  check_error([&] { ops::exp(x).backward(); }, {"[backward]", "scalar", "f32[2]"});
  check_error([&] { ops::exp(x).backward(full({3}, 1)); }, {"[backward]", "f32[2]", "f32[3]"});
  check_error([&] { ops::exp(x).backward(full({2}, 1, DType::bf16)); },
              {"[backward]", "f32[2]", "bf16[2]"});
  check_error([&] { full({}, 1).backward(); }, {"[backward]", "f32[]"});
  CHECK(error_of([] { Tensor().backward(); }) != "");
  check_error([] { full({2}, 1, DType::i64).set_requires_grad(true); }, {"[tensor]", "i64[2]"});
  check_error([&] { ops::exp(x).set_requires_grad(true); }, {"[tensor]", "leaves"});
  CHECK(context().grad_enabled);
  CHECK(context().phase == Phase::other);
  ops::sum(ops::exp(x)).backward();
  CHECK(static_cast<double>(x.grad().to_vector<float>()[1]) == Approx(std::exp(2.0)));
}

TEST_CASE("autograd: a chain of 100000 ops is dropped and walked without recursion") {
  const Tensor x = leaf(1);
  for (const bool walk : {false, true}) {
    Tensor y = x;
    for (int i = 0; i < 100000; ++i) y = ops::shift(y, 1);
    CHECK(y.item() == 100001);
    if (walk) y.backward();
  }
  CHECK(x.grad().item() == 1);
}

TEST_CASE("autograd: memory is flat from step to step") {
  const Tensor x = full({16, 32}, 0.5), weight = full({8, 32}, 0.1).set_requires_grad(true),
               bias = full({8}, 0.1).set_requires_grad(true);
  Tensor total = full({}, 0);
  int64_t after_first = 0;
  for (int step = 0; step < 20; ++step) {
    {
      const Tensor loss = loss_of(x, weight, bias);
      loss.backward();
      total = ops::add(total, loss);  // keeps the loss's place in the graph, but nothing behind it
    }
    if (step == 0) after_first = allocated();
    CHECK(allocated() == after_first);
  }
  // Forward passes that are never walked go with their last handle.
  for (int step = 0; step < 3; ++step) loss_of(x, weight, bias);
  CHECK(allocated() == after_first);
}

TEST_CASE("autograd: what was saved is freed as the walk passes it") {
  const Tensor x = full({64, 1024}, 0.5).set_requires_grad(true);
  ops::sum(x).backward();  // its gradient's memory is there
  const int64_t before = allocated();
  Tensor h = x;
  for (int i = 0; i < 10; ++i) h = ops::exp(ops::scale(h, 0.1));
  const Tensor loss = ops::sum(h);
  h = {};
  const int64_t one = static_cast<int64_t>(x.bytes());
  CHECK(allocated() - before >= 10 * one);
  backend(kCpu).allocator().reset_peaks();
  loss.backward();
  // The loss is still held, and holds no more than itself; on the way down there were a few
  // gradients.
  CHECK(allocated() - before < one);
  CHECK(backend(kCpu).allocator().snapshot().total.peak_allocated - before < 14 * one);
}

}  // namespace engine::test
