// The CPU device: oneDNN and Eigen for what they do well, OpenMP loops of our own for the rest.
#pragma once

#include <string>

namespace engine::cpu {

/// Makes Device{cpu} usable and sets the thread count to default_num_threads(). May be called
/// again.
void register_backend();

/// Threads that kernels use, from 1. Applies to the calling thread's kernels.
void set_num_threads(int threads);
int num_threads();
/// OMP_NUM_THREADS if it is set, else the CPUs that this process may use: its affinity, limited by
/// the cgroup's CPU quota.
int default_num_threads();

/// For a program's main: keeps threads from spinning for milliseconds at the end of a parallel
/// loop, which they do by default, and which makes a step a hundred times slower as soon as another
/// process wants one of the CPUs. libgomp reads the limit before main, so this sets GOMP_SPINCOUNT
/// and starts the program anew; it returns at once where that, or OMP_WAIT_POLICY, is set already.
void limit_spinning(char** argv);

/// "AMD EPYC, 2 threads, oneDNN 2.6.3 (avx512_core_bf16)".
std::string description();

}  // namespace engine::cpu
