// In place of the CUDA backend where the toolkit was not found, or was not wanted.
#include "backends/cuda/cuda_backend.h"

namespace engine::cuda {

bool register_backend() { return false; }
std::unique_ptr<Backend> make_backend() { return nullptr; }
std::string unavailable() { return "this build has no CUDA backend"; }
std::string description() { return "no CUDA"; }
bool has_times() { return false; }

}  // namespace engine::cuda
