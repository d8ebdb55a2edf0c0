// The time of an iteration as a function of its key, from the iterations that ran.
//
// Threading: values; const functions are safe from several threads.
#ifndef DAEMON_SEQPOINT_TIME_MODEL_H_
#define DAEMON_SEQPOINT_TIME_MODEL_H_

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "daemon/seqpoint/cost_curve.h"
#include "daemon/seqpoint/drift.h"
#include "daemon/seqpoint/interval.h"
#include "daemon/seqpoint/key.h"
#include "daemon/seqpoint/outliers.h"
#include "daemon/seqpoint/selection.h"
#include "daemon/seqpoint/unseen_lengths.h"

namespace seqpoint {

// The quadratic without the keys that it is known to miss (in order), unless they are the most.
Quadratic CurveOfOthers(absl::Span<const KeyTimes> times, absl::Span<const Key> own);

// A usable time of the first iteration of a length.
struct ColdTime {
  KeyTime time;
  BucketCounts opened = {};  // the buckets of lengths that it opened
  bool of_run = false;       // nothing ran before it: what it costs on top never comes again
  uint64_t iteration = 0;
};

struct TimeModel {
  bool known = false;    // at least one time
  bool of_sums = false;  // most times are of several iterations together
  Quadratic curve;
  KeyBox timed = {{}, {}};  // the keys that have a time; 0 without any
  CostCurve smooth;         // about the curve
  std::vector<Key> own;     // keys with a bin of their own in it, in order
  double noise = 0;         // standard deviation of one iteration, relative, correlation included

  // Whether cold iterations cost more than later ones (algorithm search, compilation): all of them,
  // or those that open a bucket of lengths. While unknown, their times are not trusted. When
  // kOrdinary, they count as any other.
  enum class WarmUp : uint8_t { kUnknown, kOrdinary, kCostly };
  WarmUp warm_up = WarmUp::kUnknown;
  double costly_share = 0;     // of the cold iterations
  double warm_up_cost_ns = 0;  // mean and variance of what the costly ones take beyond the normal
  double warm_up_cost_variance = 0;
  double warm_up_ns = 0;        // what all cold iterations so far took beyond the normal
  double recurrence_share = 0;  // and those of the same lengths in further processes, in proportion
  double spread = 0;            // relative, of ordinary times about the curve
  // Where keys are sums over micro-batches: cold iterations without what they cost on top, and how
  // uncertain the level of all times is for that, relative.
  std::vector<KeyTime> without_warm_up;
  double doubt = 0;

  // The number of single times below, and the excess of the stalls among them.
  double singles = 0;
  double stall_excess_ns = 0;
  double stall_excess_square = 0;

  // `regular` are times of keys that had occurred before, without stalls; `single` such times that
  // nobody has looked at for stalls yet. `correlation` >= 1 inflates the noise's variance: the mean
  // of neighbours is less certain than that of independent iterations. `shortest`: the lowest key
  // that the model will be asked for, in each dimension. `own`: keys, in order, whose time is known
  // not to be what the curve says. `sums`: keys are sums over micro-batches, whose lengths `cold`
  // are the cold iterations of.
  static TimeModel Fit(std::vector<KeyTimes> regular, absl::Span<const KeyTime> single,
                       absl::Span<const ColdTime> cold, double correlation, const Key& shortest,
                       absl::Span<const Key> own = {}, bool sums = false);

  // From times of several iterations together. The excess of cold and slow iterations is in the
  // curve and in the noise: nothing shows it alone. `ran`: the keys that ran.
  static TimeModel OfSums(const BlockTrace& times, const KeyScale& scale, const KeyBox& ran);
  // The share of these targets that is shorter or longer than all that ran.
  double ShareOutside(absl::Span<const CurveTarget> targets) const;

  // The curve, kept within bounds below the keys that have a time.
  double Expected(const Key& key) const { return BoundedBelow(curve, timed.low, key); }
  double At(const Key& key) const { return smooth.ValueAt(curve.scale(key), Expected(key)); }
  // Which of `own` it is.
  std::optional<int> BaselineBin(const Key& key) const;
  // Whether a cold iteration that took so much beyond the expected time is a costly one.
  bool IsCostly(double excess_ns, double expected_ns) const;
  // The warm-up cost of cold iterations that open so many buckets.
  Normal WarmUpCost(const BucketCounts& unseen) const;
  double AllWarmUp() const { return (1 + recurrence_share) * warm_up_ns; }

 private:
  struct BucketCost {
    double probability = 0;  // that buckets are of this size
    double opened = 0;       // so far, in iterations with a usable time
    double mean_ns = 0;      // per bucket
    double variance = 0;     // of one bucket
  };

  void JudgeColdIterations(absl::Span<const ColdTime> cold, std::vector<KeyTimes>& regular,
                           absl::Span<const Key> own, std::vector<KeyTime>& stalls);
  std::vector<Key> MostMissed(absl::Span<const KeyTimes> regular, absl::Span<const Key> own) const;
  void JudgeAccumulatedWarmUp(absl::Span<const ColdTime> cold, std::vector<KeyTimes>& regular);
  void PriceBuckets(absl::Span<const ColdTime> cold, absl::Span<const double> excess_ns);

  std::array<BucketCost, kBucketSizes> bucket_costs_ = {};
  std::optional<BucketCounts> accumulated_costs_;  // of sums: of each bucket that is opened, in ns
};

}  // namespace seqpoint

#endif  // DAEMON_SEQPOINT_TIME_MODEL_H_
