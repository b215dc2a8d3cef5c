// In place of cudnn.cpp where cuDNN was not found: no convolution has a plan.
#include "backends/cuda/cudnn.h"

namespace engine::cuda {

CudnnRun prepare_cudnn(Scratch&, const CudnnConv&) { return {}; }
void run_cudnn(const CudnnRun&, void*, void*, void*) {}
std::string cudnn_version() { return "no cuDNN"; }

}  // namespace engine::cuda
