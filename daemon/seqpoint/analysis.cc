#include "daemon/seqpoint/analysis.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <numeric>
#include <queue>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "daemon/base/statistics.h"
#include "daemon/seqpoint/drift_estimate.h"
#include "daemon/seqpoint/outliers.h"
#include "daemon/seqpoint/time_model.h"

namespace seqpoint {
namespace {

constexpr size_t kEnoughForFit = 1 << 16;
// A key's own mean leans on the curve as on so many iterations.
constexpr double kPeculiarShrinkage = 2;
constexpr double kMostResidual = 0.5;
// More of them than that are no stalls but the noise of this log.
constexpr double kMostStalls = 0.05;
// First iterations of a length are apart where they take so much more, beyond chance.
constexpr double kCostlyFirst = 0.02;
constexpr double kCostlyDeviations = 4;
constexpr double kFewestFirsts = 8;
constexpr double kFewestOthers = 64;

// Standard deviations from which on a difference of parts is not taken for chance.
constexpr double kBeyondChance = 3;

// The entry of this key, or else of the next longer one, or else the last.
size_t EntryOf(absl::Span<const KeyTimes> log, const Key& key) {
  const auto at = std::lower_bound(log.begin(), log.end(), key,
                                   [](const KeyTimes& g, const Key& k) { return g.key < k; });
  return std::min(static_cast<size_t>(at - log.begin()), log.size() - 1);
}

// The index of the point nearest to each query: the differences of both dimensions are summed, the
// first of several equally near points is taken. In O(n log n), wherever they lie.
std::vector<size_t> NearestOf(absl::Span<const Key> queries, absl::Span<const Key> points) {
  std::vector<size_t> nearest(queries.size(), 0);
  std::vector<int64_t> distance(queries.size(), INT64_MAX);
  // The nearest of the points that lie in one quadrant from a query has the largest sum of
  // coordinates. A sweep through one dimension knows the largest of all prefixes of the other.
  std::vector<size_t> point_order(points.size()), query_order(queries.size());
  std::vector<int64_t> seconds(points.size());
  std::vector<size_t> largest(points.size() + 1);  // a binary indexed tree of points
  constexpr size_t kNone = SIZE_MAX;
  for (const int64_t u : {1, -1}) {
    const auto by_first = [u](absl::Span<const Key> keys) {
      return [keys, u](size_t a, size_t b) { return u * keys[a].first < u * keys[b].first; };
    };
    std::iota(point_order.begin(), point_order.end(), size_t{0});
    std::iota(query_order.begin(), query_order.end(), size_t{0});
    std::stable_sort(point_order.begin(), point_order.end(), by_first(points));
    std::stable_sort(query_order.begin(), query_order.end(), by_first(queries));
    for (const int64_t v : {1, -1}) {
      const auto sum = [&](const Key& key) { return u * key.first + v * key.second; };
      const auto better = [&](size_t a, size_t b) {
        if (a == kNone || b == kNone) return b == kNone;
        const int64_t sum_a = sum(points[a]), sum_b = sum(points[b]);
        return sum_a != sum_b ? sum_a > sum_b : a < b;
      };
      for (size_t i = 0; i < points.size(); ++i) seconds[i] = v * points[i].second;
      std::sort(seconds.begin(), seconds.end());
      std::fill(largest.begin(), largest.end(), kNone);
      size_t next = 0;
      for (const size_t q : query_order) {
        for (; next < points.size(); ++next) {
          const size_t p = point_order[next];
          if (u * points[p].first > u * queries[q].first) break;
          const auto at = std::lower_bound(seconds.begin(), seconds.end(), v * points[p].second);
          for (size_t i = at - seconds.begin() + 1; i < largest.size(); i += i & -i) {
            if (better(p, largest[i])) largest[i] = p;
          }
        }
        const auto end = std::upper_bound(seconds.begin(), seconds.end(), v * queries[q].second);
        size_t best = kNone;
        for (size_t i = end - seconds.begin(); i > 0; i -= i & -i) {
          if (better(largest[i], best)) best = largest[i];
        }
        if (best == kNone) continue;
        const int64_t apart = sum(queries[q]) - sum(points[best]);
        if (apart > distance[q] || (apart == distance[q] && best > nearest[q])) continue;
        distance[q] = apart;
        nearest[q] = best;
      }
    }
  }
  return nearest;
}

// The time of an iteration of each of the base's keys in `log`: its mean there, or where the log
// lacks it, what the base takes times the ratio of the nearest key that both have.
class TimesOf {
 public:
  TimesOf(absl::Span<const KeyTimes> base, absl::Span<const KeyTimes> log) {
    for (const KeyTimes& g : log) times_[g.key] = g;
    std::vector<Key> shared, missing;
    std::vector<double> ratios;
    for (const KeyTimes& g : base) {
      const auto it = times_.find(g.key);
      if (it == times_.end()) {
        missing.push_back(g.key);
        continue;
      }
      shared.push_back(g.key);
      ratios.push_back(it->second.mean / g.mean);
    }
    any_shared_ = !shared.empty();
    if (!any_shared_) return;
    const std::vector<size_t> nearest = NearestOf(missing, shared);
    for (size_t i = 0; i < missing.size(); ++i) ratio_[missing[i]] = ratios[nearest[i]];
    for (size_t i = 0; i < shared.size(); ++i) ratio_[shared[i]] = ratios[i];
  }

  // Null where the key is not in the log.
  const KeyTimes* Find(const Key& key) const {
    const auto it = times_.find(key);
    return it == times_.end() ? nullptr : &it->second;
  }
  // `here`: what it takes in the base, which has the key.
  double Foretell(const Key& key, double here) const { return here * ratio_.at(key); }
  bool any_shared() const { return any_shared_; }

 private:
  std::map<Key, KeyTimes> times_;
  absl::flat_hash_map<Key, double> ratio_;  // of the base's keys
  bool any_shared_ = false;
};

// Relative standard deviation of one iteration at equal key, over all keys.
double PooledNoise(absl::Span<const KeyTimes> log) {
  double squares = 0, freedom = 0;
  for (const KeyTimes& g : log) {
    squares += g.m2 / (g.mean * g.mean);
    freedom += g.count - 1;
  }
  return freedom > 0 ? std::sqrt(squares / freedom) : 0;
}

std::optional<Speedup> CompareLogs(const LogAnalysis& base, const CleanLog& other,
                                   double confidence) {
  const TimesOf there(base.clean.by_key, other.by_key);
  if (!there.any_shared()) return std::nullopt;
  Speedup speedup;
  speedup.iterations = static_cast<int64_t>(other.log.size());
  speedup.total = other.total;
  speedup.means = base.clean.total / static_cast<double>(base.clean.log.size()) /
                  (other.total / static_cast<double>(other.log.size()));
  // Both sums leave stalls out: they are no matter of length.
  double here = 0, all = 0, variance = 0;
  const double noise = PooledNoise(other.by_key);
  for (const KeyTimes& g : base.clean.by_key) {
    here += g.count * g.mean;
    if (const KeyTimes* same = there.Find(g.key); same != nullptr) {
      all += g.count * same->mean;
      variance += std::pow(g.count * same->mean * noise, 2) / same->count;
    } else {
      ++speedup.unknown_keys;
      all += g.count * there.Foretell(g.key, g.mean);
    }
  }
  const Estimate known = {here, here, here};
  const double reach = NormalQuantile(confidence) * std::sqrt(variance);
  speedup.all = QuotientOf(known, {all, all - reach, all + reach});

  // As many iterations of each point's length as are to be measured in the other log, evenly over
  // all that it has and begun elsewhere for each length, as times drift within a log.
  absl::flat_hash_map<Key, std::vector<double>> there_of;
  for (const SeqPoint& p : base.selection.points) there_of[p.key];
  for (size_t i = 0; i < other.log.size(); ++i) {
    if (other.apart[i]) continue;
    const auto it = there_of.find(other.log.keys[i]);
    if (it != there_of.end()) it->second.push_back(other.log.times[i]);
  }
  constexpr double kGoldenRatio = 0.6180339887498949;
  std::vector<MeasuredPoint> points;
  double begin = 0.5;  // of the first one, between 0 and 1
  for (SeqPoint p : base.selection.points) {
    const std::vector<double>& times = there_of[p.key];
    begin = std::fmod(begin + kGoldenRatio, 1);
    const int measured = std::min(p.measurements, static_cast<int>(times.size()));
    double sum = 0;
    for (int k = 0; k < measured; ++k) {
      const double place = (k + begin) / measured * static_cast<double>(times.size());
      sum += times[std::min(static_cast<size_t>(place), times.size() - 1)];
    }
    const double value = measured > 0 ? sum / measured : there.Foretell(p.key, p.cost);
    p.measurements = std::max(1, measured);
    points.push_back({p, value});
  }
  if (!points.empty()) {
    const Estimate total = EstimateOther(points, confidence, base.selection.tails);
    if (total.low > 0) speedup.from_points = QuotientOf(known, total);
  }
  return speedup;
}

absl::StatusOr<Projection> ProjectOther(const CleanLog& clean, const AnalysisOptions& options) {
  OnlineEngine engine;
  Horizon horizon = options.horizon;
  horizon.another = true;
  // The engine's times are whole nanoseconds; the log's unit is unknown, its digits few.
  const double mean = clean.total / static_cast<double>(clean.log.size());
  const double scale = 1e9 / mean;
  for (size_t i = 0; i < clean.log.size(); ++i) {
    engine.AddIteration(
        {.iteration = i,
         .key = clean.log.keys[i],
         .time_ns = std::max<int64_t>(1, std::llround(clean.log.times[i] * scale))});
  }
  if (absl::Status status = engine.SetHorizon(std::move(horizon)); !status.ok()) return status;
  Projection projection = engine.ProjectTime(options.confidence);
  const auto unscaled = [&](const Estimate& e) {
    return Estimate{e.value / scale, e.low / scale, e.high / scale};
  };
  projection.remaining = unscaled(projection.remaining);
  for (std::optional<Estimate>* e : {&projection.total, &projection.so_far, &projection.per_1000}) {
    if (*e) *e = unscaled(**e);
  }
  return projection;
}

// The entries of iterations that are not apart.
std::vector<KeyTimes> OthersOf(const CleanLog& clean, const std::vector<bool>& apart) {
  std::vector<Key> keys;
  std::vector<double> times;
  for (size_t i = 0; i < clean.log.size(); ++i) {
    if (apart[i]) continue;
    keys.push_back(clean.log.keys[i]);
    times.push_back(clean.log.times[i]);
  }
  return GroupByKey(keys, times);
}

// The first iterations with a length pay for algorithm search, compilation and the like. In a part
// of a log, or one of every tenth iteration, they are as others, and stay.
void SetFirstsApart(CleanLog& clean) {
  const size_t n = clean.log.size();
  const std::vector<bool> first = FirstsOf(clean.log.keys);
  std::vector<bool> left_out = clean.apart;
  for (size_t i = 0; i < n; ++i) left_out[i] = left_out[i] || first[i];
  const std::vector<KeyTimes> others = OthersOf(clean, left_out);
  if (others.empty()) return;
  const Quadratic curve = CurveOfOthers(others, {});
  Moments moments[2];
  for (size_t i = 0; i < n; ++i) {
    if (clean.apart[i]) continue;
    moments[first[i]].Add(clean.log.times[i] / curve(clean.log.keys[i]) - 1);
  }
  if (moments[1].count < kFewestFirsts || moments[0].count < kFewestOthers) return;
  const double more = moments[1].Mean() - moments[0].Mean();
  const double chance = std::sqrt(moments[0].Variance() / moments[0].count +
                                  moments[1].Variance() / moments[1].count);
  if (more < std::max(kCostlyFirst, kCostlyDeviations * chance)) return;
  clean.first_share = more;
  for (size_t i = 0; i < n; ++i) {
    if (!first[i] || clean.apart[i]) continue;
    clean.apart[i] = true;
    ++clean.first_count;
  }
}

// Iterations that are apart count with what their length takes in others, or by the curve.
void GroupOthers(CleanLog& clean) {
  const std::vector<KeyTimes> others = OthersOf(clean, clean.apart);
  const double noise = PooledNoise(others);
  const Quadratic curve = CurveOfOthers(others, {});
  std::map<Key, double> count;
  for (size_t i = 0; i < clean.log.size(); ++i) {
    if (clean.apart[i]) count[clean.log.keys[i]] += 1;
  }
  std::map<Key, KeyTimes> by_key;
  for (const KeyTimes& g : others) by_key[g.key] = g;
  for (const auto& [key, apart] : count) {
    KeyTimes& entry = by_key.try_emplace(key, KeyTimes{key, 0, curve(key), 0}).first->second;
    // The mean stays, and so does the noise of one.
    entry.m2 = entry.count > 0 ? entry.m2 * (entry.count + apart) / entry.count
                               : apart * std::pow(noise * entry.mean, 2);
    entry.count += apart;
    clean.excess -= apart * entry.mean;
  }
  for (const auto& [key, entry] : by_key) clean.by_key.push_back(entry);
  for (size_t i = 0; i < clean.log.size(); ++i) {
    if (clean.apart[i]) clean.excess += clean.log.times[i];
  }
}

}  // namespace

std::vector<bool> FirstsOf(absl::Span<const Key> keys) {
  absl::flat_hash_set<int64_t> seen[2];
  std::vector<bool> firsts;
  for (const Key& key : keys) {
    const bool new_first = seen[0].insert(key.first).second;
    firsts.push_back(seen[1].insert(key.second).second || new_first);
  }
  return firsts;
}

CleanLog CleanUp(const RunLog& log) {
  std::vector<KeyTime> times;
  times.reserve(log.size());
  for (size_t i = 0; i < log.size(); ++i) times.push_back({log.keys[i], log.times[i]});
  return CleanUp(log, FindStartUp(times, log.groups));
}

CleanLog CleanUp(const RunLog& log, const std::vector<bool>& start_up) {
  std::vector<KeyTime> times;
  times.reserve(log.size());
  CleanLog clean;
  for (size_t i = 0; i < log.size(); ++i) {
    if (start_up[i]) {
      ++clean.start_up;
      clean.start_up_time += log.times[i];
      continue;
    }
    times.push_back({log.keys[i], log.times[i]});
    clean.rows.push_back(static_cast<int64_t>(i));
    clean.log.keys.push_back(log.keys[i]);
    clean.log.times.push_back(log.times[i]);
    if (!log.groups.empty()) clean.log.groups.push_back(log.groups[i]);
    clean.total += log.times[i];
  }
  const size_t kept = times.size();
  clean.apart = FindOutliers(times);
  clean.slow_count = std::count(clean.apart.begin(), clean.apart.end(), true);
  if (static_cast<double>(clean.slow_count) > kMostStalls * static_cast<double>(kept)) {
    clean.apart.assign(kept, false);
    clean.slow_count = 0;
  }
  SetFirstsApart(clean);
  GroupOthers(clean);
  return clean;
}

Selection SelectPoints(absl::Span<const KeyTimes> log, int measurements) {
  Selection selection = SelectStratified(log, std::min(measurements, kMostPoints));
  // More than that repeat points, always where it lowers the variance of the total most.
  struct Next {
    double gain;
    size_t point;
    bool operator<(const Next& other) const { return gain < other.gain; }
  };
  const auto next = [&](size_t i) {
    const SeqPoint& p = selection.points[i];
    const double n = p.measurements;
    return Next{std::pow(p.weight * p.noise, 2) / (n * (n + 1)), i};
  };
  std::priority_queue<Next> queue;
  for (size_t i = 0; i < selection.points.size(); ++i) queue.push(next(i));
  for (int m = kMostPoints; m < measurements && !queue.empty() && queue.top().gain > 0; ++m) {
    const size_t best = queue.top().point;
    queue.pop();
    ++selection.points[best].measurements;
    queue.push(next(best));
  }
  return selection;
}

double ReachOf(const Selection& selection, double confidence) {
  std::vector<MeasuredPoint> points;
  for (const SeqPoint& p : selection.points) points.push_back({p, p.cost});
  const Estimate e = EstimateSame(points, confidence, selection.tails);
  return (e.high - e.value) / e.value;
}

Selection SelectForError(absl::Span<const KeyTimes> log, double target_error, double confidence) {
  double iterations = 0;
  for (const KeyTimes& g : log) iterations += g.count;
  const auto within = [&](const Selection& selection) {
    return ReachOf(selection, confidence) <= target_error;
  };
  // By doubling, then by halving what lies between.
  int enough = 1;
  while (enough < iterations && !within(SelectPoints(log, enough))) enough *= 2;
  int least = enough / 2 + 1;
  while (least < enough) {
    const int middle = (least + enough) / 2;
    if (within(SelectPoints(log, middle))) {
      enough = middle;
    } else {
      least = middle + 1;
    }
  }
  return SelectPoints(log, std::max(1, std::min(enough, static_cast<int>(iterations))));
}

Selection Select(absl::Span<const KeyTimes> log, int points, double target_error,
                 double confidence) {
  if (points == 0 && target_error > 0) return SelectForError(log, target_error, confidence);
  double iterations = 0;
  for (const KeyTimes& g : log) iterations += g.count;
  const int wanted = points > 0 ? points : kDefaultPoints;
  return SelectPoints(log, std::min(wanted, static_cast<int>(std::min(iterations, 1e9))));
}

KeyFit FitOf(const CleanLog& clean) {
  const RunLog& rows = clean.log;
  const size_t stride = 1 + rows.size() / kEnoughForFit;
  std::vector<Key> keys;
  std::vector<double> times;
  for (size_t i = 0; i < rows.size(); i += stride) {
    keys.push_back(rows.keys[i]);
    times.push_back(rows.times[i]);
  }
  return FitKey(keys, times);
}

Stationarity CheckStationarity(const RunLog& log, absl::Span<const KeyTimes> by_key,
                               bool explained) {
  Stationarity result;
  if (!explained) {
    // Lengths have nothing to do with it: as if all were one.
    RunLog one{std::vector<Key>(log.size()), log.times, {}};
    return CheckStationarity(one, GroupByKey(one.keys, one.times), true);
  }
  const Quadratic curve = CurveOfOthers(by_key, {});
  BlockTrace trace;
  double square = 0, mean = 0, m2 = 0;
  for (size_t i = 0; i < log.size(); ++i) {
    const double expected = curve(log.keys[i]);
    // A peculiarity of a length is no drift.
    const KeyTimes& own = by_key[EntryOf(by_key, log.keys[i])];
    const double normal =
        (own.count * own.mean + kPeculiarShrinkage * expected) / (own.count + kPeculiarShrinkage);
    const double residual = std::clamp(log.times[i] / normal - 1, -kMostResidual, kMostResidual);
    trace.Add(i, log.keys[i], expected * (1 + residual));
    square += residual * residual;
    const double delta = expected - mean;
    mean += delta / static_cast<double>(i + 1);
    m2 += delta * (expected - mean);
  }
  const auto n = static_cast<double>(log.size());
  // The variance of the level of parts that differ by chance alone is estimated with an error, too:
  // a chi-square of as many degrees of freedom as there are blocks.
  const double variance = DriftVariance(trace, curve, std::sqrt(square / n));
  const double chance = square / n * std::sqrt(2 * static_cast<double>(trace.blocks.size())) / n;
  result.drift = variance > kBeyondChance * chance ? std::sqrt(variance) : 0;
  result.moving = EstimateKeyDrift(trace, curve, m2 / n).moving();
  return result;
}

LogAnalysis AnalyzeLog(const RunLog& log, const RunLog* against, const AnalysisOptions& options) {
  LogAnalysis analysis;
  analysis.clean = CleanUp(log);
  const CleanLog& clean = analysis.clean;
  const RunLog& rows = clean.log;
  if (rows.size() == 0) return analysis;

  analysis.fit = FitOf(clean);
  const bool explained = analysis.fit.verdict != KeyVerdict::kNotExplained;
  analysis.stationarity = CheckStationarity(rows, clean.by_key, explained);

  const auto n = static_cast<double>(rows.size());
  if (explained) {
    analysis.selection =
        Select(clean.by_key, options.points, options.target_error, options.confidence);
    std::vector<MeasuredPoint> points;
    for (const SeqPoint& p : analysis.selection.points) {
      points.push_back({p, clean.by_key[EntryOf(clean.by_key, p.key)].mean});
    }
    analysis.projection = EstimateSame(points, options.confidence, analysis.selection.tails);
    for (double* v :
         {&analysis.projection.value, &analysis.projection.low, &analysis.projection.high}) {
      *v += clean.excess;
    }
  }
  // The error of as many iterations drawn at random.
  int draws = 0;
  for (const SeqPoint& p : analysis.selection.points) draws += p.measurements;
  if (draws == 0) draws = options.points > 0 ? options.points : kDefaultPoints;
  double m2 = 0;
  for (double t : rows.times) m2 += std::pow(t - clean.total / n, 2);
  if (options.target_error > 0 && options.points == 0 && analysis.selection.points.empty()) {
    const double z = NormalQuantile(options.confidence);
    const double single = z * std::sqrt(m2 / n) / (clean.total / n) / options.target_error;
    draws = static_cast<int>(std::min(n, std::ceil(single * single / (1 + single * single / n))));
  }
  draws = std::clamp(draws, 1, static_cast<int>(std::min(n, 1e9)));
  const double reach = NormalQuantile(options.confidence) * n *
                       std::sqrt(m2 / n / draws * std::max(0.0, 1 - draws / n));
  analysis.random_measurements = draws;
  analysis.random = {clean.total, clean.total - reach, clean.total + reach};

  analysis.paper = SelectPaper(clean.by_key, {});
  if (options.horizon.kind != Horizon::Kind::kUnknown) {
    absl::StatusOr<Projection> other_run = ProjectOther(clean, options);
    analysis.no_other_run = other_run.status();
    if (other_run.ok()) analysis.other_run = *std::move(other_run);
  }
  if (against != nullptr) {
    analysis.speedup = CompareLogs(analysis, CleanUp(*against), options.confidence);
  }
  return analysis;
}

}  // namespace seqpoint
