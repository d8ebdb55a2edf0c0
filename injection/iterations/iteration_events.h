// Writes the events of iterations for a call that the rule's matcher knows, and says what has to be
// done for it.
// Threading: IterationState's lock, held by the caller; timed_events anywhere.
#ifndef SEQPOINT_INJECTION_ITERATIONS_ITERATION_EVENTS_H_
#define SEQPOINT_INJECTION_ITERATIONS_ITERATION_EVENTS_H_

#include <stdint.h>

#include <atomic>

#include "injection/abi/matcher.h"
#include "injection/base/call.h"
#include "injection/counters/counters.h"
#include "injection/cupti/activity.h"
#include "injection/cupti/captures.h"
#include "injection/cupti/clock.h"
#include "injection/cupti/switch_token.h"
#include "injection/iterations/control_mirror.h"
#include "injection/iterations/measurement_window.h"
#include "injection/iterations/state.h"
#include "injection/iterations/step_account.h"
#include "injection/iterations/wait_watch.h"
#include "injection/iterations/watch_switch.h"
#include "injection/nccl/activation_masks.h"
#include "injection/ring/writer.h"

namespace seqpoint::inject {

class IterationEvents {
 public:
  struct Parts {  // that outlive it
    IterationState* state;
    MeasurementWindow* window;
    const WatchSwitch* watch;
    StepAccount* steps;
    const ControlMirror* control;
    const SwitchToken* token;
    const Captures* captures;
    const Activity* activity;
    Counters* counters;
    Clock* clock;
    injection::RingWriter* ring;
    ActivationMasks* masks;
  };
  explicit IterationEvents(const Parts& parts) : parts_(parts) {}

  // Every watched call of CUDA, in order.
  void OnCudaCall(const Call& call) { waits_.OnCall(call.op, call.stream, call.event); }
  // Nothing that the program launched is left to do when this call returns.
  bool WaitedForWork(const Call& call) const;
  void WriteSync(const Call& call);
  // Writes the events of a matched call (abi::MatchedFlags). `number`: of the call.
  void OnMatched(const Call& call, uint64_t number, uint32_t flags, DeferredActions* actions);
  // Tells the daemon when the system's clock was set; boundaries look for themselves. `number`: of
  // the next call.
  void NoteClock(uint64_t number);

  // Events so far whose activity records the daemon waits for.
  uint64_t timed_events() const { return timed_events_.load(std::memory_order_relaxed); }

 private:
  bool may_switch() const { return !parts_.token->taken() && !parts_.captures->MayBeUnderWay(); }
  void OnStep(const Call& call, uint64_t now_ns);
  void TellSampler(bool boundary, uint64_t now_ns, bool ended, const DeferredActions& actions);
  void WriteBoundary(const Call& call, uint64_t number, uint32_t flags, uint64_t now_ns);
  void WriteDecision(uint64_t iteration, uint64_t now_ns, const int64_t length[2], uint32_t valid,
                     uint16_t config_id);

  const Parts parts_;
  WaitWatch waits_;
  uint32_t boundary_thread_ = 0;  // that met the last boundary; 0: none did
  std::atomic<uint64_t> timed_events_{0};
};

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_ITERATIONS_ITERATION_EVENTS_H_
