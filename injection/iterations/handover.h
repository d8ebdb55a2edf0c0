// What happens to measurements, and to what is watched, when CUPTI changes hands.
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
  Handover(IterationState* state, MeasurementWindow* window, MeasurementBorders* borders,
           WatchSwitch* watch, StepAccount* steps, const Captures* captures, Activity* activity,
           Counters* counters, LaunchNames* launch_names, const Cupti* cupti, Features* features)
      : state_(state),
        window_(window),
        borders_(borders),
        watch_(watch),
        steps_(steps),
        captures_(captures),
        activity_(activity),
        counters_(counters),
        launch_names_(launch_names),
        cupti_(cupti),
        features_(features) {}

  // This CUPTI's records are known, and may be asked for.
  void SetReadsRecords(bool reads) { reads_records_ = reads; }

  void Begin() override;
  void Renew() override;
  void OnChange(bool hole) override;
  void Switch(bool may_wait) override { watch_->Apply(may_wait); }
  bool Leave() override;
  uint64_t Abandon() override;
  void ReportAbandoned() override;
  uint64_t Iteration() override;

 private:
  IterationState* const state_;
  MeasurementWindow* const window_;
  MeasurementBorders* const borders_;
  WatchSwitch* const watch_;
  StepAccount* const steps_;
  const Captures* const captures_;
  Activity* const activity_;
  Counters* const counters_;
  LaunchNames* const launch_names_;
  const Cupti* const cupti_;
  Features* const features_;
  bool reads_records_ = false;
};

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_ITERATIONS_HANDOVER_H_
