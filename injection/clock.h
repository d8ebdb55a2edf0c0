// The process' CUPTI clock. On a real GPU it is CLOCK_REALTIME, which we then read ourselves
// (cheaper than through CUPTI); a software GPU's virtual time or another tool's timestamp callback
// makes it foreign, and then only CUPTI can be asked.
// Threading: NowNs from any thread; Check from one thread at a time.
#ifndef SEQPOINT_INJECTION_CLOCK_H_
#define SEQPOINT_INJECTION_CLOCK_H_

#include <stdint.h>

#include <atomic>

#include "injection/cupti_loader.h"
#include "injection/ring/writer.h"
#include "injection/system.h"

namespace seqpoint::inject {

class Clock {
 public:
  // Until Init, and without CUPTI, time is CLOCK_REALTIME.
  void Init(const Cupti* cupti, injection::RingWriter* ring);
  uint64_t NowNs() const {
    if (!foreign_.load(std::memory_order_relaxed)) return RealNs();
    uint64_t now = 0;
    cupti_->GetTimestamp(&now);
    return now;
  }
  // Not the system's time.
  bool foreign() const { return foreign_.load(std::memory_order_relaxed); }
  // Compares CUPTI's clock with the system's, publishes which kind it is and a pair of stamps.
  void Check();

 private:
  const Cupti* cupti_ = nullptr;
  injection::RingWriter* ring_ = nullptr;
  std::atomic<bool> foreign_{false};
};

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_CLOCK_H_
