// Stream captures of the program, and work of ours that would break one.
//
// Some work of the helper thread may synchronise a context, as cuptiRangeProfilerDecodeData does
// (CUPTI user guide 2.9.2), or allocate on the GPU. During a stream capture the first is forbidden
// to every thread, in global mode the second, too, and either makes the capture worthless (CUDA
// programming guide, "Prohibited and Unhandled Operations"). So one of both sides sees the other:
// BeginUnsafe sets its flag before it reads the captures, and a capture is counted before it reads
// the flag.
//
// Threading: OnBegin, AwaitUnsafe and OnEnd on the thread that captures; BeginUnsafe and EndUnsafe
// by one thread at a time; OnHole and SetUnseen by the thread that switches; the rest anywhere.
#ifndef SEQPOINT_INJECTION_CUPTI_CAPTURES_H_
#define SEQPOINT_INJECTION_CUPTI_CAPTURES_H_

#include <stdint.h>

#include <atomic>

#include "injection/base/system.h"
#include "injection/cupti/clock.h"

namespace seqpoint::inject {

class Captures {
 public:
  // `helper` wakes the helper thread.
  Captures(const Clock* clock, WakeWord* helper) : clock_(clock), helper_(helper) {}

  // A capture counts from before its first call to after its last.
  void OnBegin() {
    count_.fetch_add(1, std::memory_order_relaxed);  // from now on nothing begins
    captured_.store(true, std::memory_order_relaxed);
  }
  void OnEnd();
  uint32_t count() const { return count_.load(std::memory_order_relaxed); }
  // There may be a capture: one that is known, or one that began while nobody saw it.
  bool MayBeUnderWay() const;

  // CUPTI is ours again, and nobody saw what the program did meanwhile: captures have ended, and
  // one that began may go on for a second, also in a program that had captured nothing before.
  void OnHole();
  // Records are ours without callbacks: captures are not seen.
  void SetUnseen(bool unseen) { unseen_.store(unseen); }

  // Work that would break a capture begins. False: not now; the helper thread is woken when the
  // capture has ended.
  bool BeginUnsafe();
  void EndUnsafe() { unsafe_.store(false, std::memory_order_release); }
  // After OnBegin: returns when no such work is under way, or after `patience_ns`. How long the
  // caller was held, in ns.
  uint64_t AwaitUnsafe(uint64_t patience_ns) const;

 private:
  const Clock* const clock_;
  WakeWord* const helper_;
  std::atomic<uint32_t> count_{0};
  std::atomic<bool> captured_{false};  // there was a capture
  std::atomic<bool> unseen_{false};
  std::atomic<uint64_t> blind_until_ns_{0};  // monotonic; captures are not known before
  std::atomic<bool> unsafe_{false};          // between BeginUnsafe and EndUnsafe
  std::atomic<bool> held_up_{false};         // BeginUnsafe was refused, and the helper thread waits
};

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_CUPTI_CAPTURES_H_
