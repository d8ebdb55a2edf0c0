// Switches the operations that must reach CallRouter, and CUPTI's activity kinds. They follow from
// the level, the rule, the open measurement and our share of CUPTI.
// Threading: WantedOps, Update and TraceKinds under IterationState's lock; Apply and WatchLaunches
// by the thread that has the SwitchToken, without it; the rest by either.
#ifndef SEQPOINT_INJECTION_ITERATIONS_WATCH_SWITCH_H_
#define SEQPOINT_INJECTION_ITERATIONS_WATCH_SWITCH_H_

#include <stdint.h>

#include "injection/base/launch_names.h"
#include "injection/cupti/activity.h"
#include "injection/cupti/callbacks.h"
#include "injection/cupti/captures.h"
#include "injection/cupti/ownership.h"
#include "injection/iterations/measurement_window.h"
#include "injection/iterations/state.h"
#include "injection/iterations/step_account.h"
#include "injection/ring/writer.h"

namespace seqpoint::inject {

class WatchSwitch {
 public:
  struct Parts {  // that outlive it
    IterationState* state;
    const MeasurementWindow* window;
    const StepAccount* steps;
    const CuptiOwnership* ownership;
    Callbacks* callbacks;
    Activity* activity;
    const Captures* captures;
    const LaunchNames* launch_names;
    const Clock* clock;
    injection::RingWriter* ring;
  };
  explicit WatchSwitch(const Parts& parts) : parts_(parts) {}

  // The operations that must reach CallRouter.
  uint32_t WantedOps() const;
  // Lets them, where CUPTI's callbacks for them are on.
  void Update() { parts_.state->watched.store(WantedOps(), std::memory_order_relaxed); }
  // Brings callback ids and activity kinds in line. `may_wait`: the calling thread is one of the
  // application's and may wait for the GPU.
  void Apply(bool may_wait);
  // The same for callback ids alone: launches are to be listed, or not any more.
  void WatchLaunches();

  // Activity kinds while iterations are traced, and those outside of windows, as applied last.
  uint32_t TraceKinds() const;
  uint32_t applied_kinds() const { return applied_kinds_; }
  // Are kernels named by their launches? See LaunchNames.
  bool NamesLaunches() const { return parts_.launch_names->needed() && parts_.activity->traces(); }

 private:
  uint32_t WantedKinds() const;

  const Parts parts_;
  uint32_t applied_kinds_ = 0;
};

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_ITERATIONS_WATCH_SWITCH_H_
