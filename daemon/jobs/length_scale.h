// The factor between the user's lengths and the values of the learned feature.
//
// The learner finds "bytes of the 2nd host-to-device copy"; the user's file says "37 tokens". Where
// the feature is proportional to a length (bytes = 4 x batch x tokens), the factor follows from the
// two sets of values alone. Grid dimensions that round up are not proportional: they have no match,
// and the user's histogram cannot be used.
//
// Threading: free functions. Nothing is kept.
#ifndef DAEMON_JOBS_LENGTH_SCALE_H_
#define DAEMON_JOBS_LENGTH_SCALE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

namespace seqpoint::jobs {

// value -> how often
using Histogram1 = std::map<int64_t, int64_t>;
int64_t Total(const Histogram1& histogram);

inline constexpr size_t kManyValues = 8;  // fewer fit too many factors

struct LengthScale {
  int64_t factor = 1;   // feature = factor * length
  double distance = 0;  // between the two distributions of lengths (Kolmogorov-Smirnov), in [0, 1]
};

// factor * length, neither negative; nothing when it exceeds kMaxLength (daemon/base/horizon.h).
std::optional<int64_t> ScaledLength(int64_t length, int64_t factor);

// The largest integer factor that maps the observed feature values onto the expected lengths: all
// observed iterations but a fiftieth (of 20 or more: but one) fall on expected lengths, and no
// length exceeds kMaxLength. Nothing while too few different values were observed.
std::optional<LengthScale> FindScale(const Histogram1& observed, const Histogram1& expected);

// The same for sums over micro-batches, of which few are equal: the divisor of the observed values'
// natural unit that is nearest to the ratio of the two means. Nothing when it is off by more than a
// tenth (the first lengths of a sorted data set are all short).
std::optional<LengthScale> FindScaleOfSums(const Histogram1& observed, const Histogram1& expected);

// The greatest common divisor of the observed values, without a few that are no multiples of the
// divisor of all others (the last, smaller batch of an epoch). 1 for an empty histogram.
int64_t NaturalUnit(const Histogram1& observed);

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_LENGTH_SCALE_H_
