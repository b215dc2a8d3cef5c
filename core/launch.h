// The one door: every kernel of every device is entered through `launch`, so no op can run without
// being checked, counted, timed and, where a gradient will be needed, recorded.
#pragma once

#include <initializer_list>
#include <span>

#include "core/attrs.h"
#include "core/op.h"
#include "core/tensor.h"

namespace engine {

/// Runs an op. `outputs` has the op's number of outputs; one that is already defined must have the
/// right shape, dtype and device, and is written into (a gradient buffer, for example); the others
/// are made. Throws "[op] ..." before anything changes when the inputs do not fit.
void launch(OpId op, const Attrs& attrs, std::span<const Tensor> inputs, std::span<Tensor> outputs);

/// For ops with one output.
Tensor launch(OpId op, const Attrs& attrs, std::initializer_list<Tensor> inputs, Tensor out = {});

/// Checks that launch made for this thread, and kernels that it entered, since the program began:
/// what tests compare the profiler's events with.
struct LaunchCount {
  int64_t launches = 0;
  int64_t kernels = 0;
};
LaunchCount launch_count();

}  // namespace engine
