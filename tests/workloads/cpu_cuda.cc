#include "tests/workloads/cpu_cuda.h"

#include <setjmp.h>
#include <ucontext.h>

#include <memory>
#include <vector>

namespace seqpoint::workload {
namespace {

constexpr size_t kStackBytes = 64 * 1024;

struct Fiber {
  std::unique_ptr<char[]> stack{new char[kStackBytes]};
  jmp_buf state;
  Index3 thread;
  bool done = false;
};

std::vector<std::unique_ptr<Fiber>> g_fibers;
jmp_buf g_scheduler;
Fiber* g_current = nullptr;
const std::function<void()>* g_thread = nullptr;
int g_next_thread = 0;
int g_threads = 0;

// _setjmp and _longjmp: swapcontext would make two system calls for every switch.
void SwitchToScheduler(Fiber* fiber) {
  if (_setjmp(fiber->state) == 0) _longjmp(g_scheduler, 1);
}

void Resume(Fiber* fiber) {
  g_current = fiber;
  threadIdx = fiber->thread;
  if (_setjmp(g_scheduler) == 0) _longjmp(fiber->state, 1);
}

// A fiber runs threads to their end one after another; only a thread that waits at a barrier keeps
// its fiber, and the scheduler takes another for the threads not yet begun.
void FiberMain() {
  Fiber* fiber = g_current;
  for (;;) {
    SwitchToScheduler(fiber);
    while (g_next_thread < g_threads) {
      const int i = g_next_thread++;
      threadIdx = {i % blockDim.x, i / blockDim.x % blockDim.y, i / (blockDim.x * blockDim.y)};
      (*g_thread)();
    }
    fiber->done = true;
  }
}

void AddFiber() {
  g_fibers.push_back(std::make_unique<Fiber>());
  g_current = g_fibers.back().get();
  ucontext_t context;
  getcontext(&context);
  context.uc_stack.ss_sp = g_current->stack.get();
  context.uc_stack.ss_size = kStackBytes;
  context.uc_link = nullptr;
  makecontext(&context, FiberMain, 0);
  if (_setjmp(g_scheduler) == 0) setcontext(&context);
}

void RunBlock() {
  g_next_thread = 0;
  size_t used = 0;
  while (g_next_thread < g_threads) {
    if (used == g_fibers.size()) AddFiber();
    Fiber* fiber = g_fibers[used++].get();
    fiber->done = false;
    Resume(fiber);
  }
  // Every thread has reached the barrier or its end: release them, until all have ended.
  for (bool waiting = true; waiting;) {
    waiting = false;
    for (size_t i = 0; i < used; ++i) {
      if (g_fibers[i]->done) continue;
      Resume(g_fibers[i].get());
      waiting = waiting || !g_fibers[i]->done;
    }
  }
}

}  // namespace

void __syncthreads() {
  Fiber* fiber = g_current;
  fiber->thread = threadIdx;
  SwitchToScheduler(fiber);
}

void RunOnCpu(dim3 grid, dim3 block, const std::function<void()>& thread) {
  auto index = [](dim3 size) {
    return Index3{static_cast<int>(size.x), static_cast<int>(size.y), static_cast<int>(size.z)};
  };
  g_thread = &thread;
  gridDim = index(grid);
  blockDim = index(block);
  g_threads = blockDim.x * blockDim.y * blockDim.z;
  for (int z = 0; z < gridDim.z; ++z) {
    for (int y = 0; y < gridDim.y; ++y) {
      for (int x = 0; x < gridDim.x; ++x) {
        blockIdx = {x, y, z};
        RunBlock();
      }
    }
  }
}

}  // namespace seqpoint::workload
