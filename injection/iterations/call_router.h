// The stream of the application's calls: numbers them, records them while learning, and runs them
// through the rule's matcher.
//
// Every watched call of any thread passes OnCall. Under one short lock it takes its number and goes
// through the matcher; events of an iteration are written there, in order. What needs CUPTI (a
// window, a counter range, another level) is done after the lock is released, by the thread that
// met the event, if it got the SwitchToken.
//
// Cost: at *learn* a call takes one clock read, one ring record and two atomic exchanges; at *mark*
// only the operations that the rule names get here at all.
//
// Threading: any thread; CheckClock and ReportCost by the helper thread. Ownership: refers to the
// other parts.
#ifndef SEQPOINT_INJECTION_ITERATIONS_CALL_ROUTER_H_
#define SEQPOINT_INJECTION_ITERATIONS_CALL_ROUTER_H_

#include <stdint.h>

#include "injection/base/call.h"
#include "injection/base/launch_names.h"
#include "injection/base/names.h"
#include "injection/counters/kernel_ranges.h"
#include "injection/cupti/call_watch.h"
#include "injection/cupti/captures.h"
#include "injection/cupti/contexts.h"
#include "injection/cupti/switch_token.h"
#include "injection/iterations/control_mirror.h"
#include "injection/iterations/iteration_events.h"
#include "injection/iterations/level_switch.h"
#include "injection/iterations/measurement_window.h"
#include "injection/iterations/state.h"
#include "injection/iterations/step_account.h"
#include "injection/ring/writer.h"

namespace seqpoint::inject {

class CallRouter {
 public:
  struct Parts {  // that outlive it
    IterationState* state;
    IterationEvents* events;
    MeasurementWindow* window;
    const StepAccount* steps;
    LevelSwitch* levels;
    const ControlMirror* control;
    SwitchToken* token;
    Names* names;
    LaunchNames* launch_names;
    Contexts* contexts;
    const Captures* captures;
    KernelRanges* kernels;
    CallWatch* call_watch;
    injection::RingWriter* ring;
  };
  explicit CallRouter(const Parts& parts) : parts_(parts) {}

  void OnCall(const Call& call);
  // A blocking copy, already reported by OnCall, returned.
  void OnBlocked(const Call& call);
  // Tells the daemon what watching has taken of the application's time so far, if it took more.
  // `callback_ns`: of a call, without what is done with it.
  void ReportCost(uint32_t callback_ns);
  // Looks whether the system's clock was set.
  void CheckClock();
  // The time of the open iteration is of no use: somebody slows it down.
  void Distort();

 private:
  // Parts of OnCall: the price of every call.
  [[gnu::always_inline]] inline NameRef NameOf(const Call& call, bool nvtx);
  [[gnu::always_inline]] inline void Match(const Call& call, const abi::MatchEvent& event,
                                           uint64_t number, DeferredActions* actions);
  [[gnu::always_inline]] inline void WriteCall(const Call& call, uint32_t name_id, uint64_t number,
                                               uint8_t more_flags);

  const Parts parts_;
  uint64_t polled_ns_ = 0;
  uint64_t cuda_calls_[4] = {};  // by level: learn, mark, trace
  uint64_t reported_calls_ = 0;  // watched ones, at the last ReportCost
};

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_ITERATIONS_CALL_ROUTER_H_
