// Finds the measurements that were taken on slow iterations.
//
// Threading: free functions without state.
#ifndef DAEMON_SEQPOINT_SLOW_MEASUREMENTS_H_
#define DAEMON_SEQPOINT_SLOW_MEASUREMENTS_H_

#include <vector>

#include "absl/types/span.h"
#include "daemon/seqpoint/measurements.h"
#include "daemon/seqpoint/time_model.h"

namespace seqpoint {

struct SlowMeasurements {
  std::vector<bool> which;  // empty: none
  double above = 0;         // by how much they lie above the curve, relative, in the mean
  bool certain = false;     // enough of what else was measured with them says the same
};

// The few measurements that lie far above a robust curve through all of them. The run's share of
// slow iterations is known better than from so small a sample. They are slow for certain if the
// other statistics of the same measurements are above as well: a statistic that jumps alone may be
// that of a length at which a library picks another kernel. `clipping_threshold`: that of times.
SlowMeasurements FindSlow(absl::Span<const Measurement> measurements,
                          absl::Span<const double> values, const TimeModel& model,
                          double clipping_threshold);

}  // namespace seqpoint

#endif  // DAEMON_SEQPOINT_SLOW_MEASUREMENTS_H_
