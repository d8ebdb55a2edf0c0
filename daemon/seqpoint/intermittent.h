// Intermittent: a statistic that is zero at some lengths and not at others, or may be (a kernel
// that a library picks by shape).
//
// Threading: values.
#ifndef DAEMON_SEQPOINT_INTERMITTENT_H_
#define DAEMON_SEQPOINT_INTERMITTENT_H_

#include <vector>

#include "absl/types/span.h"
#include "daemon/seqpoint/cost_curve.h"
#include "daemon/seqpoint/interval.h"
#include "daemon/seqpoint/measurements.h"

namespace seqpoint {

// The uncertainty that the measured iterations cannot show.
class Intermittent {
 public:
  // `values`: of the statistic, one for each measurement.
  Intermittent(absl::Span<const Measurement> measurements, absl::Span<const double> values,
               const KeyScale& scale);

  // The least variance of the sum over `targets`.
  double LeastVariance(absl::Span<const CurveTarget> targets) const;
  // At lengths shorter or longer than all measured ones it may occur, or not: what that may add to
  // the sum over `targets`. All of these lengths may have so much more or less, or none.
  std::vector<Normal> Beyond(absl::Span<const CurveTarget> targets) const;

 private:
  void NoteOthers(absl::Span<const Measurement> measurements);

  Point low_ = {}, high_ = {};  // of the lengths that were measured
  double presence_variance_ = 0;
  double beyond_ = 0;  // of one iteration
  double probability_ = 0;
};

}  // namespace seqpoint

#endif  // DAEMON_SEQPOINT_INTERMITTENT_H_
