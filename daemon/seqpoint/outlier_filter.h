// OutlierFilter: which iterations are ordinary.
//
// An iteration whose time deviates from the curve by more than the outlier threshold is a stall:
// its time is in the sum and in no model. Beyond the clipping threshold it is slow: its time is
// clipped, and the excess has sums of its own. A key whose clipped times agree with each other gets
// a baseline of its own. docs/internals/seqpoint-engine.md, Time.
//
// Threading: values. Ownership: the times of ordinary iterations are in the caller's KeyTable.
// Units: times in ns, deviations relative.
#ifndef DAEMON_SEQPOINT_OUTLIER_FILTER_H_
#define DAEMON_SEQPOINT_OUTLIER_FILTER_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "daemon/seqpoint/block_trace.h"
#include "daemon/seqpoint/cost_curve.h"
#include "daemon/seqpoint/key_table.h"
#include "daemon/seqpoint/time_model.h"
#include "daemon/seqpoint/time_sample.h"

namespace seqpoint {

// Clipped times and stalls of one key that agree with each other.
struct ClippedTimes {
  double count = 0;
  double mean_ns = 0;
  double m2 = 0;
  double level = 0;                         // mean of OutlierFilter::level when they ran
  double against = 0;                       // the key's iterations since that do not agree
  double accepted = 0, accepted_ns = 0;     // those that are no stalls: in OrdinaryTimes, as this
  double excess_ns = 0, excess_square = 0;  // what they added to the filter's sums
  double timed_before = 0, clipped_before = 0;  // the filter's counts before the first of them
};

struct OutlierFilter {
  std::vector<KeyTime> pending;  // iterations before there was a curve to judge them by
  double timed = 0;              // iterations that were judged or are pending, stalls included
  double next_curve_at = 0;      // `timed` at which the curve is fitted again
  std::optional<Quadratic> curve;
  double outlier_threshold = 0;
  double clipping_threshold = 0;
  double clipped = 0;  // iterations beyond either, also those that were reinstated
  absl::flat_hash_map<Key, ClippedTimes> clipped_times;
  uint64_t stalls = 0;
  std::vector<KeyTime> recent_stalls;
  double stall_rate = 0;  // moving average: where stalls are many, times have changed for good
  double slow_excess_ns = 0, slow_excess_square = 0;  // of slow iterations and stalls
  uint64_t regime_changes = 0;
  // Time at equal length now, against the start of the run; its sum over accepted iterations; what
  // it was in the mean when the curve was fitted.
  double level = 1, level_sum = 0, curve_level = 1;
  // Iterations that are no stalls, and the sums of their residuals for noise and correlation.
  double accepted = 0, previous_residual = 0, residual_square = 0, residual_product = 0;
  BlockTrace trace;  // of accepted iterations, clipped

  // A repeated iteration of a known length. `newest`: the highest number of an iteration so far.
  void Add(const KeyTime& time, uint64_t newest, const TimeSample& sample, OrdinaryTimes& its,
           KeyTable& keys);

  double judged() const { return accepted + static_cast<double>(stalls); }
  // By how much the mean of neighbouring iterations is less certain than that of independent ones.
  double Correlation() const;
  // Standard deviation of one iteration without slow ones, correlation included.
  double Noise() const;

 private:
  void FitFirstCurve(uint64_t newest, const TimeSample& sample, KeyTable& keys);
  void RefreshCurve(const TimeSample& sample, const KeyTable& keys);
  void SetThresholds(const TimeSample& sample, const KeyTable& keys);
  void AcceptNewRegime(double residual, uint64_t newest, const TimeSample& sample, KeyTable& keys);
  double NormalTime(const Key& key, const OrdinaryTimes& its) const;
  double CountStall(const KeyTime& time, const OrdinaryTimes& its, int sign);
  void Accept(const KeyTime& time, uint64_t newest, OrdinaryTimes& its);
  double Agreement() const;
  void NoteClipped(const KeyTime& time, double accepted_ns, double excess_ns, OrdinaryTimes& its);
  void NoteUnclipped(const Key& key);
  bool IsBaseline(const ClippedTimes& times, const OrdinaryTimes& its) const;
  void Reinstate(const Key& key, const ClippedTimes& times, OrdinaryTimes& its);
};

}  // namespace seqpoint

#endif  // DAEMON_SEQPOINT_OUTLIER_FILTER_H_
