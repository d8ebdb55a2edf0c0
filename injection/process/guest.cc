#include "injection/process/guest.h"

#include <new>

namespace seqpoint::inject {
namespace {

// With the ring's 15.6 MiB and at most 31.5 MiB of activity buffers under the 64 MiB that the
// library may take. Pages that are never used cost nothing.
constexpr size_t kPoolBytes = 10 << 20;

SpinLock g_making;

}  // namespace

Guest* g_guest = nullptr;

Guest* EnsureGuest() {
  // NVTX may call on one thread while another is inside cuInit.
  LockGuard guard(&g_making);
  if (g_guest != nullptr) return g_guest;
  Pool pool;
  if (!pool.Create(kPoolBytes)) return nullptr;
  Guest* guest = new (pool.Take(sizeof(Guest))) Guest();
  guest->pool = pool;
  if (!guest->names.Init(&guest->pool, &guest->ring)) return nullptr;
  if (!guest->graphs.Init(&guest->pool, &guest->names)) return nullptr;
  __atomic_store_n(&g_guest, guest, __ATOMIC_RELEASE);
  return guest;
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
