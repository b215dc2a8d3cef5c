// In place of cudnn.cpp where cuDNN was not found: no convolution has a plan.
#include "backends/cuda/cudnn.h"

namespace engine::cuda {

const CudnnPlan* find_cudnn_plan(const char*, const CudnnConv&) { return nullptr; }
void run_cudnn_plan(KernelArgs&, const char*, const CudnnPlan&, void*, void*, void*) {}
std::string cudnn_version() { return "no cuDNN"; }

}  // namespace engine::cuda
