// An iteration's key, and how well a key explains iteration times.
//
// A key is one or two features of an iteration (sequence lengths, bytes of a copy, a grid
// dimension) that are known early in it and that decide how long it takes.
//
//   KeyFit fit = FitKey(keys, times_ns);
//   if (fit.verdict == KeyVerdict::kNotExplained) { /* sample plainly, do not stratify */ }
//
// Threading: free functions without state. Nothing is owned or kept.
#ifndef DAEMON_SEQPOINT_KEY_H_
#define DAEMON_SEQPOINT_KEY_H_

#include <algorithm>
#include <compare>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace seqpoint {

// One or two non-negative dimensions. `second` stays 0 when there is only one.
struct Key {
  int64_t first = 0;
  int64_t second = 0;

  auto operator<=>(const Key&) const = default;

  template <typename H>
  friend H AbslHashValue(H h, const Key& key) {
    return H::combine(std::move(h), key.first, key.second);
  }
};

// The keys between two, in each dimension.
struct KeyBox {
  Key low = {INT64_MAX, INT64_MAX}, high = {INT64_MIN, INT64_MIN};

  void Add(const Key& key) {
    low = {std::min(low.first, key.first), std::min(low.second, key.second)};
    high = {std::max(high.first, key.first), std::max(high.second, key.second)};
  }
  bool Contains(const Key& key) const {
    return low.first <= key.first && key.first <= high.first && low.second <= key.second &&
           key.second <= high.second;
  }
};

enum class KeyVerdict {
  kTooFew,            // fewer than 64 timed iterations: nothing is claimed
  kExplained,         // the key explains at least half of the variance of time
  kNotExplained,      // it does not: iterations are sampled plainly
  kTimeHardlyVaries,  // there is next to nothing to explain (robust variation below 3 %)
};

struct KeyFit {
  KeyVerdict verdict = KeyVerdict::kTooFew;
  double explained = 0;         // cross-validated share of the variance of time, in [0, 1]
  double robust_variation = 0;  // 1.4826 x median absolute deviation / median
};

// The share of the variance of `times_ns` that `keys` explain on data that was not fitted: a robust
// quadratic in the key plus shrunken means of equal-mass bins, five folds. Deviations from what
// the other folds predict are cut beyond four of their robust standard deviations, at most the
// largest 2 %, in the error as in the variance. The spans have equal size; times must be positive
// and finite.
KeyFit FitKey(absl::Span<const Key> keys, absl::Span<const double> times_ns);

}  // namespace seqpoint

#endif  // DAEMON_SEQPOINT_KEY_H_
