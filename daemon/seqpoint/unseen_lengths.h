// How new the lengths of a run are, counted in buckets.
//
// The first iteration of a length pays for algorithm search, compilation, allocation: per length,
// or per bucket of lengths that share kernel shapes (whole tiles, padding). Where the buckets'
// borders lie is not known, so counts are means over all of them: the number of buckets of a size
// that hold one of the values, (1 / size) * |union of [value - size, value]|.
//
// Threading: free functions without state.
#ifndef DAEMON_SEQPOINT_UNSEEN_LENGTHS_H_
#define DAEMON_SEQPOINT_UNSEEN_LENGTHS_H_

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/types/span.h"

namespace seqpoint {

// Bucket sizes 1, 2, 4 ... steps.
inline constexpr int kBucketSizes = 8;
using BucketCounts = std::array<double, kBucketSizes>;

// The values of one dimension in the order of their cold iteration.
struct LengthHistory {
  std::vector<std::pair<int64_t, BucketCounts>> opened;  // the buckets that each value opened
  std::vector<int64_t> sorted;
  double step = 1;  // the greatest common divisor of the values' differences

  static LengthHistory Of(absl::Span<const int64_t> in_order);

  // Buckets that `coming` values (with the number of times each is expected, in order of value) are
  // expected to open.
  BucketCounts UnseenAmong(absl::Span<const std::pair<int64_t, double>> coming) const;
};

}  // namespace seqpoint

#endif  // DAEMON_SEQPOINT_UNSEEN_LENGTHS_H_
