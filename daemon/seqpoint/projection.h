// Projection: what a figure of the whole run is, and what it rests on.
//
// Threading: values.
#ifndef DAEMON_SEQPOINT_PROJECTION_H_
#define DAEMON_SEQPOINT_PROJECTION_H_

#include <cstdint>
#include <optional>
#include <string>

#include "daemon/seqpoint/interval.h"

namespace seqpoint {

// Slow iterations and drift change how long work takes, not how much it is.
enum class StatisticKind : uint8_t {
  kTimeLike,  // times and cycles: may follow the time of an iteration at equal length, or not
  kAmount,    // instructions, bytes, launches, cycles of one pipe: never
};

struct Projection {
  double confidence = 0;
  int64_t iterations_so_far = 0;
  int64_t iterations_total = 0;  // 0 = unknown
  int64_t measured_with = 0;     // of a statistic: measured iterations in which it was not 0
  // For the whole run; absent while the horizon is unknown, and once the run is past it.
  std::optional<Estimate> total;
  // For times with nothing substituted, an exact sum; absent where iterations ran and none has a
  // time, as then there is no total either.
  std::optional<Estimate> so_far;
  Estimate remaining;                // zero while there is no total
  std::optional<Estimate> per_1000;  // cost of 1,000 iterations; absent where none has a time
  std::string basis;                 // one sentence: what the figure rests on, and what is amiss
};

// numerator / denominator, taken as independent (which widens the interval when they are not).
// Absent where the denominator's interval touches zero.
std::optional<Estimate> RatioOf(const Estimate& numerator, const Estimate& denominator);

Estimate Scaled(const Estimate& e, double factor);
// A cost is never negative, whatever the normal approximation says.
Estimate NotBelow(double floor, const Estimate& e);

}  // namespace seqpoint

#endif  // DAEMON_SEQPOINT_PROJECTION_H_
