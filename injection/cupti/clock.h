// The process' CUPTI clock. On a real GPU it is CLOCK_REALTIME, which we then read ourselves
// (cheaper than through CUPTI). A software GPU's virtual time makes it foreign, and then only CUPTI
// can be asked. Which of both it is stays: a tool that registers a timestamp callback changes the
// times of records, and not ours.
// Threading: NowNs from any thread; Decide, Claim and Check from one thread at a time; TakeStep
// from one thread at a time, at the same time as those.
#ifndef SEQPOINT_INJECTION_CUPTI_CLOCK_H_
#define SEQPOINT_INJECTION_CUPTI_CLOCK_H_

#include <stdint.h>

#include <atomic>

#include "injection/abi/records.h"
#include "injection/base/system.h"
#include "injection/cupti/loader.h"
#include "injection/ring/writer.h"

namespace seqpoint::inject {

class Clock {
 public:
  // Until Decide, and without CUPTI, time is CLOCK_REALTIME.
  Clock(const Cupti* cupti, injection::RingWriter* ring) : cupti_(cupti), ring_(ring) {}

  // Which clock CUPTI's is, now that it was found, or was not.
  void Decide();
  // CUPTI is ours, and no kind of records is on. Where its clock counts from another epoch than the
  // system's, another tool registered a callback, which need not even count nanoseconds: that of
  // torch.profiler counts the processor's ticks (pytorch/kineto, libkineto/src/CuptiTimestamp.cpp),
  // and registers itself again for each of its sessions. A registration cannot be taken back
  // (cupti_activity.h, cuptiActivityRegisterTimestampCallback), so the system's clock is registered
  // in its place. True: it was.
  bool Claim();
  uint64_t NowNs() const {
    if (!foreign_.load(std::memory_order_relaxed)) return RealNs();
    uint64_t now = 0;
    cupti_->GetTimestamp(&now);
    return now;
  }
  // Not the system's time.
  bool foreign() const { return foreign_.load(std::memory_order_relaxed); }
  // Another tool has changed CUPTI's since.
  bool changed() const { return changed_.load(std::memory_order_relaxed); }
  // Notices whether CUPTI's clock is still the one that it was.
  void Check();
  // Whether the system's clock was set since the last time it was asked; `call` is the number of
  // watched calls. False where times are not the system's, and where the two clocks could not be
  // read closely together.
  bool TakeStep(uint64_t call, abi::ClockStepEvent* step);

 private:
  struct Reading {
    bool real;
    bool far;  // counts from another epoch than the system's
    bool raw;  // is CLOCK_MONOTONIC_RAW
  };
  Reading Read() const;

  const Cupti* const cupti_;
  injection::RingWriter* const ring_;  // for its kind of clock
  std::atomic<bool> foreign_{false};
  std::atomic<bool> changed_{false};
  // At the last TakeStep that read the clocks; 0: there was none.
  uint64_t step_monotonic_ns_ = 0, step_offset_ns_ = 0, step_call_ = 0;
  bool raw_ = false;  // CUPTI's own is CLOCK_MONOTONIC_RAW, as on WSL (cupti_activity.h)
};

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_CUPTI_CLOCK_H_
