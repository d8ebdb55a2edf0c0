#include "injection/guest.h"

#include <new>

namespace seqpoint::inject {
namespace {

// With the ring's 15.6 MiB well under the 64 MiB that the library may take. Pages that are never
// used cost nothing.
constexpr size_t kPoolBytes = 26 << 20;

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
  guest->features.Init(&guest->ring);
  if (!guest->names.Init(&guest->pool, &guest->ring)) return nullptr;
  if (!guest->graphs.Init(&guest->pool, &guest->names)) return nullptr;
  __atomic_store_n(&g_guest, guest, __ATOMIC_RELEASE);
  return guest;
}

void Guest::AddContext(CUcontext context) {
  LockGuard guard(&contexts_lock_);
  for (int i = 0; i < context_count_; ++i) {
    if (contexts_[i] == context) return;
  }
  if (context != nullptr && context_count_ < kMaxContexts) contexts_[context_count_++] = context;
}

void Guest::RemoveContext(CUcontext context) {
  LockGuard guard(&contexts_lock_);
  for (int i = 0; i < context_count_; ++i) {
    if (contexts_[i] != context) continue;
    for (int j = i + 1; j < context_count_; ++j) contexts_[j - 1] = contexts_[j];
    --context_count_;
    return;
  }
}

CUcontext Guest::AnyContext() {
  LockGuard guard(&contexts_lock_);
  return context_count_ > 0 ? contexts_[0] : nullptr;
}

CUcontext Guest::ContextOf(CUcontext context) {
  if (context != nullptr) return context;
  CUcontext current = nullptr;
  if (driver.CtxGetCurrent != nullptr) {
    InsideScope inside;
    if (driver.CtxGetCurrent(&current) == CUDA_SUCCESS && current != nullptr) return current;
  }
  return AnyContext();
}

}  // namespace seqpoint::inject
