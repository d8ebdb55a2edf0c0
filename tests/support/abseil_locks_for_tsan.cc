// ThreadSanitizer does not see the locks of a distribution's Abseil, which is compiled without it,
// and takes what they guard for races. These functions stand before Abseil's own and tell it.
#include <dlfcn.h>
#include <sanitizer/tsan_interface.h>

#include <cstdio>
#include <cstdlib>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"

extern "C" {  // of ThreadSanitizer's runtime
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
}

namespace {

// Abseil asks the conditions of other threads that wait while it holds the lock.
class IgnoredReads {
 public:
  IgnoredReads() { AnnotateIgnoreReadsBegin(__FILE__, __LINE__); }
  ~IgnoredReads() { AnnotateIgnoreReadsEnd(__FILE__, __LINE__); }
};

// The function of Abseil's shared library; the symbols are those of Debian 12's.
template <typename Function>
Function* Next(const char* symbol) {
  void* function = dlsym(RTLD_NEXT, symbol);
  if (function == nullptr) {
    std::fprintf(stderr, "abseil_locks_for_tsan: no %s in Abseil's library: %s\n", symbol,
                 dlerror());
    std::abort();
  }
  return reinterpret_cast<Function*>(function);
}

}  // namespace

namespace absl {
ABSL_NAMESPACE_BEGIN

void Mutex::Lock() {
  static auto* const next = Next<void(Mutex*)>("_ZN4absl7debian35Mutex4LockEv");
  next(this);
  __tsan_acquire(this);
}

void Mutex::Unlock() {
  static auto* const next = Next<void(Mutex*)>("_ZN4absl7debian35Mutex6UnlockEv");
  __tsan_release(this);
  const IgnoredReads ignored;
  next(this);
}

void Mutex::Await(const Condition& condition) {
  static auto* const next =
      Next<void(Mutex*, const Condition&)>("_ZN4absl7debian35Mutex5AwaitERKNS0_9ConditionE");
  __tsan_release(this);
  {
    const IgnoredReads ignored;
    next(this, condition);
  }
  __tsan_acquire(this);
}

bool Mutex::AwaitWithTimeout(const Condition& condition, Duration timeout) {
  static auto* const next = Next<bool(Mutex*, const Condition&, Duration)>(
      "_ZN4absl7debian35Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE");
  __tsan_release(this);
  const bool met = [&] {
    const IgnoredReads ignored;
    return next(this, condition, timeout);
  }();
  __tsan_acquire(this);
  return met;
}

void Notification::Notify() {
  static auto* const next = Next<void(Notification*)>("_ZN4absl7debian312Notification6NotifyEv");
  __tsan_release(this);
  next(this);
}

void Notification::WaitForNotification() const {
  static auto* const next =
      Next<void(const Notification*)>("_ZNK4absl7debian312Notification19WaitForNotificationEv");
  next(this);
  __tsan_acquire(const_cast<Notification*>(this));
}

ABSL_NAMESPACE_END
}  // namespace absl
