// What watching the application's calls takes of its time.
// Threading: Count under IterationState's lock; Report by the helper thread, without it.
#ifndef SEQPOINT_INJECTION_ITERATIONS_CALL_COST_H_
#define SEQPOINT_INJECTION_ITERATIONS_CALL_COST_H_

#include <stdint.h>
#include <string.h>

#include "injection/abi/records.h"
#include "injection/iterations/state.h"
#include "injection/ring/writer.h"

namespace seqpoint::inject {

class CallCost {
 public:
  CallCost(IterationState* state, injection::RingWriter* ring) : state_(state), ring_(ring) {}

  // A call of CUDA was seen at this level.
  void Count(abi::Level level) { ++calls_[static_cast<uint8_t>(level) & 3]; }
  // Tells the daemon what watching took so far, if it took more. `callback_ns`: of a call, without
  // what is done with it.
  void Report(uint32_t callback_ns) {
    // What inject_benchmark shows for the body of a callback.
    constexpr uint32_t kBodyNs[4] = {0, 46, 19, 19};
    abi::CostEvent event = {};
    {
      LockGuard lock(&state_->lock);
      if (state_->calls == reported_calls_) return;
      reported_calls_ = state_->calls;
      memcpy(event.calls, calls_, sizeof(event.calls));
    }
    event.callback_ns = callback_ns;
    for (int level = 1; level < 4; ++level) {
      event.spent_ns[level] = event.calls[level] * (callback_ns + kBodyNs[level]);
    }
    ring_->WriteEvent(abi::EventType::kCost, &event, sizeof(event));
  }

 private:
  IterationState* const state_;
  injection::RingWriter* const ring_;
  uint64_t calls_[4] = {};       // by level: learn, mark, trace
  uint64_t reported_calls_ = 0;  // of all
};

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_ITERATIONS_CALL_COST_H_
