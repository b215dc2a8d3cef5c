// What must hold for the list of all ops: a case, a gradient case and a way to run for each; and
// what must hold for the harness itself: a wrong kernel, a wrong gradient and a case that says
// nothing are seen. An op counts as covered where a checked case launched it: a backward op's
// results are compared with differences of the reference through the gradients of its forward op.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>
#include <utility>

#include "core/autograd.h"
#include "core/backend.h"
#include "core/error.h"
#include "core/launch.h"
#include "core/op.h"
#include "tests/catch.h"
#include "tests/compare.h"
#include "tests/guarded.h"
#include "tests/harness.h"

namespace engine::test {
namespace {

struct Coverage {
  std::map<std::string, std::map<std::string, int>> cases;  // op -> "cpu f32" -> cases
  std::map<std::string, int> gradients;                     // op -> cases with its gradient
};

std::string dtype_of_event(const Recording& recording, const Event& e) {
  std::string first = "f32";  // a group has no tensors: its parts say
  bool any = false;
  for (const ShapeList& list : {e.inputs, e.outputs}) {
    auto at = static_cast<size_t>(list.offset);  // of each tensor: dtype, rank, sizes
    for (int i = 0; i < list.tensors; ++i) {
      const auto dtype = static_cast<DType>(recording.shape_pool[at]);
      if (dtype == DType::bf16) return "bf16";  // statistics and losses beside it are f32
      if (!std::exchange(any, true)) first = name(dtype);
      at += 2 + static_cast<size_t>(recording.shape_pool[at + 1]);
    }
  }
  return first;
}

const Coverage& coverage() {
  static const Coverage instance = [] {
    Coverage found;
    for (const OpCase& c : CaseFile::all()) {
      for (const Device device : test_devices()) {
        std::set<std::string> seen, seen_gradients;
        for (const bool fused : {true, false}) {
          if (!fused && find_op(c.op)->decompose == nullptr) continue;
          Recording recording;
          try {
            recording = record_case(c, device, fused);
          } catch (const Error&) {
            continue;  // covers nothing; its own test says why
          }
          for (const Event& e : recording.events) {
            const bool of_walk = e.kind == EventKind::group && e.phase == Phase::backward;
            if (of_walk)
              seen_gradients.insert(recording.events[static_cast<size_t>(e.forward_id - 1)].op);
            else if (seen.insert(e.op).second) {
              ++found.cases[e.op]
                           [fmt::format("{} {}", to_string(device), dtype_of_event(recording, e))];
            }
          }
        }
        for (const std::string& op : seen_gradients) ++found.gradients[op];
      }
    }
    return found;
  }();
  return instance;
}

template <class F>
void for_each_op(F f) {
  for (int i = 0; i < kOps; ++i) f(op(static_cast<OpId>(i)));
}

OpCase scaled(const std::string& what, std::function<Tensor(const Tensor&)> call) {
  return OpCase{
      .op = "scale",
      .name = what,
      .inputs = {uniform({3, 4})},
      .call = [call = std::move(call)](const Tensors& t) { return call(t[0]); },
      .reference =
          [](const Arrays& a) { return reference::map(a[0], [](double x) { return 2 * x; }); },
      .ulps = 1};
}

bool mentions(const std::vector<std::string>& failures, const std::string& part) {
  return std::any_of(failures.begin(), failures.end(),
                     [&](const std::string& f) { return f.find(part) != std::string::npos; });
}

}  // namespace

TEST_CASE("ops all have a case, a gradient case and a way to run") {
  for_each_op([](const Op& o) {
    CAPTURE(o.name);
    CHECK(coverage().cases.contains(o.name));
    if (o.grad != nullptr) CHECK(coverage().gradients.contains(o.name));
    for (const Device device : test_devices()) {
      CHECK((backend(device).kernel(o.id) != nullptr || o.decompose != nullptr || o.view));
    }
  });
}

TEST_CASE("ops all have unique case names") {
  std::set<std::string> names;
  for (const OpCase& c : CaseFile::all()) {
    CAPTURE(c.op, c.name);
    CHECK(names.insert(c.op + "/" + c.name).second);
    CHECK(find_op(c.op) != nullptr);
  }
}

TEST_CASE("ops name themselves where an input is undefined") {
  std::set<std::string> seen;
  for (const OpCase& c : CaseFile::all()) {
    // The calls of ops that work in place copy what they are given: infer speaks for those.
    if (find_op(c.op)->mutated != 0 || !seen.insert(c.op).second) continue;
    Tensors inputs;
    for (const Input& input : c.inputs) inputs.push_back(full(input.shape, 0, input.dtype));
    inputs[0] = {};
    const std::string error = error_of([&] { c.call(inputs); });
    CAPTURE(c.name, error);
    // slice_rows is called through slice, concat through stack, broadcast_to through repeat.
    const bool by_another = c.op == "slice_rows" || c.op == "concat" || c.op == "broadcast_to";
    if (!by_another) CHECK(error.starts_with("[" + c.op + "]"));
    CHECK(!error.starts_with("[tensor]"));
    const bool says = error.find("defined") != std::string::npos || c.op == "concat";
    CHECK(says);
  }
  const Tensor x = full({2}, 1);
  check_error([&] { ops::fill_({}, 1); }, {"[fill_]", "defined"});
  check_error([&] { ops::copy_({}, x); }, {"[copy_]", "defined"});
  check_error([&] { ops::accumulate_(x, {}); }, {"[accumulate_]", "defined"});
  check_error([&] { ops::sgd_step_({}, x, {}, {}); }, {"[sgd_step_]", "defined"});
  check_error([&] { ops::adam_step_(x, x, {}, x, {}); }, {"[adam_step_]", "defined"});
}

TEST_CASE("ops support table") {
  std::set<std::string> columns;
  for (const auto& [op, counts] : coverage().cases) {
    for (const auto& [column, count] : counts) columns.insert(column);
  }
  std::string table = fmt::format("{:<24}", "cases that run");
  for (const std::string& column : columns) table += fmt::format("{:>13}", column);
  table += fmt::format("{:>10}\n", "gradient");
  for_each_op([&](const Op& o) {
    table += fmt::format("{:<24}", o.name);
    const auto row = coverage().cases.find(o.name);
    for (const std::string& column : columns) {
      const bool any = row != coverage().cases.end() && row->second.contains(column);
      table += fmt::format("{:>13}", any ? std::to_string(row->second.at(column)) : "-");
    }
    const auto gradient = coverage().gradients.find(o.name);
    const bool any = gradient != coverage().gradients.end();
    table += fmt::format("{:>10}\n", any ? std::to_string(gradient->second) : "-");
  });
  if (!has_backend(DeviceKind::cuda))
    table += "CUDA is not tested: this build or machine has none\n";
  std::fputs(table.c_str(), stdout);
  SUCCEED();
}

TEST_CASE("harness sees a wrong value") {
  CHECK(
      check_case(scaled("right", [](const Tensor& x) { return ops::scale(x, 2); }), kCpu).empty());
  const auto wrong = [](const Tensor& x) { return ops::scale(x, 2.00001); };
  CHECK(mentions(check_case(scaled("wrong", wrong), kCpu), "output: 12 of 12 elements wrong"));
  const auto nan = [](const Tensor& x) { return ops::shift(ops::scale(x, 2), NAN); };
  CHECK(mentions(check_case(scaled("nan", nan), kCpu), "output: 12 of 12 elements wrong"));
  const auto one = [](const Tensor& x) {
    const Tensor y = ops::scale(x, 2);
    y.data<float>()[7] += 0.001f;
    return y;
  };
  CHECK(mentions(check_case(scaled("one element", one), kCpu),
                 "output: 1 of 12 elements wrong; element 7"));
  const auto transposed = [](const Tensor& x) { return ops::transpose(ops::scale(x, 2), 0, 1); };
  CHECK(mentions(check_case(scaled("shape", transposed), kCpu), "shape [4, 3] instead of [3, 4]"));
}

TEST_CASE("harness sees a wrong gradient") {
  // Right values, and a path that the gradient does not see, or sees twice.
  const auto half = [](const Tensor& x) { return ops::add(x, x.detach()); };
  CHECK(mentions(check_case(scaled("half a gradient", half), kCpu),
                 "gradient of input 0: 12 of 12 elements wrong"));
  const auto none = [](const Tensor& x) { return ops::scale(x.detach(), 2); };
  CHECK(mentions(check_case(scaled("no gradient", none), kCpu), "input 0 has no gradient"));
  OpCase sum = scaled("gradient by hand", [](const Tensor& x) { return ops::scale(x, 2); });
  sum.gradient = [](const Arrays&, const Array& upstream) {
    return Arrays{reference::map(upstream, [](double u) { return 2 * u + (u > 0 ? 1e-5 : 0); })};
  };
  CHECK(mentions(check_case(sum, kCpu), "gradient of input 0"));
}

TEST_CASE("harness sees a result that changes") {
  int calls = 0;
  const auto drifting = [&calls](const Tensor& x) {
    const Tensor y = ops::scale(x, 2);
    if (++calls % 2 == 0) y.data<float>()[0] = std::nextafter(y.data<float>()[0], 10.f);
    return y;
  };
  CHECK(mentions(check_case(scaled("drifting", drifting), kCpu), "repeat"));
}

TEST_CASE("harness sees a case that says nothing") {
  const auto relu_of = [](double low, double high) {
    OpCase c = scaled("zeros", ops::relu);
    c.op = "relu";
    c.inputs = {uniform({3, 4}, low, high)};
    c.reference = [](const Arrays& a) { return reference::map(a[0], reference::relu); };
    return c;
  };
  CHECK(mentions(check_case(relu_of(-2, -1), kCpu), "12 of 12 expected values are 0"));
  CHECK(check_case(relu_of(1, 2), kCpu).empty());
  CHECK(mentions(
      check_case(scaled("loose", [](const Tensor& x) { return ops::scale(x, 2); }).with_ulps(1e8),
                 kCpu),
      "says nothing: a tolerance"));
  OpCase flat =
      scaled("values within the tolerance", [](const Tensor& x) { return ops::scale(x, 2); });
  flat.inputs = {uniform({12}, 1e6, 1e6 + 1)};
  CHECK(mentions(check_case(flat.with_ulps(100), kCpu), "says nothing: a tolerance"));
}

TEST_CASE("harness compares as the rules say") {
  const auto list = [](std::vector<double> v) {
    Array a(Shape{static_cast<int64_t>(v.size())});
    a.values = std::move(v);
    return a;
  };
  const auto equal = [&](double got, double expected, Tolerance t) {
    return compare(list({got}), list({expected}), t).empty();
  };
  const Tolerance loose{1, 1};
  CHECK_FALSE(equal(NAN, 1, loose));
  CHECK_FALSE(equal(1, NAN, loose));
  CHECK(equal(NAN, NAN, {}));
  CHECK(equal(INFINITY, INFINITY, {}));
  CHECK_FALSE(equal(-INFINITY, INFINITY, loose));
  CHECK_FALSE(equal(1e38, INFINITY, loose));
  CHECK_FALSE(equal(INFINITY, 1e38, loose));
  CHECK(equal(0, -0.0, {}));
  CHECK_FALSE(equal(1e-30, 0, {1, 0}));
  CHECK(equal(1.5, 1, {0.5, 0}));
  CHECK_FALSE(equal(1.5, 1, {0.25, 0.2}));
  CHECK(equal(1.5, 1, {0.25, 0.25}));
}

TEST_CASE("harness sees what a kernel must not do") {
  const auto violations = [](Kernel kernel) {
    const Tensor inputs[] = {full({5}, 1)};
    Tensor outputs[] = {full({5}, 0)};
    Scratch scratch(backend(kCpu).allocator());
    const Attrs attrs;
    KernelArgs args{inputs, outputs, attrs, scratch};
    const GuardScope guards;
    run_guarded(op(OpId::neg), kernel, args);
    std::vector<std::string> seen = guards.violations();
    for (const float v : outputs[0].to_vector<float>()) {
      if (std::isnan(v)) seen.push_back("NaN");
    }
    return seen;
  };
  using List = std::vector<std::string>;
  CHECK(violations(backend(kCpu).kernel(OpId::neg)).empty());
  CHECK(violations([](KernelArgs& args) { std::fill_n(args.outputs[0].data<float>(), 6, 1.f); }) ==
        List{"neg wrote 4 bytes past the end of output 0"});
  CHECK(violations([](KernelArgs& args) {
          std::fill_n(args.outputs[0].data<float>() - 2, 7, 1.f);
        }) == List{"neg wrote 8 bytes before output 0"});
  CHECK(violations([](KernelArgs& args) {
          std::fill_n(args.outputs[0].data<float>(), 5, 1.f);
          args.inputs[0].data<float>()[0] = 3;
        }) == List{"neg changed input 0"});
  CHECK(violations([](KernelArgs& args) { std::fill_n(args.outputs[0].data<float>(), 4, 1.f); }) ==
        List{"NaN"});
  // A read past the end of an input shows in what is computed from it.
  CHECK(violations([](KernelArgs& args) {
          std::fill_n(args.outputs[0].data<float>(), 5, args.inputs[0].data<float>()[5]);
        }) == List(5, "NaN"));
}

TEST_CASE("harness fills fresh memory with NaN") {
  const Tensor fresh = empty({3, 1000003});
  CHECK(std::isnan(fresh.to_vector<float>()[2500000]));
}

}  // namespace engine::test
