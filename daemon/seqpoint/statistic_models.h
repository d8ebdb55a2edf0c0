// How a measured statistic may depend on the time of an iteration at equal length.
//
// Threading: free functions without state.
#ifndef DAEMON_SEQPOINT_STATISTIC_MODELS_H_
#define DAEMON_SEQPOINT_STATISTIC_MODELS_H_

#include <vector>

#include "absl/types/span.h"
#include "daemon/seqpoint/cost_curve.h"
#include "daemon/seqpoint/engine_state.h"
#include "daemon/seqpoint/fitted_model.h"
#include "daemon/seqpoint/measurements.h"
#include "daemon/seqpoint/projection.h"

namespace seqpoint {

// One way of several.
struct StatisticModel {
  double probability = 0;
  // By how much, relative, it changes where times at equal length drift by 1, and where iterations
  // are slow; 0: not at all.
  double drift = 0;
  double slow = 0, slow_variance = 0;
  // The error of the level of times when it was measured, nearly the same for all measurements.
  double level_variance = 0;
  // The excess of slow iterations that times do not show, relative; and the standard deviation of a
  // drift that they do not show.
  double unseen_slow = 0, unseen_slow_variance = 0;
  double unseen_drift = 0;
  bool follows_warm_up = false;  // takes more in cold iterations
  CostCurve cost;
};

// A statistic of kind kTimeLike may follow the time of an iteration, at equal length, or not.
// Whether it follows the drift, the measurements show: they agree with the level of times when they
// were taken, or not. Only a measured slow iteration shows whether it follows slow ones. Nothing
// shows whether it follows cold iterations, which are never measured.
// `values`: of the statistic, one for each measurement.
std::vector<StatisticModel> StatisticModelsOf(const EngineState& state, const FittedModel& fitted,
                                              absl::Span<const Measurement> measurements,
                                              absl::Span<const double> values, StatisticKind kind);

}  // namespace seqpoint

#endif  // DAEMON_SEQPOINT_STATISTIC_MODELS_H_
