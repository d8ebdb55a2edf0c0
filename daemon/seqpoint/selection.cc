#include "daemon/seqpoint/selection.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "daemon/base/linear_solver.h"
#include "daemon/seqpoint/bins.h"
#include "daemon/seqpoint/cost_curve.h"

namespace seqpoint {
namespace {

constexpr int kMaxGroups = 128;
// A group's noise leans on that of all groups as on this many iterations.
constexpr double kNoiseShrinkage = 8;
constexpr double kFewForNoise = 3;
// The assumption about that before anything is known, its weight in iterations, and when the log
// itself knows enough.
constexpr double kPriorNoise = 0.02;
constexpr double kPriorWeight = 6;
constexpr double kEnoughForNoise = 64;
// A group with fewer iterations has no level of its own.
constexpr double kRare = 8;
// How much a cost curve may change its shape between choosing and measuring: for 1, then for the
// cost times each of QuadraticTerms. The first two are no ridge but (all but) constraints: the
// number of iterations and the total cost of the run that was seen.
constexpr double kShapeChange[] = {1e3, 1e2, 0.05, 0.02, 0.05, 0.02, 0.02};
constexpr int kShapes = kTerms + 1;

// Total, mean and within-variance of a run of groups, from prefix sums.
class GroupSums {
 public:
  explicit GroupSums(absl::Span<const LengthGroup> groups) {
    count_.push_back(0);
    cost_.push_back(0);
    square_.push_back(0);
    noise_.push_back(0);
    double total = 0, total_cost = 0;
    for (const LengthGroup& a : groups) {
      total += a.count;
      total_cost += a.count * a.cost;
    }
    const double mean = total > 0 ? total_cost / total : 0;
    for (const LengthGroup& a : groups) {
      const double cost = a.cost - mean;  // keeps the differences of squares exact enough
      count_.push_back(count_.back() + a.count);
      cost_.push_back(cost_.back() + a.count * cost);
      square_.push_back(square_.back() + a.count * cost * cost);
      noise_.push_back(noise_.back() + a.count * a.noise * a.noise);
    }
  }

  double Count(int begin, int end) const { return count_[end] - count_[begin]; }

  // Variance of the stratum's total, estimated from one measurement drawn at random.
  double VarianceOfTotal(int begin, int end) const {
    const double n = Count(begin, end);
    if (!(n > 0)) return 0;
    const double cost = cost_[end] - cost_[begin];
    const double spread = std::max(0.0, square_[end] - square_[begin] - cost * cost / n);
    return n * (spread + noise_[end] - noise_[begin]);
  }

 private:
  std::vector<double> count_, cost_, square_, noise_;
};

double Distance(const Key& a, const Key& b) {
  return std::abs(static_cast<double>(a.first) - static_cast<double>(b.first));
}

struct Strata {
  std::vector<int> ends;  // past the last group of each
  std::vector<int> sizes;
  std::vector<double> error_at;  // squared, absolute
};

Strata OptimalStrata(absl::Span<const LengthGroup> groups, int measurements) {
  const int n = static_cast<int>(groups.size());
  const GroupSums sums(groups);
  const double infinity = std::numeric_limits<double>::infinity();
  std::vector<double> share(measurements + 1);  // of the variance, that so many leave
  for (int h = 1; h <= measurements; ++h) share[h] = 1.0 / h;
  // Variance of the stratum's total, by the number of measurements: the more the less.
  struct Costs {
    double variance, exhausted;
    const double* share;
    double operator()(int h) const { return variance * std::max(0.0, share[h] - exhausted); }
  };
  const auto costs_of = [&](int begin, int end) {
    return Costs{sums.VarianceOfTotal(begin, end), 1 / std::max(1.0, sums.Count(begin, end)),
                 share.data()};
  };
  // More than there are, or several where all are the same, are no better.
  const auto most_of = [&](const Costs& costs, double count) {
    if (!(costs.variance > 0)) return 1;
    return count < measurements ? std::max(1, static_cast<int>(std::ceil(count))) : measurements;
  };
  // best[j·width + m]: least variance of the first j groups with exactly m measurements. What led
  // there is found again on the way back. From 2 on four numbers of measurements at a time, which
  // vectorises; those below 0 are impossible, those above `measurements` lead nowhere.
  constexpr int kBlock = 4;
  const int blocks = (measurements + kBlock - 2) / kBlock;
  const int width = kBlock * (blocks + 1) + 2;
  const auto row = [&](std::vector<double>& rows, int j) { return &rows[j * width + kBlock]; };
  std::vector<double> best((n + 1) * width, infinity);
  row(best, 0)[0] = 0;
  std::vector<double> least((n + 1) * width, infinity);  // of best, with at most m measurements
  std::vector<double> bounds(blocks);                    // the greatest of a block so far
  for (int end = 1; end <= n; ++end) {
    double* const to = row(best, end);
    const Costs cost_of_all = costs_of(0, end);
    const int most_of_all = most_of(cost_of_all, sums.Count(0, end));
    for (int h = 1; h <= most_of_all; ++h) to[h] = cost_of_all(h);
    for (int block = 0; block < blocks; ++block) {
      const double* const first = to + 2 + block * kBlock;
      bounds[block] = *std::max_element(first, first + kBlock);
    }
    // Narrow strata first: good ones are among them, which leaves little to try of wide ones.
    for (int begin = end - 1; begin > 0; --begin) {
      const double* const from = row(best, begin);
      const double* const from_least = row(least, begin);
      const Costs cost_of = costs_of(begin, end);
      const int most = most_of(cost_of, sums.Count(begin, end));
      int few = 0;  // so many leave too much to `from`, whatever the stratum costs
      double previous = infinity;
      for (int block = 0; block < blocks; ++block) {
        const int first = 2 + block * kBlock, last = first + kBlock - 1;
        const double bound = bounds[block];
        if (bound > previous) few = 0;
        previous = bound;
        while (few < last && from_least[few] >= bound) ++few;
        // The fewer measurements of the stratum the more it costs: until that alone is too much.
        int h = std::min(most, last - few);
        if (h == 0) continue;
        double cost = cost_of(h);
        if (!(cost < bound)) continue;
        double best_of[kBlock];
        std::copy_n(to + first, kBlock, best_of);
        do {
          double sum[kBlock];
          for (int i = 0; i < kBlock; ++i) sum[i] = from[first + i - h] + cost;
          for (int i = 0; i < kBlock; ++i) best_of[i] = std::min(best_of[i], sum[i]);
          if (--h == 0) break;
          cost = cost_of(h);
        } while (cost < bound);
        std::copy_n(best_of, kBlock, to + first);
        bounds[block] = *std::max_element(best_of, best_of + kBlock);
      }
    }
    double* const to_least = row(least, end);
    to_least[0] = to[0];
    for (int m = 1; m <= measurements; ++m) to_least[m] = std::min(to_least[m - 1], to[m]);
  }
  Strata strata;
  const double* const whole = row(best, n);
  for (int m = 1; m <= measurements; ++m) {
    const double exactly = whole[m];
    strata.error_at.push_back(strata.error_at.empty() ? exactly
                                                      : std::min(exactly, strata.error_at.back()));
  }
  // Fewer measurements may do as well: keys that leave nothing to gain get no more.
  int m = measurements;
  while (m > 1 && whole[m - 1] <= whole[m]) --m;
  for (int end = n; end > 0;) {
    int from = 0, size = 0;
    for (int begin = 0; begin < end && size == 0; ++begin) {
      const Costs cost_of = costs_of(begin, end);
      if (m > 0 && cost_of(m) > row(best, end)[m]) continue;
      for (int h = 1; h <= m && size == 0; ++h) {
        const double cost = cost_of(h);
        if (row(best, begin)[m - h] + cost == row(best, end)[m]) {
          from = begin;
          size = h;
        }
        if (cost == 0) break;
      }
    }
    strata.ends.push_back(end);
    strata.sizes.push_back(std::max(size, 1));
    m -= strata.sizes.back();
    end = from;
  }
  std::reverse(strata.ends.begin(), strata.ends.end());
  std::reverse(strata.sizes.begin(), strata.sizes.end());
  return strata;
}

// Minimises Σ(w − w⁰)²σ²/w⁰ + Σ_k τ_k²·(misfit of shape k)². With A the rows τ_k·shape, the change
// is −D⁻¹Aᵀ(I + A·D⁻¹·Aᵀ)⁻¹·(A·w⁰ − target).
void AdjustWeights(absl::Span<const LengthGroup> groups, std::vector<StratumSample>& samples) {
  double total = 0, cost = 0;
  std::vector<Key> keys;
  std::vector<double> counts;
  for (const LengthGroup& a : groups) {
    total += a.count;
    cost += a.count * a.cost;
    keys.push_back(a.key);
    counts.push_back(a.count);
  }
  if (!(total > 0) || !(cost > 0) || samples.size() < 2) return;
  const double mean_cost = cost / total;
  const KeyScale scale = KeyScale::Of(keys, counts);
  using Shape = std::array<double, kShapes>;
  const auto shape = [&](const LengthGroup& a, bool whole) {
    Point point = scale(a.key);
    for (int d = 0; d < 2 && whole; ++d) point[d] += a.offset[d] / scale.unit[d];
    const Terms terms = QuadraticTerms(point);
    Shape values = {kShapeChange[0]};
    for (int k = 1; k < kShapes; ++k) {
      values[k] = kShapeChange[k] * a.cost / mean_cost * terms[k - 1];
    }
    return values;
  };

  Shape misfit = {};
  std::vector<double> system(kShapes * kShapes);
  for (const LengthGroup& a : groups) {
    const Shape target = shape(a, /*whole=*/true);
    for (int k = 0; k < kShapes; ++k) misfit[k] -= a.count / total * target[k];
  }
  for (int k = 0; k < kShapes; ++k) system[k * kShapes + k] = 1;
  std::vector<double> slack(samples.size());  // D⁻¹
  std::vector<Shape> shapes;
  for (size_t i = 0; i < samples.size(); ++i) {
    const LengthGroup& a = groups[samples[i].group];
    const double weight = samples[i].weight / total;
    const double noise = std::max(a.noise / mean_cost, 1e-4);
    slack[i] = weight / (noise * noise);
    shapes.push_back(shape(a, /*whole=*/false));
    for (int k = 0; k < kShapes; ++k) {
      misfit[k] += weight * shapes[i][k];
      for (int l = 0; l <= k; ++l) {
        system[k * kShapes + l] += shapes[i][k] * slack[i] * shapes[i][l];
      }
    }
  }
  if (!Cholesky(system, kShapes)) return;
  SolveLower(system, kShapes, misfit.data());
  SolveUpper(system, kShapes, misfit.data());
  // As much of the change as leaves every weight positive.
  std::vector<double> change(samples.size());
  double step = 1;
  for (size_t i = 0; i < samples.size(); ++i) {
    for (int k = 0; k < kShapes; ++k) change[i] -= total * slack[i] * shapes[i][k] * misfit[k];
    if (!std::isfinite(change[i])) return;
    if (change[i] < 0) step = std::min(step, -0.9 * samples[i].weight / change[i]);
  }
  double sum = 0;
  for (size_t i = 0; i < samples.size(); ++i) sum += samples[i].weight += step * change[i];
  for (StratumSample& s : samples) s.weight *= total / sum;
}

double Total(absl::Span<const KeyTimes> log) {
  double total = 0;
  for (const KeyTimes& g : log) total += g.count * g.mean;
  return total;
}

Selection Finish(std::vector<SeqPoint> points) {
  std::map<Key, SeqPoint> merged;
  for (const SeqPoint& p : points) {
    const auto [it, added] = merged.try_emplace(p.key, p);
    if (added) continue;
    it->second.weight += p.weight;
    it->second.measurements += p.measurements;
  }
  Selection selection;
  for (const auto& [key, point] : merged) selection.points.push_back(point);
  return selection;
}

}  // namespace

std::vector<KeyTimes> GroupByKey(absl::Span<const Key> keys, absl::Span<const double> times) {
  std::map<Key, std::vector<double>> by_key;
  for (size_t i = 0; i < keys.size(); ++i) by_key[keys[i]].push_back(times[i]);
  std::vector<KeyTimes> log;
  for (auto& [key, values] : by_key) {
    // Summed in one order, so that a permuted log gives the same bits.
    std::sort(values.begin(), values.end());
    KeyTimes group{key, static_cast<double>(values.size()), 0, 0};
    group.mean = std::accumulate(values.begin(), values.end(), 0.0) / group.count;
    for (double v : values) group.m2 += (v - group.mean) * (v - group.mean);
    log.push_back(group);
  }
  return log;
}

Selection SelectPaper(absl::Span<const KeyTimes> log, const PaperOptions& options) {
  if (log.empty()) return {};
  std::vector<SeqPoint> points;
  if (log.size() <= static_cast<size_t>(options.all_up_to)) {
    for (const KeyTimes& g : log) points.push_back({g.key, g.count, 1});
    Selection selection = Finish(std::move(points));
    selection.bins = static_cast<int>(log.size());
    return selection;
  }
  const auto [shortest, longest] = std::minmax_element(
      log.begin(), log.end(),
      [](const KeyTimes& a, const KeyTimes& b) { return a.key.first < b.key.first; });
  const double low = static_cast<double>(shortest->key.first);
  const double width = static_cast<double>(longest->key.first) - low;
  const double total = Total(log);
  double error = 0;
  int bins = options.first_bins;
  for (;; ++bins) {
    struct Bin {
      double count = 0, time = 0;
      const KeyTimes* nearest = nullptr;
    };
    std::vector<Bin> bin(bins);
    const auto bin_of = [&](const KeyTimes& g) {
      // Multiplied first: a length on a border then is on its right side, whatever the rounding.
      const double place = (static_cast<double>(g.key.first) - low) * bins / std::max(width, 1.0);
      return &bin[std::min(bins - 1, static_cast<int>(place))];
    };
    for (const KeyTimes& g : log) {
      bin_of(g)->count += g.count;
      bin_of(g)->time += g.count * g.mean;
    }
    for (const KeyTimes& g : log) {
      Bin* b = bin_of(g);
      const double mean = b->time / b->count;
      if (b->nearest == nullptr || std::abs(g.mean - mean) < std::abs(b->nearest->mean - mean)) {
        b->nearest = &g;
      }
    }
    points.clear();
    double projected = 0;
    for (const Bin& b : bin) {
      if (b.nearest == nullptr) continue;
      points.push_back({b.nearest->key, b.count, 1});
      projected += b.count * b.nearest->mean;
    }
    error = total > 0 ? std::abs(projected - total) / total : 0;
    if (error <= options.max_error || bins >= options.max_bins) break;
  }
  Selection selection = Finish(std::move(points));
  selection.bins = bins;
  selection.error = error;
  return selection;
}

std::vector<LengthGroup> BuildLengthGroups(absl::Span<const KeyTimes> log, int max_groups,
                                           std::vector<int>* group_of, const Quadratic* known,
                                           double* tails) {
  const size_t n = log.size();
  std::vector<Key> keys(n);
  std::vector<double> means(n), counts(n), mass(n), curve_at(n);
  double count = 0;
  const double total = Total(log);
  for (const KeyTimes& g : log) count += g.count;
  for (size_t i = 0; i < n; ++i) {
    const KeyTimes& g = log[i];
    keys[i] = g.key;
    means[i] = g.mean;
    counts[i] = g.count;
    mass[i] = total > 0 ? 0.5 * g.count / count + 0.5 * g.count * g.mean / total : 0;
  }
  std::vector<int> bin(log.size());
  if (log.size() <= static_cast<size_t>(max_groups)) {
    std::iota(bin.begin(), bin.end(), 0);
  } else {
    bin = CutIntoBins(keys, mass, max_groups);
  }
  const int bins = bin.empty() ? 0 : 1 + *std::max_element(bin.begin(), bin.end());
  const Quadratic curve = known != nullptr ? *known : Quadratic::Fit(keys, means, counts);
  for (size_t i = 0; i < n; ++i) curve_at[i] = known != nullptr ? means[i] : curve(keys[i]);

  struct Sums {
    double count = 0, expected = 0, time = 0, squares = 0;
    Point sum = {0, 0};  // of the keys
    double distance = std::numeric_limits<double>::infinity();
    Key key;
  };
  std::vector<Sums> sums(bins);
  for (size_t i = 0; i < log.size(); ++i) {
    Sums& s = sums[bin[i]];
    s.count += counts[i];
    s.expected += counts[i] * curve_at[i];
    s.time += counts[i] * means[i];
    s.sum[0] += counts[i] * static_cast<double>(keys[i].first);
    s.sum[1] += counts[i] * static_cast<double>(keys[i].second);
  }
  for (size_t i = 0; i < log.size(); ++i) {
    Sums& s = sums[bin[i]];
    const double distance = std::abs(curve_at[i] - s.expected / s.count);
    if (distance >= s.distance) continue;
    s.distance = distance;
    s.key = keys[i];
  }
  // A group's deviation from the curve leans on zero by as much as noise explains of the deviations
  // of all: where the curve fits, by much, where it does not, hardly.
  double within = 0, freedom = 0, deviations = 0;
  for (size_t i = 0; i < log.size(); ++i) {
    within += log[i].m2 / (means[i] * means[i]);
    freedom += std::max(0.0, counts[i] - 1);
  }
  const double noise = freedom > 0 ? within / freedom : 0;
  double seen = 0;
  for (const Sums& s : sums) {
    if (!(s.expected > 0)) continue;
    deviations += s.count * std::pow(s.time / s.expected - 1, 2) - noise;
    seen += s.count;
  }
  const double peculiar = seen > 0 ? std::max(0.0, deviations / seen) : 0;
  const double shrinkage = peculiar > 0 ? noise / peculiar : 1e9;
  const auto level = [&](const Sums& s) {
    if (!(s.expected > 0)) return 1.0;
    double count = s.count, time = s.time, expected = s.expected;
    // A rare group goes with the nearest that is not.
    const Sums* nearest = nullptr;
    if (count < kRare && !curve.scale.two_dimensional) {
      for (const Sums& other : sums) {
        if (other.count >= kRare &&
            (nearest == nullptr || Distance(other.key, s.key) < Distance(nearest->key, s.key))) {
          nearest = &other;
        }
      }
    }
    if (nearest != nullptr) {
      count += nearest->count;
      time += nearest->time;
      expected += nearest->expected;
    }
    return (count * time / expected + shrinkage) / (count + shrinkage);
  };
  std::vector<double> levels;
  for (const Sums& s : sums) levels.push_back(level(s));
  // Relative residuals about the curve, corrected by the group's own level.
  double squares = 0;
  for (size_t i = 0; i < log.size(); ++i) {
    Sums& s = sums[bin[i]];
    const double expected = curve_at[i] * levels[bin[i]];
    const double miss = means[i] / expected - 1;
    const double square = log[i].m2 / (expected * expected) + counts[i] * miss * miss;
    s.squares += square;
    squares += square;
  }
  const double prior = kPriorWeight * std::max(0.0, 1 - count / kEnoughForNoise);
  const double pooled = (squares + prior * kPriorNoise * kPriorNoise) / (count + prior);
  // Where neighbours differ by more than normal noise makes them differ, tails are heavy, and an
  // group's own noise says little: whether one of its few iterations was a slow one.
  double differences = 0, normal = 0;
  for (int c = 0; c + 1 < bins; ++c) {
    const Sums &a = sums[c], &b = sums[c + 1];
    if (a.count < kFewForNoise || b.count < kFewForNoise) continue;
    differences += std::pow(a.squares / a.count - b.squares / b.count, 2);
    normal += 2 * pooled * pooled * (1 / a.count + 1 / b.count);
  }
  const double heaviness = normal > 0 ? std::max(1.0, differences / normal) : 1.0;
  if (tails != nullptr) *tails = heaviness;
  const double leaning = kNoiseShrinkage * heaviness;
  std::vector<LengthGroup> groups(bins);
  std::vector<int> order(bins);
  for (int c = 0; c < bins; ++c) {
    const Sums& s = sums[c];
    order[c] = c;
    groups[c].key = s.key;
    groups[c].count = s.count;
    groups[c].cost = s.count > 0 ? s.expected * levels[c] / s.count : curve(s.key);
    groups[c].known_from = s.count + shrinkage;
    if (s.count > 0) {
      groups[c].offset = {s.sum[0] / s.count - static_cast<double>(s.key.first),
                          s.sum[1] / s.count - static_cast<double>(s.key.second)};
    }
    groups[c].noise =
        groups[c].cost * std::sqrt((s.squares + leaning * pooled) / (s.count + leaning));
  }
  if (curve.scale.two_dimensional) {
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return groups[a].cost < groups[b].cost; });
  }
  std::vector<LengthGroup> sorted;
  std::vector<int> place(bins);
  for (int c : order) {
    place[c] = static_cast<int>(sorted.size());
    sorted.push_back(groups[c]);
  }
  if (group_of != nullptr) {
    group_of->clear();
    for (int c : bin) group_of->push_back(place[c]);
  }
  return sorted;
}

StratumSelection SelectStratumSamples(absl::Span<const LengthGroup> groups, int measurements) {
  StratumSelection selection;
  double total = 0, total_cost = 0;
  for (const LengthGroup& a : groups) {
    total += a.count;
    total_cost += a.count * a.cost;
  }
  if (!(total > 0) || measurements < 1) return selection;
  const Strata strata = OptimalStrata(groups, measurements);
  for (double variance : strata.error_at) {
    selection.error_at.push_back(total_cost > 0 ? std::sqrt(variance) / total_cost : 0);
  }
  const GroupSums sums(groups);
  int begin = 0;
  double carried = 0;  // what the samples so far stand for and their groups do not cost
  for (size_t h = 0; h < strata.ends.size(); ++h) {
    const int end = strata.ends[h];
    const int samples = strata.sizes[h];
    selection.benefit.push_back(sums.VarianceOfTotal(begin, end));
    const double mass = sums.Count(begin, end) / samples;
    int group = begin;
    double left = groups[group].count;  // of this group
    for (int s = 0; s < samples; ++s) {
      StratumSample sample{group, group, group, static_cast<int>(h), mass};
      double need = mass, cost = 0;
      while (need > 0) {
        const double taken = std::min(need, left);
        cost += taken * groups[group].cost;
        need -= taken;
        left -= taken;
        sample.last_group = group;
        if (left > 1e-9 * mass) break;
        if (group + 1 == end) break;
        left = groups[++group].count;
        if (need <= 1e-9 * mass) break;
      }
      const double wanted = cost / mass + carried / mass;
      const auto squared_error = [&](int a) {
        return std::pow(groups[a].cost - wanted, 2) + std::pow(groups[a].noise, 2);
      };
      for (int a = sample.first_group; a <= sample.last_group; ++a) {
        if (groups[a].count > 0 && squared_error(a) < squared_error(sample.group)) sample.group = a;
      }
      carried += cost - mass * groups[sample.group].cost;
      selection.samples.push_back(sample);
    }
    begin = end;
  }
  AdjustWeights(groups, selection.samples);
  return selection;
}

Selection SelectStratified(absl::Span<const KeyTimes> log, int measurements, Measuring measuring) {
  double tails = 1;
  std::vector<LengthGroup> groups = BuildLengthGroups(log, kMaxGroups, nullptr, nullptr, &tails);
  if (measuring == Measuring::kWhole) {
    for (LengthGroup& a : groups) a.noise /= std::sqrt(std::max(1.0, a.count));
  }
  const StratumSelection samples = SelectStratumSamples(groups, measurements);
  std::vector<SeqPoint> points;
  for (const StratumSample& s : samples.samples) {
    const LengthGroup& group = groups[s.group];
    points.push_back({group.key, s.weight, 1, group.cost, group.noise, group.known_from});
  }
  Selection selection = Finish(std::move(points));
  selection.bins = static_cast<int>(samples.benefit.size());
  selection.tails = tails;
  if (!samples.error_at.empty()) selection.error = samples.error_at.back();
  return selection;
}

}  // namespace seqpoint
