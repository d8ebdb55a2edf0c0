// Applies what the daemon wants (level, rule, plan), at boundaries and, where none comes by, on the
// helper thread.
//
// While the daemon gives no sign of life for 2 s, the level falls back to *mark*.
//
// Threading: Perform and Apply by the thread that has the SwitchToken; Tick by the helper thread.
#ifndef SEQPOINT_INJECTION_ITERATIONS_LEVEL_SWITCH_H_
#define SEQPOINT_INJECTION_ITERATIONS_LEVEL_SWITCH_H_

#include <cuda.h>
#include <stdint.h>

#include "injection/base/system.h"
#include "injection/cupti/captures.h"
#include "injection/cupti/ownership.h"
#include "injection/cupti/switch_token.h"
#include "injection/iterations/control_mirror.h"
#include "injection/iterations/measurement_borders.h"
#include "injection/iterations/measurement_window.h"
#include "injection/iterations/state.h"
#include "injection/iterations/step_account.h"
#include "injection/iterations/watch_switch.h"
#include "injection/nccl/activation_masks.h"
#include "injection/ring/writer.h"

namespace seqpoint::inject {

class LevelSwitch {
 public:
  struct Parts {  // that outlive it
    IterationState* state;
    ControlMirror* control;
    SwitchToken* token;
    CuptiOwnership* ownership;
    MeasurementWindow* window;
    MeasurementBorders* borders;
    WatchSwitch* watch;
    StepAccount* steps;
    const Captures* captures;
    const Clock* clock;
    WakeWord* helper;
    injection::RingWriter* ring;
    ActivationMasks* masks;
  };
  explicit LevelSwitch(const Parts& parts) : parts_(parts) {}

  // Begins at level *learn*.
  void Start();
  // Does what an event asked for, and gives the token back. `known`: the calling thread's current
  // context where CUPTI told it.
  void Perform(CUcontext known, const DeferredActions& actions);
  // Now and then: applies what the daemon wants when no boundary comes by.
  void Tick();

 private:
  void Apply(bool on_application_thread, bool at_boundary);
  void WriteRule(uint32_t generation, uint64_t call_sequence);

  const Parts parts_;
  uint64_t start_ns_ = 0;      // monotonic
  uint64_t ticked_calls_ = 0;  // calls at the last Tick
};

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_ITERATIONS_LEVEL_SWITCH_H_
