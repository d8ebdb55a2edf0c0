// Ends or renews measurements, and what is watched, when CUPTI changes hands.
// Threading: as CuptiUser says.
#ifndef SEQPOINT_INJECTION_ITERATIONS_HANDOVER_H_
#define SEQPOINT_INJECTION_ITERATIONS_HANDOVER_H_

#include <stdint.h>

#include "injection/base/features.h"
#include "injection/base/launch_names.h"
#include "injection/counters/counters.h"
#include "injection/cupti/activity.h"
#include "injection/cupti/captures.h"
#include "injection/cupti/loader.h"
#include "injection/cupti/ownership.h"
#include "injection/iterations/measurement_borders.h"
#include "injection/iterations/measurement_window.h"
#include "injection/iterations/state.h"
#include "injection/iterations/step_account.h"
#include "injection/iterations/watch_switch.h"

namespace seqpoint::inject {

class Handover final : public CuptiUser {
 public:
  struct Parts {  // that outlive it
    IterationState* state;
    MeasurementWindow* window;
    MeasurementBorders* borders;
    WatchSwitch* watch;
    StepAccount* steps;
    const Captures* captures;
    Activity* activity;
    Counters* counters;
    LaunchNames* launch_names;
    const Cupti* cupti;
    Features* features;
  };
  explicit Handover(const Parts& parts) : parts_(parts) {}

  // Records are not asked for.
  void ForbidRecords() { records_forbidden_ = true; }

  void Begin() override;
  void Renew() override;
  void OnChange(bool hole) override;
  void Switch(bool may_wait) override { parts_.watch->Apply(may_wait); }
  bool Leave() override;
  uint64_t Abandon() override;
  void ReportAbandoned() override;
  uint64_t Iteration() override;

 private:
  const Parts parts_;
  bool records_forbidden_ = false;
};

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_ITERATIONS_HANDOVER_H_
