// Marks functions that CUDA kernels call too.
#pragma once

#if defined(__CUDACC__)
#define ENGINE_HOST_DEVICE __host__ __device__
#else
#define ENGINE_HOST_DEVICE
#endif
