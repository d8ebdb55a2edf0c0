// Notices calls of CUPTI that do not return. Nothing can be done for a thread that waits in one,
// but a message that names the call is worth a day of looking for it.
//
//   CallWatch::Scope watch(call_watch, "cuptiActivityFlushAll");
//   cupti->ActivityFlushAll(0);
//
// The helper thread looks at what the program's threads wait for, and the thread that meets a
// boundary at what the helper thread waits for.
// Threading: any thread. Cost: two atomic stores a call that is watched.
#ifndef SEQPOINT_INJECTION_CUPTI_CALL_WATCH_H_
#define SEQPOINT_INJECTION_CUPTI_CALL_WATCH_H_

#include <stdint.h>

#include <atomic>

#include "injection/base/features.h"
#include "injection/cupti/loader.h"

namespace seqpoint::inject {

class CallWatch {
 public:
  class Scope {
   public:
    // `waits`: for the GPU, which may have work for a while.
    Scope(CallWatch* watch, const char* function, bool waits = false);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    CallWatch* watch_;
    int slot_ = -1;  // none was free: this call is not watched
  };

  CallWatch(const Cupti* cupti, Features* features) : cupti_(cupti), features_(features) {}

  // Reports a call that has not returned for two seconds, or thirty where it waits for the GPU,
  // once, and its end.
  void Look();

 private:
  // One thread switches at a time, besides the helper thread; the other slots are for the start and
  // the end of the process.
  static constexpr int kSlots = 4;
  struct Slot {
    std::atomic<const char*> function;  // null: free
    std::atomic<uint64_t> since_ns;     // monotonic; 0: not yet
    std::atomic<bool> reported;
    std::atomic<bool> by_helper;
    std::atomic<bool> waits;
  };

  const Cupti* const cupti_;  // for its version
  Features* const features_;
  Slot slots_[kSlots] = {};
};

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_CUPTI_CALL_WATCH_H_
