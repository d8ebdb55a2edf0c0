// Which keys stand for a whole run: the paper's rule, and ours.
//
//   std::vector<KeyTimes> log = GroupByKey(keys, times_ns);
//   Selection ours = SelectStratified(log, /*measurements=*/16);
//   Selection paper = SelectPaper(log, {});
//   double total = 0;
//   for (const SeqPoint& p : ours.points) total += p.weight * MeasuredTime(p.key);
//
// Threading: free functions without state.
#ifndef DAEMON_SEQPOINT_SELECTION_H_
#define DAEMON_SEQPOINT_SELECTION_H_

#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "daemon/seqpoint/cost_curve.h"
#include "daemon/seqpoint/key.h"

namespace seqpoint {

// All iterations with one key. Times may be in any unit.
struct KeyTimes {
  Key key;
  double count = 0;
  double mean = 0;
  double m2 = 0;  // sum of squared differences from the mean
};

// In key order. The order of the input does not matter beyond rounding.
std::vector<KeyTimes> GroupByKey(absl::Span<const Key> keys, absl::Span<const double> times);

struct SeqPoint {
  Key key;
  double weight = 0;     // iterations it stands for
  int measurements = 1;  // how often to measure it; its mean is taken
  double cost = 0;       // expected time of one iteration; 0 where the rule has no notion of it
  double noise = 0;      // standard deviation of one about it; likewise
  double known_from = INFINITY;  // iterations that `cost` rests on
};

struct Selection {
  std::vector<SeqPoint> points;  // in key order; weights sum to the number of iterations
  int bins = 0;
  // Relative to the total: for the paper's rule the error on the log that chose the points, for
  // ours the expected standard error of one measurement per point.
  double error = 0;
  // By how much the variance of noise varies more between few iterations than that of normal noise:
  // 1, and more where some iterations are far slower than others.
  double tails = 1;
};

// Pati et al., ISPASS 2020, section IV: each key its own SeqPoint up to `all_up_to` unique keys;
// else bins of equal width, the key nearest to the bin's mean for each, one bin more until the
// projected total is within `max_error` of the logged one.
struct PaperOptions {
  int all_up_to = 10;
  int first_bins = 5;
  int max_bins = 1000;
  double max_error = 0.01;
};
// One-dimensional: bins are over key.first.
Selection SelectPaper(absl::Span<const KeyTimes> log, const PaperOptions& options);

// Neighbouring keys taken together, with what selection needs to know of them.
struct LengthGroup {
  Key key;                       // the one whose expected time is nearest to the group's mean
  double count = 0;              // iterations
  double cost = 0;               // expected time of one
  double noise = 0;              // standard deviation of one about it
  double known_from = INFINITY;  // iterations that `cost` rests on
  std::array<double, 2> offset = {0, 0};  // of the mean of its iterations' keys from `key`
};

// At most `max_groups` of groups with positive counts, cut where count and time are in balance, in
// the order in which strata are contiguous: by key in one dimension, by expected cost in two.
// `group_of`, when given, receives the group of each group. `known`: the curve whose values the
// means are, where they are not measured. `tails`: see Selection.
std::vector<LengthGroup> BuildLengthGroups(absl::Span<const KeyTimes> log, int max_groups,
                                           std::vector<int>* group_of = nullptr,
                                           const Quadratic* known = nullptr,
                                           double* tails = nullptr);

// A part of a stratum that gets one measurement.
struct StratumSample {
  int first_group = 0;
  int last_group = 0;
  int group = 0;  // the one that stands for it
  int stratum = 0;
  double weight = 0;  // iterations
};

struct StratumSelection {
  std::vector<StratumSample> samples;  // in group order
  std::vector<double> benefit;         // per stratum: variance of the total at one measurement
  std::vector<double> error_at;        // [m]: relative standard error with m measurements, from 1
};

// Strata are contiguous in groups; an exact dynamic program finds the borders and the number of
// measurements in each that minimise the variance of the total (Neyman allocation with finite
// population correction, integer), then each stratum is cut into samples of equal mass, for each of
// which the group stands that is expected to miss its mean least, noise included. Weights are those
// that minimise variance plus the error of a cost curve that changed its shape. At worst O(groups^2
// · measurements^2); strata that cost more than a whole that was found are passed over.
StratumSelection SelectStratumSamples(absl::Span<const LengthGroup> groups, int measurements);

// How a SeqPoint will be measured: so many single iterations, or all that have its length. Then
// lengths that occur often are known better, and stand for others rather.
enum class Measuring : uint8_t { kSingle, kWhole };

// Both of the above for a log. Needs no order and no randomness.
Selection SelectStratified(absl::Span<const KeyTimes> log, int measurements,
                           Measuring measuring = Measuring::kSingle);

}  // namespace seqpoint

#endif  // DAEMON_SEQPOINT_SELECTION_H_
