// The time of an iteration as a function of its key, from the iterations that ran.
//
// Threading: values; const functions are safe from several threads.
#ifndef DAEMON_SEQPOINT_TIME_MODEL_H_
#define DAEMON_SEQPOINT_TIME_MODEL_H_

#include <vector>

#include "absl/types/span.h"
#include "daemon/seqpoint/cost_curve.h"
#include "daemon/seqpoint/key.h"
#include "daemon/seqpoint/selection.h"

namespace seqpoint {

struct KeyTime {
  Key key;
  double time_ns = 0;
};

// A time this far from what its neighbours take is a stall, not a measurement.
inline constexpr double kOutlierShare = 0.5;
inline constexpr double kOutlierDeviations = 10;  // median absolute deviations

// Which of `times` lie beyond max(10 MAD, 50 %) of the median of the 7 nearest in length. None
// where there are fewer than 7.
std::vector<bool> FindOutliers(absl::Span<const KeyTime> times);

struct TimeModel {
  bool known = false;  // at least one time
  Quadratic curve;
  CostCurve smooth;  // about the curve
  double noise = 0;  // standard deviation of one iteration, relative, correlation included
  // First occurrences of a length, when they take another time than later ones (algorithm search,
  // compilation): by how much, in ns. When not, they count as any other.
  bool firsts_differ = false;
  double first_excess_ns = 0;
  double first_excess_variance = 0;
  double firsts = 0;

  // Of the single times below: how many there were, and what those among them that were stalls took
  // beyond the normal.
  double singles = 0;
  double stall_excess_ns = 0;
  double stall_excess_square = 0;

  // `regular` are times of keys that had occurred before, without stalls; `single` such times that
  // nobody has looked at for stalls yet. `correlation` >= 1 inflates the noise's variance: the mean
  // of neighbours is less certain than that of independent iterations.
  static TimeModel Fit(std::vector<KeyTimes> regular, std::vector<KeyTime> single,
                       absl::Span<const KeyTime> first, double correlation);

  // Learns what first occurrences cost on top and adds the rest of them to `regular`.
  void TakeFirsts(absl::Span<const KeyTime> first, std::vector<KeyTimes>& regular);

  double At(const Key& key) const { return smooth.ValueAt(curve.scale(key), curve(key)); }
};

}  // namespace seqpoint

#endif  // DAEMON_SEQPOINT_TIME_MODEL_H_
