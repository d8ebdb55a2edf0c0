// The operating system for the injected library: clocks, a lock, thread state, loaded objects,
// text. Threading: every function and SpinLock may be used from any thread; none allocates or
// throws.
#ifndef SEQPOINT_INJECTION_BASE_SYSTEM_H_
#define SEQPOINT_INJECTION_BASE_SYSTEM_H_

#include <link.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <atomic>

namespace seqpoint::inject {

uint64_t RealNs();       // CLOCK_REALTIME
uint64_t MonotonicNs();  // CLOCK_MONOTONIC
void SleepNs(long ns);   // less than a second

// A lock of one word for sections of well under a microsecond, zero-initialised, so that it needs
// no constructor and a forked child may simply forget it. One read-modify-write to take, a plain
// store to give back. Never held across a CUDA or CUPTI call: a thread that waits for the GPU must
// not keep others from launching the work that the GPU waits for.
class SpinLock {
 public:
  void Lock() {
    if (word_.exchange(1, std::memory_order_acquire) != 0) TryLock(UINT64_MAX);
  }
  // False: not had within `timeout_ns`.
  bool TryLock(uint64_t timeout_ns);
  void Unlock() { word_.store(0, std::memory_order_release); }

 private:
  std::atomic<uint32_t> word_{0};
};

class LockGuard {
 public:
  explicit LockGuard(SpinLock* lock) : lock_(lock) { lock_->Lock(); }
  ~LockGuard() { lock_->Unlock(); }
  LockGuard(const LockGuard&) = delete;
  LockGuard& operator=(const LockGuard&) = delete;

 private:
  SpinLock* lock_;
};

// A word that one thread waits on and others wake.
class WakeWord {
 public:
  void Wake();
  // Returns when woken since `seen` or after `timeout_ns`. Returns the new value to pass next time.
  uint32_t Wait(uint32_t seen, uint64_t timeout_ns);

 private:
  std::atomic<uint32_t> word_{0};
};

// Everything thread-local in one place: one address computation per callback.
struct ThreadState {
  uint32_t tid;
  uint32_t inside;         // our own CUDA and CUPTI calls on this thread are not the application's
  uint32_t capturing;      // stream captures begun on this thread and not ended
  bool helper;             // this is the helper thread
  uint32_t listed_launch;  // KernelRanges: the measurement that the launch under way is of; 0: none
};
// Plain data, so no constructor runs; initial-exec, so a first use in a callback allocates nothing.
extern __thread ThreadState t_state
    __attribute__((tls_model("initial-exec"), visibility("hidden")));
inline ThreadState* Thread() { return &t_state; }
uint32_t AskThreadId();  // gettid, remembered per thread
inline uint32_t ThreadId() { return t_state.tid != 0 ? t_state.tid : AskThreadId(); }

// Marks the calls of this scope as ours.
class InsideScope {
 public:
  InsideScope() : state_(Thread()) { ++state_->inside; }
  ~InsideScope() { --state_->inside; }
  InsideScope(const InsideScope&) = delete;
  InsideScope& operator=(const InsideScope&) = delete;

 private:
  ThreadState* state_;
};

inline const char* Basename(const char* path) {
  const char* slash = strrchr(path, '/');
  return slash == nullptr ? path : slash + 1;
}

// Shows the loaded objects to visit(info) until that returns true. Did it? The loader is locked
// meanwhile. A visit calls nothing that takes its other lock (dlsym, dladdr): a thread that loads
// an object takes that one first, and then waits for this one.
template <typename Visit>
bool AnyLoaded(const Visit& visit) {
  const auto call = [](dl_phdr_info* info, size_t, void* data) {
    return (*static_cast<const Visit*>(data))(*info) ? 1 : 0;
  };
  return dl_iterate_phdr(call, const_cast<Visit*>(&visit)) != 0;
}

// Appends to a text of `length` bytes; what does not fit is cut. The new length.
size_t FormatAt(char* bytes, size_t length, size_t capacity, const char* format, va_list arguments);

// Text of fixed capacity; what does not fit is cut.
template <size_t kCapacity>
class Text {
 public:
  __attribute__((format(printf, 2, 3))) void Append(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    length_ = FormatAt(bytes_, length_, kCapacity, format, arguments);
    va_end(arguments);
  }
  const char* c_str() const { return bytes_; }
  size_t size() const { return length_; }

 private:
  size_t length_ = 0;
  char bytes_[kCapacity] = {};
};

// Writes a line to where SEQPOINT_LOG says ("stderr" or a file); nothing when it is not set.
__attribute__((format(printf, 1, 2))) void Log(const char* format, ...);

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_BASE_SYSTEM_H_
