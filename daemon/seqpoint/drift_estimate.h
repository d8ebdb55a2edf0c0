// DriftEstimate: whether the values of consecutive iterations come in a random order, or drift.
//
// Threading: values.
#ifndef DAEMON_SEQPOINT_DRIFT_ESTIMATE_H_
#define DAEMON_SEQPOINT_DRIFT_ESTIMATE_H_

#include "daemon/seqpoint/block_trace.h"
#include "daemon/seqpoint/cost_curve.h"

namespace seqpoint {

struct DriftEstimate {
  double inflation = 1;      // of the variance of a mean over iterations, against independence
  double walk_variance = 0;  // per iteration, of a random walk of the expected time; 0 = steady
  double trend = 0;          // per iteration, where it goes one way all the time: a sorted epoch
  bool moving() const { return walk_variance > 0; }
};

// Whether the keys come in an order that has nothing to do with their cost, by differences between
// neighbouring stretches of every length. `variance` is that of the expected time of one iteration.
DriftEstimate EstimateKeyDrift(const BlockTrace& trace, const Quadratic& curve, double variance);
// The same of times themselves, whatever the keys. `variance` is that of one time.
DriftEstimate EstimateTimeDrift(const BlockTrace& trace, double variance);

}  // namespace seqpoint

#endif  // DAEMON_SEQPOINT_DRIFT_ESTIMATE_H_
