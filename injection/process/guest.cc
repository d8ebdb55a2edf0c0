#include "injection/process/guest.h"

#include <sys/mman.h>

#include <new>

// There where the program runs under LeakSanitizer.
extern "C" __attribute__((weak)) void RegisterLeakRoots(const void* base, size_t bytes) __asm__(
    "__lsan_register_root_region");

namespace seqpoint::inject {
namespace {

// With the ring's 15.6 MiB and at most 31.5 MiB of activity buffers under the 64 MiB that the
// library may take.
static_assert(sizeof(Guest) <= 10 << 20);

SpinLock g_making;

}  // namespace

Guest* g_guest = nullptr;

Guest* EnsureGuest() {
  // NVTX may call on one thread while another is inside cuInit.
  LockGuard guard(&g_making);
  if (g_guest != nullptr) return g_guest;
  void* memory = mmap(nullptr, sizeof(Guest), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  // Only this memory refers to objects that CUPTI made for us; they are no leak.
  if (RegisterLeakRoots != nullptr) RegisterLeakRoots(memory, sizeof(Guest));
  // Without (), which would write zeros to all of its pages.
  __atomic_store_n(&g_guest, new (memory) Guest, __ATOMIC_RELEASE);
  return g_guest;
}

void Guest::Stop() {
  constexpr uint64_t kPatienceNs = 100'000'000;
  state.watched.store(0, std::memory_order_relaxed);
  // A program may call exit() in a signal handler that interrupted this very thread while it held
  // the lock; the process must end all the same.
  if (!state.lock.TryLock(kPatienceNs)) return;
  token.Stop();
  if (window.open() && !token.taken()) {
    window.Abort();
    borders.ReportFailure(abi::kCountersAborted);
  }
  state.lock.Unlock();
}

}  // namespace seqpoint::inject
