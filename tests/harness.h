// The op test harness: one OpCase describes a call, and everything that is checked about it
// follows.
//
// check_case() runs, on one device,
//  - forward: against the naive reference in double (tests/reference/);
//  - gradient: of every differentiable input, against central differences of the reference in
//  double,
//    with a non-uniform upstream gradient; also added up over two backward passes, and written into
//    a given gradient buffer that holds NaN before;
//  - fused: the same with FusionPolicy::off where a fused op is called, and off against on;
//  - repeat: bitwise the same a second time;
//  - threads (CPU): bitwise the same for 1, 2 and 3 threads, with context().deterministic for all
//    kernels, and without it for our own;
//  - guard bytes: see guarded.h;
//  - events: as many as launches, one with an implementation for every kernel, and for every
//    differentiable forward op a backward event that belongs to it.
// Each case whose floating inputs are f32 has a twin in bf16: the same values rounded to bf16, the
// same reference, and tolerances as in_bf16() says.
// A case that could not fail is itself a failure: a reference or gradient of mostly zeros, or
// values that lie within the tolerance of each other.
//
// A failing case prints the line that runs it alone, such as
//   engine-tests "op conv2d" -c "groups 3, stride 4x1"
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "core/ops.h"
#include "profiler/profiler.h"
#include "tests/reference/reference.h"

namespace engine::test {

using reference::Array;
using reference::Arrays;
using Tensors = std::vector<Tensor>;

/// Numbers for a case's inputs, the same on every machine.
class Numbers {
 public:
  explicit Numbers(const std::string& seed);
  double uniform(double low, double high);
  int64_t below(int64_t limit);

 private:
  std::mt19937_64 engine_;
};

/// One input: how to make its values (which are then rounded to its dtype), and whether its
/// gradient is checked.
struct Input {
  Shape shape;
  std::function<std::vector<double>(Numbers&, int64_t count)> fill;
  DType dtype = DType::f32;
  bool differentiable = true;

  Input no_grad() const;
  Input as(DType other) const;
};

Input uniform(const Shape& shape, double low = -1, double high = 1);
Input values(const Shape& shape, std::vector<double> list);
Input constant(const Shape& shape, double value);
/// All different, each at least `gap` from the others and half of it from 0, in random order; about
/// `positive` of them above 0. For functions with kinks.
Input apart(const Shape& shape, double gap = 0.01, double positive = 0.5);
/// Whole numbers in [0, limit), i64, without gradient.
Input below(const Shape& shape, int64_t limit);
/// i64, without gradient.
Input labels(std::vector<double> list);

struct OpCase {
  std::string op;    ///< the op that the case is about
  std::string name;  ///< unique in its file
  std::vector<Input> inputs;
  std::function<Tensor(const Tensors&)> call;
  std::function<Array(const Arrays&)> reference;

  /// Allowed: ulps * eps(dtype) * max(1, sqrt(terms) / 4) * (|expected| + term * sqrt(terms)),
  /// where `terms` of magnitude `term` are added up for one element of the output (0: none):
  /// rounding errors add up as in a random walk, each in proportion to the sum so far. 0 ulps:
  /// equal to the last bit of the output's dtype. Gradients: twice the ulps, at least 4, and as
  /// many terms as the shapes say.
  double ulps = 4;
  double terms = 0;
  double term = 1;

  /// The bf16 twin: how often a result is rounded to bf16 on the way to the output; on the way to
  /// a gradient twice as often. Allowed besides the above, which has the epsilon of f32 as sums
  /// accumulate in f32 or better: roundings * 2^-8 * |expected|, and for gradients and for ops made
  /// of parts as much again of the root mean square of all expected values. 0: no twin.
  double bf16_roundings = 2;

  bool zero_output = false;    ///< mostly zeros are the point
  bool zero_gradient = false;  ///< likewise, of some gradient
  /// Where differences of the reference do not exist (NaN, ties): the gradients of the
  /// differentiable inputs, from the inputs and the upstream gradient.
  std::function<Arrays(const Arrays&, const Array& upstream)> gradient = nullptr;

  OpCase with_ulps(double u) const {
    OpCase c = *this;
    c.ulps = u;
    return c;
  }
  OpCase with_terms(double n, double magnitude = 1) const {
    OpCase c = *this;
    c.terms = n;
    c.term = magnitude;
    return c;
  }
  OpCase with_bf16_roundings(double n) const {
    OpCase c = *this;
    c.bf16_roundings = n;
    return c;
  }
  OpCase with_zero_output() const {
    OpCase c = *this;
    c.zero_output = c.zero_gradient = true;
    return c;
  }
  OpCase with_zero_gradient() const {
    OpCase c = *this;
    c.zero_gradient = true;
    return c;
  }
  OpCase with_gradient(std::function<Arrays(const Arrays&, const Array&)> g) const {
    OpCase c = *this;
    c.gradient = std::move(g);
    return c;
  }
};

/// The case with no input that wants a gradient.
OpCase without_gradient(OpCase c);

/// The case's twin in bf16, if it has one.
std::optional<OpCase> in_bf16(const OpCase& c);

/// The devices to test: the CPU always, CUDA where the build and the machine have it.
std::vector<Device> test_devices();

/// Everything listed above; one line for each thing that is wrong.
std::vector<std::string> check_case(const OpCase& c, Device device);
/// Runs the cases on all devices as sections of the running test case.
void run_cases(const std::vector<OpCase>& cases);

/// A file of cases, for the tests about all ops. One static object in each file.
struct CaseFile {
  explicit CaseFile(std::vector<OpCase> (*make)());
  static std::vector<OpCase> all();
};

/// The events of the case's forward pass and, where an input is differentiable, its backward pass.
Recording record_case(const OpCase& c, Device device, bool fused);

/// What `f` throws as engine::Error; empty when it throws none.
std::string error_of(const std::function<void()>& f);
/// Expects an engine::Error whose text has all the parts; the first, "[op]", at its beginning.
void check_error(const std::function<void()>& f, const std::vector<std::string>& parts);

/// A tensor of these values, as f32 unless said.
Tensor tensor(const Shape& shape, const std::vector<double>& list, DType dtype = DType::f32,
              Device device = kCpu);
/// The values of a tensor of any dtype.
Array to_array(const Tensor& t);

}  // namespace engine::test
