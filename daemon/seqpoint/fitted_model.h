// FittedModel: what an engine's state says about the times of its run.
//
// Threading: free functions without state.
#ifndef DAEMON_SEQPOINT_FITTED_MODEL_H_
#define DAEMON_SEQPOINT_FITTED_MODEL_H_

#include "daemon/seqpoint/block_trace.h"
#include "daemon/seqpoint/drift_estimate.h"
#include "daemon/seqpoint/engine_state.h"
#include "daemon/seqpoint/forecast.h"
#include "daemon/seqpoint/key.h"
#include "daemon/seqpoint/time_model.h"

namespace seqpoint {

struct FittedModel {
  TimeModel time;
  Key shortest;  // of the run, as far as it is known, in each dimension
  Forecast forecast;
  KeyFit explained;
  double variance = 0;      // of the expected time over past iterations, in ns²
  DriftEstimate key_drift;  // of the expected times of the keys as they come
};

// About 5 ms for 1,000 lengths.
FittedModel FitModel(const EngineState& state);

// The times in order that show how they drift, and the relative noise of one of them.
inline const BlockTrace& DriftTrace(const EngineState& state, const TimeModel& model) {
  return model.of_sums ? state.stretches.trace : state.filter.trace;
}
inline double DriftNoise(const EngineState& state, const TimeModel& model) {
  return model.of_sums ? model.noise : state.filter.Noise();
}

}  // namespace seqpoint

#endif  // DAEMON_SEQPOINT_FITTED_MODEL_H_
