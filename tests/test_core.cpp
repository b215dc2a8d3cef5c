// Shapes, element types, random numbers, the context and tensors: what ops are built on.
#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "backends/cpu/cpu_backend.h"
#include "core/backend.h"
#include "core/context.h"
#include "core/error.h"
#include "core/launch.h"
#include "core/op.h"
#include "core/ops.h"
#include "core/random.h"
#include "tests/catch.h"
#include "tests/harness.h"

namespace engine::test {

TEST_CASE("core: shapes") {
  CHECK(Shape{}.rank() == 0);
  CHECK(Shape{}.numel() == 1);
  CHECK(Shape{2, 0, 3}.numel() == 0);
  CHECK(Shape{2, 3, 4}.numel() == 24);
  CHECK(Shape{2, 3, 4}[-1] == 4);
  CHECK(Shape{2, 3, 4}.with(-2, 7) == Shape{2, 7, 4});
  CHECK(Shape{2, 3, 4}.product(1, 3) == 12);
  CHECK(Shape{2, 3, 4}.product(1, 1) == 1);
  CHECK_FALSE(Shape{2, 3} == Shape{2, 3, 1});
  CHECK_FALSE(Shape{2, 3} == Shape{3, 2});
  CHECK(to_string(Shape{64, 1, 28}) == "[64, 1, 28]");
  CHECK(to_string(Shape{}) == "[]");
  check_error([] { Shape{1, 1, 1, 1, 1, 1, 1, 1, 1}; }, {"[shape]", "8", "9"});
  check_error([] { Shape{2, -1}; }, {"[shape]", "[2, -1]"});
  const int64_t big = int64_t{1} << 32;
  check_error([=] { Shape{big, big}; }, {"[shape]", "4294967296"});
  CHECK(Shape{big, big / 4}.numel() == int64_t{1} << 62);
  CHECK(Shape{big, big, 0}.numel() == 0);  // no overflow where there is nothing
  CHECK(Shape{0, big, big}.numel() == 0);
}

TEST_CASE("core: broadcasting and axes") {
  CHECK(broadcast("op", {3, 1}, {2, 1, 4}) == Shape{2, 3, 4});
  CHECK(broadcast("op", {}, {2, 3}) == Shape{2, 3});
  CHECK(broadcast("op", {1}, {0}) == Shape{0});
  check_error([] { broadcast("op", {2, 3}, {2, 4}); }, {"[op]", "[2, 3]", "[2, 4]", "axis -1"});
  check_error([] { broadcast("op", {0}, {2}); }, {"[op]", "[0]", "[2]"});
  CHECK(normalize_axis("op", -1, 3) == 2);
  CHECK(normalize_axis("op", 0, 3) == 0);
  check_error([] { normalize_axis("op", 3, 3); }, {"[op]", "[-3, 3)", "3"});
  check_error([] { normalize_axis("op", -4, 3); }, {"[op]", "-4"});
}

TEST_CASE("core: bf16 is f32 rounded to nearest even") {
  // Every bf16 survives the way to f32 and back; NaN stays NaN.
  int wrong = 0;
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    BFloat16 value;
    value.bits = static_cast<uint16_t>(bits);
    const float wide = static_cast<float>(value);
    const BFloat16 back(wide);
    wrong += std::isnan(wide) ? !std::isnan(static_cast<float>(back)) : back.bits != value.bits;
  }
  CHECK(wrong == 0);
  // Just below, at and just above each midpoint between neighbours, against arithmetic in double.
  for (uint32_t upper = 0; upper < 0x7f80; ++upper) {
    for (const uint32_t lower : {0x7fffu, 0x8000u, 0x8001u, 0x0001u, 0xffffu}) {
      const float x = std::bit_cast<float>(upper << 16 | lower);
      const double expected = reference::round_to_bf16(static_cast<double>(x));
      wrong += static_cast<double>(static_cast<float>(BFloat16(x))) != expected;
      wrong += static_cast<double>(static_cast<float>(BFloat16(-x))) != -expected;
    }
  }
  CHECK(wrong == 0);
  CHECK(BFloat16(1.0f).bits == 0x3f80);
  CHECK(BFloat16(1.00390625f).bits == 0x3f80);  // 1 + 2^-8: a tie, to even
  CHECK(BFloat16(1.01171875f).bits == 0x3f82);  // 1 + 3 * 2^-8: a tie, to even
  CHECK(BFloat16(std::numeric_limits<float>::max()).bits == 0x7f80);
  // A NaN whose payload lies in the lower half must not become an infinity.
  CHECK(std::isnan(static_cast<float>(BFloat16(std::bit_cast<float>(0x7f800001u)))));
  CHECK(std::isnan(static_cast<float>(BFloat16(std::bit_cast<float>(0xff800001u)))));
}

TEST_CASE("core: philox gives the published numbers") {
  // The known answers of Random123's kat_vectors for philox4x32-10. The engine's function has the
  // lower two counter words only; the reference, which the other tests use, has all four.
  using Four = std::array<uint32_t, 4>;
  CHECK(philox(0, 0) == Four{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(reference::philox4x32_10({0, 0, 0, 0}, {0, 0}) ==
        Four{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  const uint32_t ones = 0xffffffff;
  CHECK(reference::philox4x32_10({ones, ones, ones, ones}, {ones, ones}) ==
        Four{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(reference::philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                                 {0xa4093822, 0x299f31d0}) ==
        Four{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
  for (const uint64_t seed : {uint64_t{1}, uint64_t{1} << 32, uint64_t{0xfedcba9876543210}}) {
    for (const uint64_t counter : {uint64_t{0}, uint64_t{7}, uint64_t{1} << 32, ~uint64_t{0}}) {
      const auto word = [](uint64_t v, int i) { return static_cast<uint32_t>(v >> (32 * i)); };
      CHECK(philox(seed, counter) ==
            reference::philox4x32_10({word(counter, 0), word(counter, 1), 0, 0},
                                     {word(seed, 0), word(seed, 1)}));
    }
  }
}

TEST_CASE("core: uniform and normal numbers from bits") {
  CHECK(uniform_from_bits(0) == 0.f);
  CHECK(uniform_from_bits(0xffffffff) == 1.f - 0x1p-24f);
  CHECK(uniform_from_bits(0x80000000) == 0.5f);

  // Against Newton's method on erfc, over the whole range and where the formula changes pieces.
  std::vector<uint32_t> points{0, 1, 2, 0xffffffff, 0x7fffffff, 0x80000000};
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 4294967)
    points.push_back(static_cast<uint32_t>(bits));
  for (int i = -3; i <= 3; ++i)
    points.push_back(static_cast<uint32_t>(static_cast<int64_t>(0.075 * 0x1p32) + i));
  // Within half of the last place of f32; 1e-15 is the yardstick's own error next to 0.
  int wrong = 0;
  for (const uint32_t bits : points) {
    const double x = static_cast<double>(normal_from_bits(bits));
    const double exact = reference::normal_quantile((bits + 0.5) * 0x1p-32);
    wrong += !(std::abs(x - exact) <= 0x1.002p-24 * std::abs(exact) + 1e-15);
    CHECK(normal_from_bits(~bits) == -normal_from_bits(bits));
  }
  CHECK(wrong == 0);
  // Quantiles from tables: 97.5 %, 99.9 %.
  CHECK(static_cast<double>(normal_from_bits(static_cast<uint32_t>(0.975 * 0x1p32))) ==
        Approx(1.9599639845).epsilon(1e-7));
  CHECK(static_cast<double>(normal_from_bits(static_cast<uint32_t>(0.999 * 0x1p32))) ==
        Approx(3.0902323062).epsilon(1e-7));

  for (double x = 1e-10; x < 1e6; x *= 1.37)
    CHECK(std::abs(portable_log(x) - std::log(x)) <= 4e-16 * std::abs(std::log(x)) + 1e-17);
}

TEST_CASE("core: generators and permutations") {
  Generator g(5);
  CHECK(g.take(5).offset == 0);
  CHECK(g.take(4).offset == 2);  // 5 numbers take two blocks of four
  CHECK(g.take(0).offset == 3);
  CHECK(g.state().offset == 3);
  CHECK(g.state().seed == 5);

  for (const int64_t n : {0, 1, 2, 1000}) {
    std::vector<int64_t> order = random_permutation(n, {7, 0});
    CHECK(order == random_permutation(n, {7, 0}));
    if (n == 1000) CHECK(order != random_permutation(n, {8, 0}));
    std::sort(order.begin(), order.end());
    for (int64_t i = 0; i < n; ++i) CHECK(order[static_cast<size_t>(i)] == i);
  }
  // Each of the 24 orders of 4 about equally often: chi-squared with 23 degrees of freedom stays
  // below 60 but once in 30000 seeds.
  std::map<std::vector<int64_t>, int> counts;
  for (uint64_t seed = 0; seed < 24000; ++seed) ++counts[random_permutation(4, {seed, 0})];
  CHECK(counts.size() == 24);
  double chi_squared = 0;
  for (const auto& [order, count] : counts) chi_squared += std::pow(count - 1000.0, 2) / 1000;
  CHECK(chi_squared < 60);
}

TEST_CASE("core: fusion policies are parsed") {
  const auto all = FusionPolicy::on(), none = FusionPolicy::off();
  CHECK(all.enabled(OpId::linear_relu));
  CHECK_FALSE(none.enabled(OpId::linear_relu));
  CHECK(FusionPolicy::parse("on").enabled(OpId::conv2d_relu));
  CHECK_FALSE(FusionPolicy::parse("off").enabled(OpId::conv2d_relu));
  const FusionPolicy some = FusionPolicy::parse("conv2d_relu,cross_entropy");
  CHECK(some.enabled(OpId::conv2d_relu));
  CHECK(some.enabled(OpId::cross_entropy));
  CHECK_FALSE(some.enabled(OpId::linear_relu));
  for (const char* text : {"", "ON", "conv2d", "conv2d_relu,", ",conv2d_relu",
                           "conv2d_relu linear_relu", "nonsense"}) {
    CAPTURE(text);
    check_error([=] { FusionPolicy::parse(text); },
                {"[fusion]", "linear_relu"});  // names what there is
  }
}

TEST_CASE("core: fused ops run as the policy says") {
  const Tensor x = full({2, 3}, 1), weight = full({4, 3}, 1);
  const auto kernels = [&](const FusionPolicy& policy) {
    const ContextScope fusion(&Context::fusion, policy);
    const int64_t before = launch_count().kernels;
    ops::linear_relu(x, weight);
    return launch_count().kernels - before;
  };
  CHECK(kernels(FusionPolicy::on()) == 1);
  CHECK(kernels(FusionPolicy::parse("linear_relu")) == 1);
  CHECK(kernels(FusionPolicy::off()) == 2);
  CHECK(kernels(FusionPolicy::parse("conv2d_relu")) == 2);
}

TEST_CASE("core: contexts and module paths") {
  {
    const ContextScope outer(&Context::phase, Phase::loss);
    {
      const ContextScope inner(&Context::phase, Phase::optimizer);
      CHECK(context().phase == Phase::optimizer);
    }
    CHECK(context().phase == Phase::loss);
  }
  CHECK(context().phase == Phase::other);
  const int32_t layer = intern_module_path(0, "core_test"),
                conv = intern_module_path(layer, "conv1");
  CHECK(module_path(conv) == "core_test.conv1");
  CHECK(intern_module_path(layer, "conv1") == conv);
  CHECK(module_path(0).empty());
  CHECK(all_module_paths()[static_cast<size_t>(layer)] == "core_test");
}

TEST_CASE("core: the op list") {
  std::set<std::string> names;
  for (int i = 0; i < kOps; ++i) {
    const Op& o = op(static_cast<OpId>(i));
    CHECK(o.id == static_cast<OpId>(i));
    CHECK(names.insert(o.name).second);
    CHECK(find_op(o.name) == &o);
    if (o.mutated != 0) CHECK(o.grad == nullptr);
    CHECK((std::string_view(o.name).ends_with('_')) == (o.mutated != 0));
  }
  CHECK(find_op("nonsense") == nullptr);
  struct Other {
    int value;
  };
  check_error([] { Attrs(FillAttrs{1}).as<Other>(); }, {"[attrs]"});
}

TEST_CASE("core: tensors") {
  const Tensor x = tensor({2, 3}, {1, 2, 3, 4, 5, 6});
  CHECK(to_string(describe(x)) == "f32[2, 3]");
  CHECK(to_string(describe(Tensor())) == "undefined");
  CHECK(x.bytes() == 24);
  CHECK(x.view({3}, 12).to_vector<float>() == std::vector<float>{4, 5, 6});
  CHECK(x.view({3}, 12).raw() == static_cast<float*>(x.raw()) + 3);
  check_error([&] { x.view({4}, 12); }, {"[tensor]", "f32[2, 3]", "[4]"});
  check_error([&] { x.view({2}, size_t(-8)); }, {"[tensor]", "f32[2, 3]", "[2]"});
  check_error([&] { x.view({int64_t{1} << 62}, 0); }, {"[tensor]", "f32[2, 3]"});
  check_error([&] { x.item(); }, {"[tensor]", "f32[2, 3]"});
  check_error([&] { x.data<int32_t>(); }, {"[tensor]", "i32", "f32[2, 3]"});
  check_error([] { Tensor().shape(); }, {"[tensor]", "undefined"});
  check_error([] { from_host(Shape{3}, std::vector<float>{1, 2}); }, {"[from_host]", "3", "2"});
  for (const DType dtype : {DType::f32, DType::bf16, DType::i32, DType::i64, DType::u8}) {
    CHECK(tensor({}, {7}, dtype).item() == 7);
    CHECK(to_array(tensor({3}, {1, 2, 3}, dtype)).values == std::vector<double>{1, 2, 3});
  }
  CHECK(empty({0, 3}).to_vector<float>().empty());
  CHECK(std::string(name(DType::bf16)) == "bf16");

  Tensor moved = tensor({3}, {7, 8, 9});
  const Tensor handle = moved;
  moved.rebind(x.view({3}, 12));
  CHECK(handle.to_vector<float>() == std::vector<float>{4, 5, 6});
  check_error([&] { moved.rebind(x); }, {"[tensor]", "f32[3]", "f32[2, 3]"});
}

TEST_CASE("core: values that a tensor cannot hold and views that it cannot give are refused") {
  for (const double value : {std::nan(""), -1.0, 256.0}) {
    CHECK_THROWS_AS(full(Shape{2}, value, DType::u8), Error);
  }
  CHECK_THROWS_AS(full(Shape{2}, 0x1p31, DType::i32), Error);
  CHECK_THROWS_AS(full(Shape{2}, 0x1p63, DType::i64), Error);
  CHECK(full(Shape{1}, -0x1p63, DType::i64).item() == -0x1p63);
  CHECK(full(Shape{1}, 255.5, DType::u8).item() == 255);
  const Tensor x = full(Shape{4}, 1);
  CHECK_THROWS_AS(x.view(Shape{1}, 2), Error);
  CHECK_THROWS_AS(ops::reshape(x, {-1, -1}), Error);
  CHECK_THROWS_AS(cpu::set_num_threads(0), Error);
}

TEST_CASE("core: an output that is given is checked and written into") {
  const Tensor x = full({2, 3}, 2);
  const Tensor flat = full({8}, 0);
  const Tensor y = launch(OpId::neg, NoAttrs{}, {x}, flat.view({2, 3}, 4));
  CHECK(flat.to_vector<float>() == std::vector<float>{0, -2, -2, -2, -2, -2, -2, 0});
  check_error([&] { launch(OpId::neg, NoAttrs{}, {x}, flat); }, {"[neg]", "f32[2, 3]", "f32[8]"});
  check_error([&] { launch(OpId::neg, NoAttrs{}, {Tensor()}); }, {"[neg]", "none"});
}

TEST_CASE("core: what is written may not share memory with what is read") {
  const Tensor flat = tensor({6}, {1, 2, 3, 4, 5, 6});
  const Tensor first = flat.view({2, 2}, 0), next = flat.view({2, 2}, 8);
  check_error(
      [&] {
        launch(OpId::matmul, MatmulAttrs{}, {first, first}, first);
      },
      {"[matmul]", "apart", "f32[2, 2]"});
  check_error([&] { ops::accumulate_(first, next); }, {"[accumulate_]", "apart", "f32[2, 2]"});
  check_error([&] { ops::copy_(next, first); }, {"[copy_]", "apart"});
  check_error(
      [&] {
        ops::adam_step_(first, flat.view({2, 2}, 8), full({2, 2}, 0), first, {});
      },
      {"[adam_step_]", "apart"});
  CHECK(flat.to_vector<float>() == std::vector<float>{1, 2, 3, 4, 5, 6});
  ops::accumulate_(first, flat.view({2, 2}, 0));  // x += x is what it says
  CHECK(flat.to_vector<float>() == std::vector<float>{2, 4, 6, 8, 5, 6});
}

TEST_CASE("core: running out of memory says where and how much") {
  const int32_t module = intern_module_path(0, "core_test");
  const ContextScope in_module(&Context::module, module);
  const Tensor x = full({1}, 1);
  const int64_t huge = int64_t{1} << 55;
  const int64_t before = backend(kCpu).allocator().snapshot().total.allocated;
  try {
    ops::broadcast_to(x, {huge});
    FAIL("2^57 bytes were given");
  } catch (const OutOfMemoryError& error) {
    const std::string text = error.what();
    CHECK(text.rfind("[broadcast_to] in module core_test", 0) == 0);
    for (const char* part : {"requested 144115188075855872", "allocated", "reserved", "free"}) {
      CHECK_THAT(text, ContainsSubstring(part));
    }
  }
  CHECK(backend(kCpu).allocator().snapshot().total.allocated == before);
  CHECK(ops::neg(x).item() == -1);
  check_error([=] { empty({int64_t{1} << 61}); }, {"[", "bytes"});
  check_error([=] { empty({int64_t{1} << 62}); }, {"[empty]", "2^63"});
}

}  // namespace engine::test
