// How a time depends on the length: a straight line.
//
// Threading: plain values. Ownership: values.
#ifndef DAEMON_RANKS_LENGTH_LINE_H_
#define DAEMON_RANKS_LENGTH_LINE_H_

#include <cstddef>

#include "absl/types/span.h"

namespace seqpoint::ranks {

struct LengthPoint {
  double length = 0;
  double value = 0;
};

struct LengthLine {
  static constexpr size_t kLeastLengths = 3;

  double base = 0;  // at `length`
  double slope = 0;
  double length = 0;
  double shortest = 0, longest = 0;
  double spread = 0;   // relative, about the line; robust
  size_t lengths = 0;  // different ones

  double At(double at) const { return base + slope * (at - length); }
  // Nothing is known beyond the lengths that were seen, or between two of them.
  bool Tells(double at) const {
    return shortest <= at && at <= longest && (shortest == longest || lengths >= kLeastLengths);
  }
};

// By Theil and Sen, the median of the slopes between two points: half of the points may be wrong.
// With fewer than three lengths the line is level, at the median. `points` is not empty.
LengthLine FitLine(absl::Span<const LengthPoint> points);

}  // namespace seqpoint::ranks

#endif  // DAEMON_RANKS_LENGTH_LINE_H_
