#include "daemon/seqpoint/run_difference.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_format.h"
#include "daemon/base/statistics.h"
#include "daemon/seqpoint/cost_curve.h"

namespace seqpoint {
namespace {

// Fewer usable times say nothing of how far a mean may be off.
constexpr size_t kFewestTimes = 16;
// Iterations in a bin of the curve, and most bins. The mean of 32 is known to a sixth of the noise
// of one, and within a 32nd of the iterations a parabola is as good as straight.
constexpr size_t kBinIterations = 32;
constexpr size_t kMostBins = 32;
// Consecutive parts of a run whose levels tell how far its level wanders. Ten leave Student's
// quantile near the normal one (2.26), and see drifts down to a tenth of the run.
constexpr size_t kMostDifferenceBlocks = 10;
constexpr size_t kBlockIterations = 8;
// Lengths are the same where both runs have some in a cell of so many equal parts of both runs'
// iterations together: of one dimension, and of each of two.
constexpr int kCells = 16, kCellsOfTwo = 8;
// Beyond the lengths of a run its curve is taken to go on, and what it rises or falls there to be
// off by a quarter (one standard deviation): real costs are linear to quadratic in the length, and
// over a doubling of it a parabola through half of that range misses by less. What the parabola's
// own coefficients leave open comes on top.
constexpr double kDoubtOfRise = 0.25;
// With more doubt than that about its total a run's curve is not asked for the other's lengths.
constexpr double kMostDoubt = 0.25;
// First iterations of a length are kept apart where others are left to tell what it costs.
constexpr double kMostFirsts = 0.25;

using Histogram = std::map<Key, double>;

int64_t At(const Key& key, int d) { return d == 0 ? key.first : key.second; }

// Which of the lengths that another run has are known in this one.
class Lengths {
 public:
  Lengths(const Histogram& own, const Histogram& others) {
    two_ = false;
    for (const Histogram* h : {&own, &others}) {
      for (const auto& [key, count] : *h) two_ = two_ || key.second != 0;
    }
    for (int d = 0; d < (two_ ? 2 : 1); ++d) edges_[d] = Edges(own, others, d);
    for (const auto& [key, count] : own) {
      cells_.insert(CellOf(key));
      box_.Add(key);
    }
  }

  const KeyBox& box() const { return box_; }
  bool Has(const Key& key) const {
    if (!box_.Contains(key)) return false;
    const auto [u, v] = CellOf(key);
    if (!two_) return cells_.contains({u, v});
    // Cells of two dimensions are many: at the rim of the cloud one of them may be empty by chance.
    for (int du = -1; du <= 1; ++du) {
      for (int dv = -1; dv <= 1; ++dv) {
        if (cells_.contains({u + du, v + dv})) return true;
      }
    }
    return false;
  }

 private:
  // Each run counts as much as the other, however many iterations it has.
  std::vector<int64_t> Edges(const Histogram& own, const Histogram& others, int d) const {
    std::map<int64_t, double> mass;
    for (const Histogram* h : {&own, &others}) {
      double total = 0;
      for (const auto& [key, count] : *h) total += count;
      for (const auto& [key, count] : *h) mass[At(key, d)] += count / total / 2;
    }
    const int cells = two_ ? kCellsOfTwo : kCells;
    std::vector<int64_t> edges;
    double before = 0;
    for (const auto& [value, share] : mass) {
      before += share;
      if (before >= static_cast<double>(edges.size() + 1) / cells) edges.push_back(value);
    }
    return edges;
  }
  std::pair<int, int> CellOf(const Key& key) const {
    std::array<int, 2> cell = {0, 0};
    for (int d = 0; d < (two_ ? 2 : 1); ++d) {
      const auto at = std::lower_bound(edges_[d].begin(), edges_[d].end(), At(key, d));
      cell[d] = static_cast<int>(at - edges_[d].begin());
    }
    return {cell[0], cell[1]};
  }

  bool two_;
  std::vector<int64_t> edges_[2];
  std::set<std::pair<int, int>> cells_;
  KeyBox box_;
};

// The time of an iteration of a length in a run: a parabola times the ratio of the bin of equally
// costly iterations. Σ over the run's own ordinary iterations is the sum of their times.
class Curve {
 public:
  // `ordinary`: whether an iteration is no stall and no costly first one.
  Curve(const RunLog& log, const std::vector<bool>& ordinary) {
    std::vector<Key> keys;
    std::vector<double> times;
    for (size_t i = 0; i < log.size(); ++i) {
      if (!ordinary[i]) continue;
      keys.push_back(log.keys[i]);
      times.push_back(log.times[i]);
    }
    // One by one, not the mean of a length: slow ones lose weight, but not within a mean, and would
    // bend the parabola beyond the lengths of the run.
    quadratic_ = Quadratic::Fit(keys, times, std::vector<double>(keys.size(), 1.0));
    times_ = static_cast<double>(times.size());
    for (int d = 0; d < 2; ++d) {
      double squares = 0;
      for (const Key& key : keys) centre_[d] += static_cast<double>(At(key, d)) / times_;
      for (const Key& key : keys) {
        squares += std::pow(static_cast<double>(At(key, d)) - centre_[d], 2);
      }
      spread_[d] = std::sqrt(squares / times_);
    }
    MakeBins(keys, times);
    FindNoise(keys, times);
  }

  double operator()(const Key& key) const {
    const double expected = quadratic_(key);
    return expected * bins_[BinOf(expected)].ratio;
  }
  double noise() const { return std::sqrt(variance_); }  // of one iteration, relative
  double freedom() const { return freedom_; }

  // A sum over iterations, in parts whose errors are independent.
  struct Sum {
    std::vector<double> of_bin;
    double all = 0;
    double doubt = 0;  // standard deviation, for lengths that the run lacks
  };
  Sum SumOver(const Histogram& histogram, const Lengths& known) const {
    Sum sum{std::vector<double>(bins_.size())};
    for (const auto& [key, count] : histogram) {
      const double expected = quadratic_(key);
      const size_t bin = BinOf(expected);
      const double cost = count * expected * bins_[bin].ratio;
      sum.of_bin[bin] += cost;
      sum.all += cost;
      if (!known.Has(key)) sum.doubt += count * DoubtAt(key, known);
    }
    return sum;
  }
  double Covariance(const Sum& a, const Sum& b) const {
    double covariance = level_variance_ * a.all * b.all;
    for (size_t i = 0; i < bins_.size(); ++i) {
      covariance += a.of_bin[i] * b.of_bin[i] * variance_ / bins_[i].count;
    }
    return covariance + a.doubt * b.doubt;
  }

 private:
  struct Bin {
    double upper = INFINITY;  // expected times up to here
    double ratio = 1;
    double count = 0;
  };

  // The doubt of the cost of a length that the run lacks; it may be infinite.
  double DoubtAt(const Key& key, const Lengths& known) const {
    const double cost = (*this)(key);
    // Between its lengths the cost is between that of the next ones, which may be the ends.
    const auto [low, high] = known.box();
    const double rise =
        known.box().Contains(key)
            ? std::min(std::abs(cost - (*this)(low)), std::abs((*this)(high)-cost))
            : std::abs(cost - (*this)({std::clamp(key.first, low.first, high.first),
                                       std::clamp(key.second, low.second, high.second)}));
    // The variance of a parabola's value that many deviations from the middle of its data.
    double distance = 0;
    for (int d = 0; d < 2; ++d) {
      const double apart = std::abs(static_cast<double>(At(key, d)) - centre_[d]);
      if (apart > 0) distance = std::max(distance, apart / spread_[d]);
    }
    const double bend = (distance * distance - 1) / std::sqrt(2);
    const double of_fit =
        std::sqrt(variance_ / times_ * (1 + distance * distance + bend * bend)) * cost;
    return std::hypot(kDoubtOfRise * rise, of_fit);
  }

  void MakeBins(const std::vector<Key>& keys, const std::vector<double>& times) {
    std::vector<std::pair<double, double>> rows;  // expected, time
    for (size_t i = 0; i < keys.size(); ++i) rows.emplace_back(quadratic_(keys[i]), times[i]);
    std::sort(rows.begin(), rows.end());
    const size_t bins = std::clamp<size_t>(rows.size() / kBinIterations, 1, kMostBins);
    double expected = 0, time = 0, count = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      expected += rows[i].first;
      time += rows[i].second;
      count += 1;
      const bool last = i + 1 == rows.size();
      // A last bin of a few would hold whatever these met, also for longer lengths than its own.
      const bool full = i + 1 >= (bins_.size() + 1) * rows.size() / bins &&
                        i + 1 + kBinIterations / 2 <= rows.size();
      if (!last && (!full || rows[i + 1].first == rows[i].first)) continue;
      bins_.push_back({last ? INFINITY : rows[i].first, time / expected, count});
      expected = time = count = 0;
    }
  }

  size_t BinOf(double expected) const {
    const auto at =
        std::lower_bound(bins_.begin(), bins_.end(), expected,
                         [](const Bin& bin, double value) { return bin.upper < value; });
    return std::min(static_cast<size_t>(at - bins_.begin()), bins_.size() - 1);
  }

  // The noise of single iterations and of the level of the run. Parts of the run that differ by
  // more than their noise say how far the whole may be from a run of the same work.
  void FindNoise(const std::vector<Key>& keys, const std::vector<double>& times) {
    const size_t n = keys.size();
    const size_t blocks = std::clamp<size_t>(n / kBlockIterations, 2, kMostDifferenceBlocks);
    std::vector<double> level(blocks), count(blocks);
    double squares = 0;
    for (size_t i = 0; i < n; ++i) {
      const double residual = times[i] / (*this)(keys[i]) - 1;
      squares += residual * residual;
      level[i * blocks / n] += residual;
      count[i * blocks / n] += 1;
    }
    const double parameters = static_cast<double>(bins_.size());
    variance_ = squares / std::max(1.0, static_cast<double>(n) - parameters);
    double mean = 0, spread = 0;
    for (size_t b = 0; b < blocks; ++b) {
      level[b] /= count[b];
      mean += level[b] / static_cast<double>(blocks);
    }
    for (const double value : level) spread += (value - mean) * (value - mean);
    freedom_ = static_cast<double>(blocks) - 1;
    const double chance = variance_ * static_cast<double>(blocks) / static_cast<double>(n);
    level_variance_ = std::max(0.0, spread / freedom_ - chance);
  }

  Quadratic quadratic_;
  double times_ = 0;                                // ordinary ones
  double centre_[2] = {0, 0}, spread_[2] = {0, 0};  // of their lengths
  std::vector<Bin> bins_;
  double variance_ = 0;
  double level_variance_ = 0;
  double freedom_ = 1;
};

struct Prepared {
  CleanLog clean;
  std::vector<bool> ordinary;
  Histogram histogram;  // all iterations with a length
  double keyed = 0;
  double iterations = 0;
};

Prepared Prepare(const RunToCompare& run, bool with_lengths) {
  Prepared p;
  const std::vector<bool> none(run.log.size(), false);  // start-up is no iteration of the run
  p.clean = CleanUp(run.log, none);
  p.ordinary.assign(run.log.size(), true);
  if (with_lengths) {
    const std::vector<bool> first = FirstsOf(run.log.keys);
    const auto firsts = static_cast<double>(std::count(first.begin(), first.end(), true));
    const bool apart = firsts <= kMostFirsts * static_cast<double>(run.log.size());
    for (size_t i = 0; i < run.log.size(); ++i) {
      p.ordinary[i] = !p.clean.apart[i] && !(apart && first[i]);
    }
  }
  for (const Key& key : run.log.keys) p.histogram[key] += 1;
  for (const Key& key : run.untimed) p.histogram[key] += 1;
  p.keyed = static_cast<double>(run.log.size() + run.untimed.size());
  p.iterations = p.keyed + static_cast<double>(run.unkeyed + run.unknown);
  return p;
}

// The time of stalls and costly first iterations beyond the usual, for one iteration among all with
// a time, relative to the usual time.
Moments ExcessOf(const RunLog& log, const std::vector<bool>& ordinary, const Curve& curve) {
  Moments excess;
  for (size_t i = 0; i < log.size(); ++i) {
    excess.Add(ordinary[i] ? 0 : log.times[i] / curve(log.keys[i]) - 1);
  }
  return excess;
}

// All iterations as of one length.
RunToCompare WithoutLengths(RunToCompare run) {
  for (Key& key : run.log.keys) key = {};
  for (Key& key : run.untimed) key = {};
  return run;
}

std::string InPercent(double share) { return absl::StrFormat("%.0f %%", 100 * share); }

constexpr int kBase = 0, kOther = 1;

// Linear in the four mean costs: [of this run's curve][at that run's lengths].
struct Coefficients {
  double at[2][2] = {};
};
enum PartOf { kIterations, kLengths, kCost, kParts };

// The change of each factor, averaged over the orders in which they can be changed one after the
// other (Shapley 1953). Orders in which a curve is asked for lengths that it does not know are left
// out. False: there is no other.
bool Share(const double iterations[2], const bool known[2][2], Coefficients parts[kParts]) {
  std::array<int, kParts> order = {kIterations, kLengths, kCost};
  int orders = 0;
  do {
    std::array<int, kParts> state = {kBase, kBase, kBase};
    Coefficients steps[kParts];
    bool all_known = true;
    for (const int factor : order) {
      const auto add = [&](double sign) {
        const int curve = state[kCost], lengths = state[kLengths];
        all_known = all_known && known[curve][lengths];
        steps[factor].at[curve][lengths] += sign * iterations[state[kIterations]];
      };
      add(-1);
      state[factor] = kOther;
      add(1);
    }
    if (!all_known) continue;
    ++orders;
    for (int p = 0; p < kParts; ++p) {
      for (int c = 0; c < 2; ++c) {
        for (int l = 0; l < 2; ++l) parts[p].at[c][l] += steps[p].at[c][l];
      }
    }
  } while (std::next_permutation(order.begin(), order.end()));
  for (int p = 0; p < kParts; ++p) {
    for (auto& row : parts[p].at) {
      for (double& value : row) value /= std::max(1, orders);
    }
  }
  return orders > 0;
}

std::string NoTimes(const RunToCompare& run, const std::string& name) {
  const size_t times = run.log.size() + static_cast<size_t>(run.unkeyed);
  if (times == 0) return absl::StrFormat("no iteration of %s has a time of its own", name);
  if (run.log.size() < kFewestTimes) {
    return absl::StrFormat("only %d iterations of %s have a usable time; %d are needed",
                           run.log.size(), name, kFewestTimes);
  }
  return "";
}

// Why the lengths of these runs say nothing of their times; empty: they do.
std::string NoLengths(const RunToCompare& base, const RunToCompare& other,
                      const CompareRunsOptions& options) {
  if (!options.incomparable.empty()) return options.incomparable;
  bool explained = false;
  for (const RunToCompare* run : {&base, &other}) {
    const std::string& name = run == &base ? options.base_name : options.other_name;
    if (run->unkeyed > static_cast<int64_t>(run->log.size())) {
      return absl::StrFormat("most iterations of %s have no length", name);
    }
    const std::vector<bool> none(run->log.size(), false);
    const KeyVerdict verdict = FitOf(CleanUp(run->log, none)).verdict;
    if (verdict == KeyVerdict::kTooFew) {
      return absl::StrFormat(
          "%s has too few iterations with a time to tell what their lengths cost", name);
    }
    explained = explained || verdict == KeyVerdict::kExplained;
  }
  return explained ? "" : "lengths do not explain the time of an iteration in either run";
}

bool HasLengths(const RunToCompare& run) {
  return std::any_of(run.log.keys.begin(), run.log.keys.end(),
                     [&](const Key& key) { return key != run.log.keys.front(); });
}

}  // namespace

Estimate DifferenceOf(const Estimate& other, const Estimate& base) {
  const double value = other.value - base.value;
  return {value, value - std::hypot(other.value - other.low, base.high - base.value),
          value + std::hypot(other.high - other.value, base.value - base.low)};
}

RunDifference CompareRuns(const RunToCompare& base_run, const RunToCompare& other_run,
                          const CompareRunsOptions& options) {
  RunDifference result;
  result.not_known = NoTimes(base_run, options.base_name);
  if (result.not_known.empty()) result.not_known = NoTimes(other_run, options.other_name);
  if (!result.not_known.empty()) return result;
  // One length that never changes needs no curve.
  const bool one_length = !HasLengths(base_run) && !HasLengths(other_run) &&
                          base_run.log.keys.front() == other_run.log.keys.front();
  if (!one_length) result.not_comparable = NoLengths(base_run, other_run, options);

  for (;;) {
    const bool with_lengths = result.not_comparable.empty();
    const RunToCompare runs[2] = {with_lengths ? base_run : WithoutLengths(base_run),
                                  with_lengths ? other_run : WithoutLengths(other_run)};
    const Prepared prepared[2] = {Prepare(runs[kBase], with_lengths),
                                  Prepare(runs[kOther], with_lengths)};
    const Curve curves[2] = {Curve(runs[kBase].log, prepared[kBase].ordinary),
                             Curve(runs[kOther].log, prepared[kOther].ordinary)};
    const Lengths lengths[2] = {Lengths(prepared[kBase].histogram, prepared[kOther].histogram),
                                Lengths(prepared[kOther].histogram, prepared[kBase].histogram)};
    bool known[2][2] = {{true, true}, {true, true}};
    double mean[2][2];
    Curve::Sum sums[2][2];
    for (int c = 0; c < 2; ++c) {
      for (int l = 0; l < 2; ++l) {
        sums[c][l] = curves[c].SumOver(prepared[l].histogram, lengths[c]);
        mean[c][l] = sums[c][l].all / prepared[l].keyed;
      }
      double alone = 0;  // of the other run, that this one lacks
      for (const auto& [key, count] : prepared[1 - c].histogram) {
        if (!lengths[c].Has(key)) alone += count / prepared[1 - c].keyed;
      }
      known[c][1 - c] = sums[c][1 - c].doubt <= kMostDoubt * sums[c][1 - c].all;
      if (with_lengths) (c == kBase ? result.other_alone : result.base_alone) = alone;
    }
    const double iterations[2] = {prepared[kBase].iterations, prepared[kOther].iterations};
    Coefficients parts[kParts];
    if (!Share(iterations, known, parts)) {
      result.not_comparable = absl::StrFormat(
          "their lengths are too different: %s of the iterations of %s have lengths that %s lacks, "
          "and %s the other way round",
          InPercent(result.base_alone), options.base_name, options.other_name,
          InPercent(result.other_alone));
      continue;
    }
    const double quantile = StudentQuantile(
        options.confidence, std::min(curves[kBase].freedom(), curves[kOther].freedom()));
    // `coefficients` are of means.
    const auto estimate = [&](const Coefficients& coefficients) {
      double value = 0, variance = 0;
      for (int c = 0; c < 2; ++c) {
        for (int l = 0; l < 2; ++l) {
          const double a = coefficients.at[c][l];
          value += a * mean[c][l];
          for (int m = 0; m < 2; ++m) {
            variance += a / prepared[l].keyed * coefficients.at[c][m] / prepared[m].keyed *
                        curves[c].Covariance(sums[c][l], sums[c][m]);
          }
        }
      }
      const double reach = quantile * std::sqrt(std::max(0.0, variance));
      return Estimate{value, value - reach, value + reach};
    };
    result.iterations = estimate(parts[kIterations]);
    result.cost = estimate(parts[kCost]);
    if (with_lengths) result.lengths = estimate(parts[kLengths]);

    double total[2], doubt[2];
    for (int r = 0; r < 2; ++r) {
      const RunToCompare& run = runs[r];
      const Moments excess = ExcessOf(run.log, prepared[r].ordinary, curves[r]);
      Histogram untimed;
      double squares = 0;
      for (const Key& key : run.untimed) {
        untimed[key] += 1;
        squares += std::pow(curves[r](key), 2);
      }
      squares += static_cast<double>(run.unknown) * std::pow(mean[r][r], 2);
      const Curve::Sum sum = curves[r].SumOver(untimed, lengths[r]);
      const double usual = sum.all + static_cast<double>(run.unknown) * mean[r][r];
      total[r] = prepared[r].clean.total + run.unkeyed_time + usual * (1 + excess.Mean());
      const double of_one = curves[r].noise() * curves[r].noise() + excess.Variance();
      const double of_mean = excess.Variance() / static_cast<double>(run.log.size());
      doubt[r] = quantile * std::sqrt(curves[r].Covariance(sum, sum) + squares * of_one +
                                      usual * usual * of_mean);
    }
    const double rest[2] = {runs[kBase].rest, runs[kOther].rest};
    result.base = {total[kBase], total[kBase] - doubt[kBase],
                   total[kBase] + doubt[kBase] + rest[kBase]};
    result.other = {total[kOther], total[kOther] - doubt[kOther],
                    total[kOther] + doubt[kOther] + rest[kOther]};
    Coefficients own;
    own.at[kBase][kBase] = -iterations[kBase];
    own.at[kOther][kOther] = iterations[kOther];
    const Estimate usual = estimate(own);
    const double more = total[kOther] - total[kBase] - usual.value;
    // Where lengths are not told apart it is a part of the mean.
    const Estimate apart = {more, more - rest[kBase], more + rest[kOther]};
    if (with_lengths) {
      result.disturbances = apart;
    } else {
      result.cost = {result.cost.value + apart.value, result.cost.low + apart.low,
                     result.cost.high + apart.high};
    }
    result.difference = {usual.value + more, usual.low + more - rest[kBase],
                         usual.high + more + rest[kOther]};

    double before = 0, after = 0;
    for (int l = 0; l < 2; ++l) {
      const double weight = parts[kCost].at[kOther][l];  // and minus that of the base's curve
      before += weight * mean[kBase][l];
      after += weight * mean[kOther][l];
    }
    result.cost_ratio = before > 0 ? after / before : 1;
    if (!with_lengths) return result;
    Histogram at;
    for (int l = 0; l < 2; ++l) {
      const double weight = parts[kCost].at[kOther][l] / prepared[l].keyed;
      if (weight == 0) continue;
      for (const auto& [key, count] : prepared[l].histogram) at[key] += weight * count;
    }
    for (const auto& [key, weight] : at) result.at.push_back({key, weight});
    return result;
  }
}

}  // namespace seqpoint
