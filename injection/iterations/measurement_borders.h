// Opens and closes the windows that MeasurementWindow decides on: the part that calls CUPTI.
// Threading: the thread that has the SwitchToken, without IterationState's lock; OnCaptureBegin and
// OnContextDestroy on the thread that meets them; Readiness under the lock.
#ifndef SEQPOINT_INJECTION_ITERATIONS_MEASUREMENT_BORDERS_H_
#define SEQPOINT_INJECTION_ITERATIONS_MEASUREMENT_BORDERS_H_

#include <cuda.h>
#include <stdint.h>

#include "injection/counters/counters.h"
#include "injection/cupti/activity.h"
#include "injection/cupti/captures.h"
#include "injection/cupti/contexts.h"
#include "injection/cupti/ownership.h"
#include "injection/cupti/switch_token.h"
#include "injection/iterations/measurement_window.h"
#include "injection/iterations/state.h"
#include "injection/iterations/watch_switch.h"
#include "injection/ring/writer.h"

namespace seqpoint::inject {

class MeasurementBorders final : public Readiness {
 public:
  struct Parts {  // that outlive it
    IterationState* state;
    MeasurementWindow* window;
    WatchSwitch* watch;
    SwitchToken* token;
    const CuptiOwnership* ownership;
    Captures* captures;
    Contexts* contexts;
    Activity* activity;
    Counters* counters;
    const Clock* clock;
    injection::RingWriter* ring;
  };
  explicit MeasurementBorders(const Parts& parts) : parts_(parts) {}

  bool CanBegin(uint16_t config_id) override;
  bool CanCount(uint16_t config_id) override { return parts_.counters->CanBeHad(config_id); }
  bool OfKernels(uint16_t config_id) override { return parts_.counters->OfKernels(config_id); }

  // `known`: the calling thread's current context where CUPTI told it, else null.
  void Open(CUcontext known);
  // The measurement that closing() holds.
  void Close(CUcontext known);
  // Tells the daemon of closing(), which comes to nothing without being closed.
  void ReportAborted();
  // A counter measurement, the one that closing() holds, came to nothing.
  void ReportFailure(uint32_t status);

  // A stream capture begins: waits for what would break it.
  void OnCaptureBegin(CUcontext context);
  // A context is about to go: ends an open measurement while that is still possible.
  void OnContextDestroy(CUcontext context);

 private:
  abi::CountersEvent ClosingEvent(uint32_t status) const;
  // Tells the daemon that closing() is over, and why it came to nothing where it did.
  void Report(uint64_t end_ns, uint32_t status);

  const Parts parts_;
};

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_ITERATIONS_MEASUREMENT_BORDERS_H_
