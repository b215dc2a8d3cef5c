// Blocks one after the other, a block's threads as fibres. A fibre runs thread after thread for as
// long as none of them waits; one that does keeps the fibre, and another goes on with the next
// thread. So kernels without barriers never switch.
#include <ucontext.h>

#include <csignal>
#include <cstring>
#include <exception>
#include <memory>
#include <vector>

#include "backends/cuda/device.h"
#include "tests/software_device/software_device.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace engine::software_device {

namespace {

constexpr size_t kStack = 128 * 1024;

// Where a stack of calls goes on. swapcontext asks the system for each switch, which takes as long
// as a hundred switches like this one.
#if defined(__x86_64__)
using Place = void*;
extern "C" void engine_switch_stacks(Place* from, Place to);
asm(R"(
.text
.type engine_switch_stacks,@function
engine_switch_stacks:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");
void switch_stacks(Place& from, Place& to) { engine_switch_stacks(&from, to); }
void begin_at(Place& place, void (*run)(), std::byte* stack, size_t size) {
  auto* top = reinterpret_cast<void**>(reinterpret_cast<uintptr_t>(stack + size) / 16 * 16);
  top[-2] = reinterpret_cast<void*>(run);  // where ret goes; six registers lie below
  place = top - 8;
}
#else
using Place = ucontext_t;
void switch_stacks(Place& from, Place& to) { swapcontext(&from, &to); }
void begin_at(Place& place, void (*run)(), std::byte* stack, size_t size) {
  getcontext(&place);
  place.uc_stack.ss_sp = stack;
  place.uc_stack.ss_size = size;
  place.uc_link = nullptr;
  makecontext(&place, run, 0);
}
#endif

struct Fiber {
  Place place{};
  std::unique_ptr<std::byte[]> stack{new std::byte[kStack]};
};

enum class State : uint8_t { ready, at_barrier, at_exchange, done };

constexpr int kBallot = -1;

struct Thread {
  State state = State::ready;
  Fiber* fiber = nullptr;  // where it waits
  uint64_t sent = 0, received = 0;
  int source = 0;  // a lane, or kBallot
};

struct Block {
  const std::function<void()>* body = nullptr;
  std::vector<Thread> threads;
  size_t started = 0;
  size_t current = 0;
  std::exception_ptr error;
  Place scheduler{};
  Fiber* running = nullptr;
  std::vector<std::unique_ptr<Fiber>> fibers;  // all
  std::vector<Fiber*> idle;
  std::vector<std::byte> shared;
};
Block* block = nullptr;

void set_current(size_t i) {
  block->current = i;
  threadIdx.x = static_cast<unsigned>(i) % blockDim.x;
  threadIdx.y = static_cast<unsigned>(i) / blockDim.x % blockDim.y;
  threadIdx.z = static_cast<unsigned>(i) / blockDim.x / blockDim.y;
}

#if defined(__SANITIZE_ADDRESS__)
const void* scheduler_bottom = nullptr;
size_t scheduler_size = 0;
#endif

// From the scheduler into a fibre, until it comes back.
void enter(Fiber* fiber) {
  block->running = fiber;
#if defined(__SANITIZE_ADDRESS__)
  void* fake = nullptr;
  __sanitizer_start_switch_fiber(&fake, fiber->stack.get(), kStack);
#endif
  switch_stacks(block->scheduler, fiber->place);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
}

// From a fibre back to the scheduler.
void leave(Fiber* fiber) {
#if defined(__SANITIZE_ADDRESS__)
  void* fake = nullptr;
  __sanitizer_start_switch_fiber(&fake, scheduler_bottom, scheduler_size);
#endif
  switch_stacks(fiber->place, block->scheduler);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake, &scheduler_bottom, &scheduler_size);
#endif
}

// What a fibre does: threads, until there are no more to start.
void fiber_main() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &scheduler_bottom, &scheduler_size);
#endif
  for (;;) {
    Fiber* own = block->running;
    while (block->started < block->threads.size() && !block->error) {
      const size_t i = block->started++;
      set_current(i);
      try {
        (*block->body)();
      } catch (...) {
        block->error = std::current_exception();
      }
      block->threads[i].state = State::done;  // i: others may have run meanwhile
      if (block->running != own) own = block->running;
    }
    block->idle.push_back(own);
    leave(own);
  }
}

Fiber* fresh_fiber() {
  if (!block->idle.empty()) {
    Fiber* fiber = block->idle.back();
    block->idle.pop_back();
    return fiber;
  }
  auto fiber = std::make_unique<Fiber>();
  begin_at(fiber->place, fiber_main, fiber->stack.get(), kStack);
  block->fibers.push_back(std::move(fiber));
  return block->fibers.back().get();
}

// The current thread waits in `state`.
void wait(State state) {
  const size_t i = block->current;
  Thread& thread = block->threads[i];
  thread.state = state;
  thread.fiber = block->running;
  leave(thread.fiber);
  set_current(i);
}

// Threads [first, last) if all that are not done wait in `state` (at least one does).
bool all_wait(size_t first, size_t last, State state) {
  bool any = false;
  for (size_t i = first; i < last; ++i) {
    if (block->threads[i].state == State::done) continue;
    if (block->threads[i].state != state) return false;
    any = true;
  }
  return any;
}

// Lets go on who has nothing to wait for any more. False: nobody.
bool release() {
  bool any = false;
  std::vector<Thread>& threads = block->threads;
  for (size_t warp = 0; warp < threads.size(); warp += 32) {
    const size_t end = std::min(threads.size(), warp + 32);
    if (!all_wait(warp, end, State::at_exchange)) continue;
    uint64_t ballot = 0;
    for (size_t i = warp; i < end; ++i)
      if (threads[i].state != State::done) ballot |= (threads[i].sent & 1) << (i - warp);
    for (size_t i = warp; i < end; ++i) {
      if (threads[i].state == State::done) continue;
      if (threads[i].source == kBallot) {
        threads[i].received = ballot;
        continue;
      }
      const size_t from = warp + static_cast<size_t>(threads[i].source);
      if (from >= end || threads[from].state == State::done)
        fault(cudaErrorLaunchFailure, "a shuffle from a lane that does not take part");
      threads[i].received = threads[from].sent;
    }
    for (size_t i = warp; i < end; ++i)
      if (threads[i].state != State::done) threads[i].state = State::ready;
    any = true;
  }
  if (!any && all_wait(0, threads.size(), State::at_barrier)) {
    for (Thread& thread : threads)
      if (thread.state != State::done) thread.state = State::ready;
    any = true;
  }
  return any;
}

void run_block() {
  while (block->started < block->threads.size() && !block->error) enter(fresh_fiber());
  for (;;) {
    if (block->error) std::rethrow_exception(block->error);
    bool finished = true;
    for (const Thread& thread : block->threads) finished &= thread.state == State::done;
    if (finished) return;
    if (!release())
      fault(cudaErrorLaunchFailure, "threads of a block wait for each other at different places");
    for (Thread& thread : block->threads) {
      if (thread.state != State::ready || thread.fiber == nullptr) continue;
      Fiber* fiber = std::exchange(thread.fiber, nullptr);
      set_current(static_cast<size_t>(&thread - block->threads.data()));
      enter(fiber);
    }
  }
}

}  // namespace

void run_grid(dim3 grid, dim3 threads, size_t shared_bytes, const std::function<void()>& thread) {
  // Never gone: the process's last free() waits for what is still queued.
  static Block* const instance = new Block;
  block = instance;
  gridDim = grid;
  blockDim = threads;
  block->body = &thread;
  block->shared.resize(shared_bytes);
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) {
        blockIdx = {x, y, z};
        block->threads.assign(size_t{threads.x} * threads.y * threads.z, Thread{});
        block->started = 0;
        block->error = nullptr;
        std::memset(block->shared.data(), 0xff, block->shared.size());
        try {
          run_block();
        } catch (...) {  // the fibres of threads that still wait are given up
          block->idle.clear();
          block->fibers.clear();
          throw;
        }
      }
    }
  }
}

}  // namespace engine::software_device

using namespace engine::software_device;

void __syncthreads() { wait(State::at_barrier); }

namespace engine::cuda::software {

void* dynamic_shared() { return block->shared.data(); }

uint64_t exchange(uint64_t value, int source) {
  Thread& thread = block->threads[block->current];
  thread.sent = value;
  thread.source = source;
  const size_t i = block->current;
  wait(State::at_exchange);
  return block->threads[i].received;
}

uint32_t ballot(bool value) { return static_cast<uint32_t>(exchange(value ? 1 : 0, kBallot)); }

}  // namespace engine::cuda::software
