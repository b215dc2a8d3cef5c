#include "tests/harness.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <set>

#include "backends/cpu/cpu_backend.h"
#include "core/backend.h"
#include "core/context.h"
#include "core/error.h"
#include "core/launch.h"
#include "core/op.h"
#include "tests/catch.h"
#include "tests/compare.h"
#include "tests/guarded.h"

namespace engine::test {

namespace {

// Before any test asks for a device, so that all of them run on the guarded ones.
const bool kRegistered = (register_guarded(), true);

using Bytes = std::vector<std::byte>;

Bytes contents_of(const Tensor& t) {
  Bytes bytes(t.bytes());
  backend(t.device()).synchronize();
  if (!bytes.empty()) backend(t.device()).copy_to_host(bytes.data(), t.raw(), bytes.size());
  return bytes;
}

constexpr char kTwin[] = ", in bf16";  // the end of a twin's name; its numbers are the case's own

constexpr int64_t kBesides = 3;  // elements of a flat gradient buffer before and after the gradient

struct Mode {
  bool fused = true;
  int passes = 1;             // forward and backward passes into the same leaves
  bool grad_buffers = false;  // leaves collect their gradients in buffers that hold NaN before
};

// What a run left: the output and the gradients of the differentiable inputs, in order.
struct Outcome {
  Tensor output;
  Tensors grads;

  std::vector<Bytes> bytes() const {
    std::vector<Bytes> all{contents_of(output)};
    for (const Tensor& grad : grads) all.push_back(contents_of(grad));
    return all;
  }
};

// A case on a device: its inputs, what is expected, and everything that is wrong.
class Check {
 public:
  Check(const OpCase& c, Device device) : case_(c), device_(device) {
    Numbers numbers(c.op + c.name.substr(0, c.name.rfind(kTwin)));
    for (const Input& input : c.inputs) {
      Array x(input.shape);
      x.values = input.fill(numbers, input.shape.numel());
      for (double& v : x.values) v = round_to(input.dtype, v);
      inputs_.push_back(std::move(x));
    }
    expected_ = c.reference(inputs_);
    upstream_ = Array(expected_.shape);
    for (double& u : upstream_.values) {
      // Odd multiples of 1/16: never 0, exact in every floating dtype.
      u = (static_cast<double>(2 * numbers.below(32) + 1) - 32) / 16;
    }
    for (const Input& input : c.inputs) {
      differentiable_ |= input.differentiable;
      in_bf16_ |= input.dtype == DType::bf16;
    }
  }

  std::vector<std::string> failures;

  void run_all() {
    compare_with_reference(Mode{}, "plain");
    if (!failures.empty()) return;  // what follows would only say it again
    events(true);
    if (op_has_parts()) {
      compare_with_reference(Mode{.fused = false}, "decomposed");
      events(false);
      compare_fused_with_parts();
    }
    if (differentiable_) {
      compare_with_reference(Mode{.passes = 2}, "two backward passes");
      compare_with_reference(Mode{.grad_buffers = true}, "given gradient buffers");
      if (op_has_parts()) {
        compare_with_reference(Mode{.fused = false, .passes = 2},
                               "decomposed, two backward passes");
      }
    }
    repeat();
    if (device_.kind == DeviceKind::cpu) threads();
    const GuardScope guards;
    compare_with_reference(Mode{}, "guarded");
    for (const std::string& violation : guards.violations()) failures.push_back(violation);
  }

  Recording record(bool fused) {
    Profiler profiler;
    {
      const ProfiledStep step(profiler, device_);
      run(Mode{.fused = fused});
    }
    return profiler.recording();
  }

 private:
  struct ProfiledStep {
    ProfiledStep(Profiler& p, Device d) : profiler(p), device(d) {
      profiler.begin_step(1, false, true);
    }
    ~ProfiledStep() {
      backend(device).synchronize();  // the times are known from there on
      profiler.end_step();
    }
    Profiler& profiler;
    Device device;
  };

  bool op_has_parts() const { return find_op(case_.op)->decompose != nullptr; }

  Outcome run(const Mode& mode) {
    const ContextScope fusion(&Context::fusion,
                              mode.fused ? FusionPolicy::on() : FusionPolicy::off());
    Tensors leaves, flat(inputs_.size());
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const Input& input = case_.inputs[i];
      leaves.push_back(tensor(input.shape, inputs_[i].values, input.dtype, device_));
      if (!input.differentiable) continue;
      leaves.back().set_requires_grad(true);
      if (!mode.grad_buffers) continue;
      // As in a flat buffer, at an odd place.
      flat[i] = full(Shape{input.shape.numel() + 2 * kBesides}, NAN, input.dtype, device_);
      leaves.back().set_grad_buffer(
          flat[i].view(input.shape, static_cast<size_t>(kBesides) * size_of(input.dtype)));
    }
    Outcome outcome;
    for (int pass = 0; pass < mode.passes; ++pass) {
      outcome.output = case_.call(leaves);
      if (!differentiable_ || !outcome.output.requires_grad()) continue;
      outcome.output.backward(
          tensor(outcome.output.shape(), upstream_.values, outcome.output.dtype(), device_));
    }
    for (size_t i = 0; i < leaves.size(); ++i) {
      if (!case_.inputs[i].differentiable) continue;
      const Tensor grad = leaves[i].grad();
      if (!grad.defined()) fail("gradient", "input {} has no gradient", i);
      if (mode.grad_buffers) check_buffer(flat[i], grad);
      outcome.grads.push_back(grad);
    }
    return outcome;
  }

  // The gradient is in the middle of the flat buffer, and what is beside it was left alone.
  static void check_buffer(const Tensor& flat, const Tensor& grad) {
    const auto offset = static_cast<std::byte*>(grad.raw()) - static_cast<std::byte*>(flat.raw());
    if (offset != kBesides * static_cast<int64_t>(size_of(grad.dtype()))) {
      fail("gradient", "{} is not in its buffer", describe(grad));
    }
    const std::vector<double> all = to_array(flat).values;
    for (size_t i = 0; i < static_cast<size_t>(kBesides); ++i) {
      if (!std::isnan(all[i]) || !std::isnan(all[all.size() - 1 - i])) {
        fail("gradient", "{} was written beside its buffer", describe(grad));
      }
    }
  }

  void compare_with_reference(const Mode& mode, const char* what) {
    Outcome outcome;
    try {
      outcome = run(mode);
    } catch (const Error& error) {
      failures.push_back(fmt::format("{}: threw {}", what, error.what()));
      return;
    }
    const Tolerance tolerance = output_tolerance(outcome.output.dtype());
    Array expected = expected_;
    for (double& v : expected.values) v = round_to(outcome.output.dtype(), v);
    note(what, "output", vacuous(expected, tolerance, case_.zero_output));
    note(what, "output", compare(to_array(outcome.output), expected, tolerance));
    size_t next = 0;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (!case_.inputs[i].differentiable) continue;
      const std::string which = fmt::format("gradient of input {}", i);
      compare_gradient(what, which, to_array(outcome.grads[next++]), i, mode.passes);
    }
  }

  void compare_gradient(const char* what, const std::string& which, const Array& got, size_t i,
                        int passes) {
    if (!(got.shape == inputs_[i].shape)) {
      failures.push_back(fmt::format("{}: {} has shape {}", what, which, to_string(got.shape)));
      return;
    }
    const Expectation& e = expectation(i);
    Array picked = e.values, expected = e.values;
    for (size_t k = 0; k < e.elements.size(); ++k) picked.values[k] = got[e.elements[k]];
    for (double& v : expected.values) v *= passes;
    Tolerance tolerance = e.tolerance;
    tolerance.absolute *= passes;
    note(what, which, vacuous(expected, tolerance, case_.zero_gradient, passes * e.noise));
    note(what, which, compare(picked, expected, tolerance));
  }

  Tolerance output_tolerance(DType dtype) const {
    // The smallest normal number besides: results below it may be flushed to 0.
    if (case_.ulps == 0) return {};
    const DType computes = dtype == DType::bf16 ? DType::f32 : dtype;
    Tolerance tolerance = of_sum(case_.ulps * epsilon(computes), case_.terms, case_.term);
    tolerance.absolute += 0x1p-126;
    // Of one op's own kernel only the output is rounded; parts round what they hand on.
    if (in_bf16_ && op_has_parts())
      add_roundings(tolerance, case_.bf16_roundings, expected_);
    else if (dtype == DType::bf16)
      tolerance.relative += case_.bf16_roundings * 0x1p-8;
    return tolerance;
  }

  // See OpCase::bf16_roundings.
  static void add_roundings(Tolerance& tolerance, double roundings, const Array& expected) {
    double squares = 0, count = 0;
    for (const double v : expected.values) {
      if (!std::isfinite(v)) continue;
      squares += v * v;
      ++count;
    }
    tolerance.relative += roundings * 0x1p-8;
    tolerance.absolute += roundings * 0x1p-8 * std::sqrt(squares / std::max(count, 1.0));
  }

  static Tolerance of_sum(double eps, double terms, double term) {
    const double grown = eps * std::max(1.0, std::sqrt(terms) / 4);
    return {grown, grown * term * std::sqrt(terms)};
  }

  // The expected gradient of an input, at some of its elements.
  struct Expectation {
    std::vector<int64_t> elements;
    Array values;
    Tolerance tolerance;
    double noise = 0;  // of the differences
  };

  const Expectation& expectation(size_t i) {
    if (const auto found = expectations_.find(i); found != expectations_.end())
      return found->second;
    Expectation e;
    const int64_t count = inputs_[i].shape.numel();
    const int64_t checked = case_.gradient ? count : std::min(count, affordable_differences());
    for (int64_t k = 0; k < checked; ++k) e.elements.push_back(k * count / checked);
    e.values = Array(checked == count ? inputs_[i].shape : Shape{checked});
    if (case_.gradient) {
      e.values.values = explicit_gradient(i).values;
    } else {
      for (int64_t k = 0; k < checked; ++k) {
        e.values[k] = difference(i, e.elements[static_cast<size_t>(k)]);
        e.noise = std::max(e.noise, 1e-9 * std::abs(e.values[k]));  // the step's curvature
      }
      // Rounding of the values that are subtracted, over the step's width.
      for (const double v : expected_.values)
        e.noise = std::max(e.noise, 1e-16 * std::abs(v) / 1e-5);
      e.noise *= 4;
    }
    // Elements of the output that one element of the input takes part in, times the terms of each.
    const double terms = std::max(case_.terms, 1.0) * static_cast<double>(expected_.shape.numel()) /
                         static_cast<double>(std::max<int64_t>(1, count));
    const double eps = std::max(4.0, 2 * case_.ulps) * epsilon(DType::f32);
    const bool sums = case_.terms > 0 || terms > 1;
    e.tolerance = of_sum(eps, sums ? terms : 0, 2 * case_.term);
    e.tolerance.absolute += e.noise;
    if (case_.inputs[i].dtype == DType::bf16)
      add_roundings(e.tolerance, 2 * case_.bf16_roundings, e.values);
    return expectations_.emplace(i, std::move(e)).first->second;
  }

  Array explicit_gradient(size_t i) const {
    const Arrays all = case_.gradient(inputs_, upstream_);
    size_t position = 0;
    for (size_t j = 0; j < i; ++j) position += case_.inputs[j].differentiable;
    return all[position];
  }

  // A difference runs the reference twice: large cases are checked at fewer elements.
  int64_t affordable_differences() const {
    double work = static_cast<double>(expected_.shape.numel()) * std::max(case_.terms, 1.0);
    for (const Array& x : inputs_) work += static_cast<double>(x.shape.numel());
    return std::clamp<int64_t>(static_cast<int64_t>(1e6 / (work + 1)), 12, 400);
  }

  // The derivative of sum(output * upstream) by one element of input i.
  double difference(size_t i, int64_t element) {
    double& x = inputs_[i][element];
    const double middle = x, step = 1e-5 * std::max(1.0, std::abs(middle));
    x = middle + step;
    const double right = x;
    const Array above = case_.reference(inputs_);
    x = middle - step;
    const double width = right - x;
    const Array below = case_.reference(inputs_);
    x = middle;
    double sum = 0;
    for (size_t k = 0; k < above.values.size(); ++k) {
      sum += upstream_.values[k] * (above.values[k] - below.values[k]);
    }
    return sum / width;
  }

  void compare_fused_with_parts() {
    const Outcome fused = run(Mode{}), parts = run(Mode{.fused = false});
    const auto twice = [](Tolerance t) { return Tolerance{2 * t.relative, 2 * t.absolute}; };
    note("fused against decomposed", "output",
         compare(to_array(fused.output), to_array(parts.output),
                 twice(output_tolerance(fused.output.dtype()))));
    size_t next = 0;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (!case_.inputs[i].differentiable) continue;
      note("fused against decomposed", fmt::format("gradient of input {}", i),
           compare(to_array(fused.grads[next]), to_array(parts.grads[next]),
                   twice(expectation(i).tolerance)));
      ++next;
    }
  }

  void repeat() {
    if (run(Mode{}).bytes() != run(Mode{}).bytes())
      failures.push_back("repeat: the second run differs in some bit");
  }

  void threads() {
    struct RestoreThreads {
      int count = cpu::num_threads();
      ~RestoreThreads() { cpu::set_num_threads(count); }
    } const restore;
    const auto compare_counts = [this](const char* what) {
      std::vector<Bytes> one;
      for (const int count : {1, 2, 3}) {
        cpu::set_num_threads(count);
        const std::vector<Bytes> result = run(Mode{}).bytes();
        if (count == 1)
          one = result;
        else if (result != one)
          failures.push_back(fmt::format("{}: {} threads differ from 1 in some bit", what, count));
      }
    };
    if (only_own_kernels_) compare_counts("threads");
    const ContextScope deterministic(&Context::deterministic, true);
    compare_counts("threads, deterministic");
  }

  // Rules about the profiler's events of one forward and backward pass.
  void events(bool fused) {
    const LaunchCount before = launch_count();
    const Recording recording = record(fused);
    const LaunchCount after = launch_count();
    int64_t launches = 0, kernels = 0;
    std::set<int64_t> has_backward;
    only_own_kernels_ = true;
    for (const Event& e : recording.events) {
      const bool of_walk = e.kind == EventKind::group && e.phase == Phase::backward;
      if (of_walk)
        has_backward.insert(e.forward_id);
      else
        ++launches;
      const std::string_view implementation = e.implementation;
      if (e.kind != EventKind::op || implementation == "view") continue;
      ++kernels;
      if (implementation.empty())
        failures.push_back(fmt::format("events: {} has no implementation", e.op));
      only_own_kernels_ &= implementation.starts_with("own");
    }
    if (launches != after.launches - before.launches || kernels != after.kernels - before.kernels) {
      failures.push_back(fmt::format(
          "events: {} of launches and {} of kernels for {} launches and {} kernels", launches,
          kernels, after.launches - before.launches, after.kernels - before.kernels));
    }
    for (const Event& e : recording.events) {
      const bool forward = e.kind == EventKind::op && e.phase != Phase::backward;
      if (differentiable_ && forward && find_op(e.op)->grad != nullptr &&
          !has_backward.contains(e.id)) {
        failures.push_back(fmt::format("events: {} has no backward event", e.op));
      }
    }
    if (op_has_parts()) check_variant(recording, fused);
  }

  void check_variant(const Recording& recording, bool fused) {
    const bool has_kernel = backend(device_).kernel(find_op(case_.op)->id) != nullptr;
    const Variant wanted = fused && has_kernel ? Variant::fused : Variant::decomposed;
    for (const Event& e : recording.events) {
      if (e.op == case_.op && e.phase != Phase::backward && e.variant != wanted) {
        failures.push_back(
            fmt::format("events: {} ran {}, expected {}", e.op, name(e.variant), name(wanted)));
      }
    }
  }

  void note(const char* what, const std::string& which, const std::string& wrong) {
    if (!wrong.empty()) failures.push_back(fmt::format("{}: {}: {}", what, which, wrong));
  }

  const OpCase& case_;
  Device device_;
  Arrays inputs_;
  Array expected_, upstream_;
  bool differentiable_ = false;
  bool in_bf16_ = false;
  bool only_own_kernels_ = false;
  std::map<size_t, Expectation> expectations_;
};

std::vector<std::vector<OpCase> (*)()>& case_files() {
  static std::vector<std::vector<OpCase> (*)()> files;
  return files;
}

template <class T>
Tensor tensor_of(const Shape& shape, const std::vector<double>& list, Device device) {
  std::vector<T> converted;
  for (const double v : list) {
    if constexpr (std::is_same_v<T, BFloat16>)
      converted.push_back(BFloat16(static_cast<float>(v)));
    else
      converted.push_back(static_cast<T>(v));
  }
  return from_host(shape, converted, device);
}

template <class T>
Array array_of(const Tensor& t) {
  Array result(t.shape());
  const std::vector<T> list = t.to_vector<T>();
  for (size_t i = 0; i < list.size(); ++i) {
    if constexpr (std::is_same_v<T, BFloat16>)
      result.values[i] = static_cast<double>(static_cast<float>(list[i]));
    else
      result.values[i] = static_cast<double>(list[i]);
  }
  return result;
}

}  // namespace

namespace {
std::vector<OpCase> with_twins(const std::vector<OpCase>& all) {
  std::vector<OpCase> result;
  for (const OpCase& c : all) {
    result.push_back(c);
    if (std::optional<OpCase> twin = in_bf16(c)) result.push_back(std::move(*twin));
  }
  return result;
}
}  // namespace

std::vector<Device> test_devices() {
  std::vector<Device> devices;
  const char* wanted = std::getenv("ENGINE_TEST_DEVICES");
  if (wanted == nullptr || std::string_view(wanted) != "cuda") devices.push_back(kCpu);
  if (has_backend(DeviceKind::cuda)) devices.push_back(Device{DeviceKind::cuda, 0});
  return devices;
}

std::vector<std::string> check_case(const OpCase& c, Device device) {
  Check check(c, device);
  check.run_all();
  return check.failures;
}

Recording record_case(const OpCase& c, Device device, bool fused) {
  return Check(c, device).record(fused);
}

std::optional<OpCase> in_bf16(const OpCase& c) {
  if (c.bf16_roundings == 0) return std::nullopt;
  OpCase twin = c;
  bool changed = false;
  for (Input& input : twin.inputs) {
    if (input.dtype == DType::bf16) return std::nullopt;
    if (input.dtype != DType::f32) continue;
    input.dtype = DType::bf16;
    changed = true;
  }
  if (!changed) return std::nullopt;
  twin.name += kTwin;
  return twin;
}

void run_cases(const std::vector<OpCase>& all) {
  for (const OpCase& c : with_twins(all)) {
    DYNAMIC_SECTION(c.name) {
      for (const Device device : test_devices()) {
        for (const std::string& failure : check_case(c, device)) {
          UNSCOPED_INFO(fmt::format("{} on {}: {}", c.op, to_string(device), failure));
          FAIL_CHECK(fmt::format("rerun: engine-tests \"{}\" -c \"{}\"",
                                 Catch::getResultCapture().getCurrentTestName(), c.name));
        }
        SUCCEED();
      }
    }
  }
}

CaseFile::CaseFile(std::vector<OpCase> (*make)()) { case_files().push_back(make); }

std::vector<OpCase> CaseFile::all() {
  std::vector<OpCase> cases;
  for (const auto make : case_files()) {
    for (OpCase& c : with_twins(make())) cases.push_back(std::move(c));
  }
  return cases;
}

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

void check_error(const std::function<void()>& f, const std::vector<std::string>& parts) {
  const std::string text = error_of(f);
  INFO("error: " << text);
  CHECK(text.rfind(parts[0], 0) == 0);
  for (const std::string& part : parts) CHECK_THAT(text, ContainsSubstring(part));
}

Tensor tensor(const Shape& shape, const std::vector<double>& list, DType dtype, Device device) {
  switch (dtype) {
    case DType::f32:
      return tensor_of<float>(shape, list, device);
    case DType::bf16:
      return tensor_of<BFloat16>(shape, list, device);
    case DType::i32:
      return tensor_of<int32_t>(shape, list, device);
    case DType::i64:
      return tensor_of<int64_t>(shape, list, device);
    case DType::u8:
      return tensor_of<uint8_t>(shape, list, device);
  }
  return {};
}

Array to_array(const Tensor& t) {
  switch (t.dtype()) {
    case DType::f32:
      return array_of<float>(t);
    case DType::bf16:
      return array_of<BFloat16>(t);
    case DType::i32:
      return array_of<int32_t>(t);
    case DType::i64:
      return array_of<int64_t>(t);
    case DType::u8:
      return array_of<uint8_t>(t);
  }
  return {};
}

}  // namespace engine::test
