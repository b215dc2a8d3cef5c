// Convolutions by cuDNN, through its graph API. A build without cuDNN has no_cudnn.cpp instead,
// where no convolution has a plan.
#pragma once

#include <string>

#include "backends/cuda/im2col.h"
#include "core/backend.h"

namespace engine::cuda {

enum class ConvPass { forward, backward_data, backward_filter };

/// All that a plan depends on.
struct CudnnConv {
  ConvPass pass;
  ConvShape shape;
  DType dtype;         ///< of what is read
  DType out_dtype;     ///< of what is written: dtype, or f32
  uint32_t alignment;  ///< of x, w and y, in bytes
  auto operator<=>(const CudnnConv&) const = default;
};

struct CudnnPlan;

/// A plan and the workspace of its next run.
struct CudnnRun {
  const CudnnPlan* plan = nullptr;
  void* workspace = nullptr;
};

/// The plan for a convolution, kept for the process: the first in cuDNN's order that computes in
/// f32 without rounding what it reads, in the same order each time, and whose workspace is
/// acceptable and fits in what the device has left. The plan is null where there is none.
CudnnRun prepare_cudnn(Scratch& scratch, const CudnnConv& conv);

/// Reads two of x [N, H, W, C], w [K, R, S, C / groups] and y [N, P, Q, K] and writes the third.
void run_cudnn(const CudnnRun& run, void* x, void* w, void* y);

/// "cuDNN 9.12.0", or "no cuDNN".
std::string cudnn_version();

}  // namespace engine::cuda
