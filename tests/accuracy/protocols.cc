#include "tests/accuracy/protocols.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "daemon/seqpoint/engine.h"
#include "daemon/seqpoint/estimate.h"
#include "tests/accuracy/baselines/baselines.h"

namespace seqpoint::accuracy {
namespace {

std::string_view KeyVerdictName(KeyVerdict verdict) {
  switch (verdict) {
    case KeyVerdict::kTooFew:
      return "too few iterations";
    case KeyVerdict::kExplained:
      return "explained";
    case KeyVerdict::kNotExplained:
      return "not explained";
    case KeyVerdict::kTimeHardlyVaries:
      return "time hardly varies";
  }
  return "unknown";
}

constexpr int kPaperPoints = 10;
constexpr int kPriorIterations = 50;
constexpr int kWarmUp = 20;
constexpr double kConfidence = 0.95;
constexpr int kMoreDraws = 10;
constexpr const char* kMethods[] = {"ours",  "seqpoint", "frequent",   "median", "worst",
                                    "prior", "random",   "equal_mass", "stem"};

// The paper's rule with a number of bins that is given.
Selection SelectBins(absl::Span<const KeyTimes> log, int bins) {
  return SelectPaper(log, {.first_bins = bins, .max_bins = bins, .max_error = INFINITY});
}

// ... and the best of those with at most so many points, by the error on the log itself.
Selection SelectPaperWithin(absl::Span<const KeyTimes> log, int points) {
  Selection best;
  for (int bins = 2; bins <= 2 * points; ++bins) {
    Selection selection = SelectBins(log, bins);
    if (static_cast<int>(selection.points.size()) > points) continue;
    if (best.points.empty() || selection.error < best.error) best = std::move(selection);
  }
  return best;
}

// The iterations that a method measures.
struct Choice {
  std::string method;
  int m = 0;
  Selection selection;            // lengths
  std::vector<Cluster> clusters;  // or lengths of which some are drawn
};

Choice Choose(const std::string& method, const DataSet& data, int m) {
  Choice choice{method, m, {}, {}};
  if (method == "ours" && data.fit.verdict != KeyVerdict::kNotExplained) {
    choice.selection = SelectStratified(data.log, m);
  }
  if (method == "seqpoint") choice.selection = SelectBins(data.log, m);
  if (method == "frequent") choice.selection = SelectFrequent(data.log, m);
  if (method == "median") choice.selection = SelectMedian(data.log, m);
  if (method == "worst") choice.selection = SelectWorst(data.log, m);
  if (method == "equal_mass") choice.selection = SelectEqualMass(data.log, m);
  if (method == "stem") choice.clusters = ClusterStem(data.log, m);
  return choice;
}

// The projected total of the iterations of `base` with times of `target`, from one draw; with
// `whole` from all iterations of the chosen lengths.
double Project(const Choice& choice, const DataSet& base, const DataSet& target, bool whole,
               Draws& draws, std::vector<MeasuredPoint>* points = nullptr) {
  const auto n = static_cast<double>(base.size());
  const bool same = &base == &target;
  const auto mean_of = [&](const Key& key, int count) {
    const int entry = target.EntryOf(key);
    return whole ? target.log[entry].mean : draws.Mean(entry, count);
  };
  double total = 0;
  if (!choice.selection.points.empty()) {
    for (const SeqPoint& p : choice.selection.points) {
      const double value = mean_of(p.key, p.measurements);
      total += p.weight * value;
      if (points != nullptr) points->push_back({p, value});
    }
    return total;
  }
  if (!choice.clusters.empty()) {
    for (const Cluster& c : choice.clusters) {
      double sum = 0;
      for (int i = 0; i < c.measurements; ++i) {
        double left = std::uniform_real_distribution<double>(0, c.count)(draws.random());
        size_t at = 0;
        while (at + 1 < c.groups.size() && (left -= base.log[c.groups[at]].count) >= 0) ++at;
        sum += mean_of(base.log[c.groups[at]].key, 1);
      }
      total += c.count * sum / c.measurements;
    }
    return total;
  }
  const auto any = [&](size_t most) {
    return std::uniform_int_distribution<size_t>(0, most - 1)(draws.random());
  };
  if (choice.method == "prior") {
    const std::vector<int> starts = Starts(target);
    const size_t count = std::min<size_t>(kPriorIterations, target.size());
    const size_t begin = starts[any(starts.size())] + kWarmUp;
    for (size_t i = 0; i < count; ++i) {
      total += draws.TimeOf(static_cast<int>((begin + i) % target.size()));
    }
    return total * n / static_cast<double>(count);
  }
  // At random; also ours where lengths do not explain time.
  const int m = std::min(choice.m, static_cast<int>(n));
  std::set<size_t> drawn;
  while (static_cast<int>(drawn.size()) < m) drawn.insert(any(base.size()));
  for (size_t i : drawn) {
    const double time =
        same ? draws.TimeOf(static_cast<int>(i)) : draws.Mean(target.EntryOf(base.run.keys[i]), 1);
    total += time;
  }
  if (points != nullptr) {
    // One stratum with the noise of all times, which past times tell.
    double m2 = 0;
    for (double t : base.run.times) m2 += std::pow(t - base.mean(), 2);
    points->push_back({{{}, n, m, base.mean(), std::sqrt(m2 / n)}, total / m});
  }
  return total * n / m;
}

Result Describe(const DataSet& data, const std::string& protocol, const std::string& method) {
  Result result;
  result.file = data.name;
  result.protocol = protocol;
  result.method = method;
  result.unique_keys = static_cast<int>(data.log.size());
  result.iterations = static_cast<int>(data.size());
  result.explained = data.fit.explained;
  result.verdict = std::string(KeyVerdictName(data.fit.verdict));
  result.order = "shuffled";
  return result;
}

// Mean time of the base's iterations in `target`, over the lengths that both have.
struct Standardised {
  double base = 0, target = 0, count = 0;
};
Standardised AtEqualLengths(const DataSet& base, const DataSet& target) {
  Standardised sums;
  for (const KeyTimes& g : base.log) {
    const KeyTimes& there = target.log[target.EntryOf(g.key)];
    if (there.key != g.key) continue;
    sums.base += g.count * g.mean;
    sums.target += g.count * there.mean;
    sums.count += g.count;
  }
  return sums;
}

}  // namespace

std::vector<Result> JudgePaper(const DataSet& data, const Seeds& seeds) {
  std::vector<int> groups = data.run.groups;
  std::sort(groups.begin(), groups.end());
  groups.erase(std::unique(groups.begin(), groups.end()), groups.end());
  const bool by_group = groups.size() >= 4;
  std::map<std::string, Tally> tallies;
  std::map<std::string, double> points;
  for (int seed = 0; seed < seeds.count; ++seed) {
    std::mt19937_64 random(seeds.first + seed + 1);
    std::vector<int> halves[2];
    if (by_group) {
      std::shuffle(groups.begin(), groups.end(), random);
      const std::set<int> first(groups.begin(), groups.begin() + groups.size() / 2);
      for (size_t i = 0; i < data.size(); ++i) {
        halves[first.contains(data.run.groups[i]) ? 0 : 1].push_back(static_cast<int>(i));
      }
    } else {
      std::vector<int> order(data.size());
      std::iota(order.begin(), order.end(), 0);
      std::shuffle(order.begin(), order.end(), random);
      halves[0].assign(order.begin(), order.begin() + order.size() / 2);
      halves[1].assign(order.begin() + order.size() / 2, order.end());
    }
    const DataSet chosen = PartOf(data, halves[0]), judged = PartOf(data, halves[1]);
    const Standardised truth = AtEqualLengths(chosen, judged);
    if (!(truth.count > 0)) return {};
    Draws draws(judged, seeds.first + seed + 1);
    for (const char* method : kMethods) {
      if (std::string(method) == "stem") continue;  // draws single iterations
      Choice choice = Choose(method, chosen, kPaperPoints);
      if (std::string(method) == "ours" && !choice.selection.points.empty()) {
        choice.selection = SelectStratified(chosen.log, kPaperPoints, Measuring::kWhole);
      }
      if (std::string(method) == "seqpoint") {
        choice.selection = SelectPaperWithin(chosen.log, kPaperPoints);
      }
      const double total = Project(choice, chosen, judged, /*whole=*/true, draws);
      tallies[method].Add(total / static_cast<double>(chosen.size()) * truth.count / truth.target -
                          1);
      points[method] += static_cast<double>(choice.selection.points.size()) / seeds.count;
    }
  }
  std::vector<Result> results;
  for (const char* method : kMethods) {
    if (!tallies.contains(method)) continue;
    Result result = Describe(data, "paper", method);
    result.statistic = "same";
    result.m = points[method] > 0 ? static_cast<int>(std::lround(points[method])) : kPaperPoints;
    tallies[method].Fill(&result);
    results.push_back(result);
  }
  return results;
}

std::vector<Result> JudgeSampled(const DataSet& data, const Seeds& seeds) {
  // A log that was made is made anew for each draw, and chosen from anew.
  const bool made = !data.cost.empty();
  std::map<std::pair<int, std::string>, Tally> tallies;
  for (int seed = 0; seed < (made ? seeds.count : 1); ++seed) {
    const DataSet fresh = made ? Redrawn(data, seeds.first + seed + 1) : DataSet();
    const DataSet& log = made ? fresh : data;
    for (int m : kMeasurements) {
      if (static_cast<size_t>(m) > data.size()) continue;
      for (const char* method : kMethods) {
        const Choice choice = Choose(method, log, m);
        const bool ours = std::string(method) == "ours";
        Tally& tally = tallies[{m, method}];
        // Draws from a log that stays are cheap, and coverage needs many.
        for (int draw = 0; draw < (made ? 1 : kMoreDraws * seeds.count); ++draw) {
          Draws draws(log, (seeds.first + seed) * 1'000'003 + draw + 1);
          std::vector<MeasuredPoint> points;
          const double total = Project(choice, log, log, false, draws, ours ? &points : nullptr);
          if (ours) {
            const Estimate e = EstimateSame(points, kConfidence, choice.selection.tails);
            tally.Add(total / log.total - 1, e.low / log.total - 1, e.high / log.total - 1);
          } else {
            tally.Add(total / log.total - 1);
          }
        }
      }
    }
  }
  std::vector<Result> results;
  for (int m : kMeasurements) {
    for (const char* method : kMethods) {
      const auto it = tallies.find({m, method});
      if (it == tallies.end()) continue;
      Result result = Describe(data, "sampled", method);
      result.statistic = "same";
      result.m = m;
      result.noise_floor = data.noise / std::sqrt(m);
      result.note = made ? "made times" : "";
      it->second.Fill(&result);
      results.push_back(result);
      if (std::string(method) != "ours") continue;
      result.protocol = "coverage";
      results.push_back(result);
    }
  }
  return results;
}

std::vector<Result> JudgeSpeedup(const DataSet& base, const DataSet& target, const Seeds& seeds) {
  std::vector<Result> results;
  const Standardised sums = AtEqualLengths(base, target);
  if (!(sums.count > 0)) return results;
  const double truth = sums.base / sums.target;
  for (int m : kMeasurements) {
    if (static_cast<size_t>(m) > base.size()) continue;
    for (const char* method : kMethods) {
      const Choice choice = Choose(method, base, m);
      const bool ours = std::string(method) == "ours";
      Tally known, measured;
      for (int seed = 0; seed < kMoreDraws * seeds.count; ++seed) {
        Draws there(target, seeds.first + seed + 1),
            here(base, seeds.first + seed + 1 + kMoreDraws * seeds.count);
        std::vector<MeasuredPoint> points_there, points_here;
        const double total =
            Project(choice, base, target, false, there, ours ? &points_there : nullptr);
        const double own = Project(choice, base, base, false, here, ours ? &points_here : nullptr);
        if (!ours) {
          known.Add(base.total / total / truth - 1);
          measured.Add(own / total / truth - 1);
          continue;
        }
        const Estimate other = EstimateOther(points_there, kConfidence, choice.selection.tails);
        const Estimate a = QuotientOf({base.total, base.total, base.total}, other);
        const Estimate b =
            QuotientOf(EstimateSame(points_here, kConfidence, choice.selection.tails), other);
        known.Add(a.value / truth - 1, a.low / truth - 1, a.high / truth - 1);
        measured.Add(b.value / truth - 1, b.low / truth - 1, b.high / truth - 1);
      }
      for (bool is_known : {true, false}) {
        Result result = Describe(base, "speedup", method);
        result.file = base.name + " -> " + target.name;
        result.statistic = "other";
        result.m = m;
        result.note = is_known ? "base known" : "base measured";
        result.noise_floor = std::hypot(target.noise, is_known ? 0 : base.noise) / std::sqrt(m);
        (is_known ? known : measured).Fill(&result);
        results.push_back(result);
        if (!ours || !is_known) continue;
        result.protocol = "coverage";
        results.push_back(result);
      }
    }
  }
  return results;
}

std::vector<Result> JudgeOnline(const DataSet& data, const Seeds& seeds, const std::string& order) {
  const auto n = static_cast<double>(data.size());
  double m2 = 0;
  for (double t : data.run.times) m2 += std::pow(t - data.mean(), 2);
  const double variation = std::sqrt(m2 / n) / data.mean();
  std::vector<KeyCount> histogram;
  for (const KeyTimes& g : data.log) {
    histogram.push_back({g.key, static_cast<int64_t>(g.count)});
  }
  const double scale = 1e8 / data.mean();
  const std::vector<int> starts = Starts(data);
  const int draws = order == "shuffled" ? seeds.count
                    : order == "real"   ? static_cast<int>(starts.size())
                                        : 1;
  const std::vector<double> fractions =
      order == "sorted" ? std::vector<double>{0.1, 0.25, 0.5} : std::vector<double>{0.05, 0.25};
  std::vector<Result> results;
  for (const char* lengths : {"known", "unknown"}) {
    std::vector<Tally> tallies(fractions.size()), plain(fractions.size());
    std::vector<int> said_moving(fractions.size());
    for (int draw = 0; draw < draws; ++draw) {
      std::vector<int> at(data.size());
      std::iota(at.begin(), at.end(), 0);
      std::mt19937_64 random(seeds.first + draw + 1);
      if (order == "shuffled") std::shuffle(at.begin(), at.end(), random);
      if (order == "real") std::rotate(at.begin(), at.begin() + starts[draw], at.end());
      OnlineEngine engine;
      const absl::Status status = engine.SetHorizon(
          std::string(lengths) == "known" ? Horizon::Histogram(histogram)
                                          : Horizon::Iterations(static_cast<int64_t>(data.size())));
      if (!status.ok()) return results;
      size_t i = 0;
      double so_far = 0;
      for (size_t f = 0; f < fractions.size(); ++f) {
        for (; i < static_cast<size_t>(fractions[f] * n); ++i) {
          const double time = data.run.times[at[i]];
          so_far += time;
          engine.AddIteration(
              {.iteration = i, .key = data.run.keys[at[i]], .time_ns = std::llround(time * scale)});
        }
        const Projection projection = engine.ProjectTime(kConfidence);
        const Estimate& e = *projection.total;
        const double truth = data.total * scale;
        tallies[f].Add(e.value / truth - 1, e.low / truth - 1, e.high / truth - 1);
        plain[f].Add(so_far / static_cast<double>(i) * n / data.total - 1);
        said_moving[f] += projection.basis.find("still moves") != std::string::npos;
      }
    }
    for (size_t f = 0; f < fractions.size(); ++f) {
      for (const char* method : {"ours", "random"}) {
        Result result = Describe(data, "online", method);
        result.statistic = "same";
        result.fraction = fractions[f];
        result.order = order;
        result.lengths = lengths;
        // Standard error of the mean of iterations drawn at random: the mean error is 0.8 of this.
        result.noise_floor = variation * std::sqrt((1 - fractions[f]) / (fractions[f] * n));
        if (std::string(lengths) == "known") {
          result.noise_floor = data.noise * std::sqrt((1 - fractions[f]) / (fractions[f] * n));
        }
        (method == std::string("ours") ? tallies : plain)[f].Fill(&result);
        if (said_moving[f] > 0)
          result.note = "distribution said to move in " + std::to_string(said_moving[f]) + " of " +
                        std::to_string(draws);
        results.push_back(result);
      }
    }
  }
  return results;
}

std::vector<Result> JudgeExplained(const DataSet& data, const Seeds& seeds) {
  std::vector<Result> results;
  for (int window : {64, 128, 256, 512, 1024, 0}) {
    const size_t n = window == 0 ? data.size() : static_cast<size_t>(window);
    if (n > data.size() || n < 64) continue;
    for (const char* order : {"real", "shuffled"}) {
      const bool real = std::string(order) == "real";
      const int draws = window == 0 ? 1 : seeds.count;
      if (window == 0 && !real) continue;
      double explained = 0;
      int refused = 0;
      std::map<KeyVerdict, int> verdicts;
      for (int draw = 0; draw < draws; ++draw) {
        std::mt19937_64 random(seeds.first + draw + 1);
        const size_t begin = window == 0 ? 0 : random() % data.size();
        std::vector<Key> keys;
        std::vector<double> times;
        for (size_t i = 0; i < n; ++i) {
          const size_t at = real ? (begin + i) % data.size() : random() % data.size();
          keys.push_back(data.run.keys[at]);
          times.push_back(data.run.times[at]);
        }
        const KeyFit fit = FitKey(keys, times);
        explained += fit.explained / draws;
        refused += fit.verdict == KeyVerdict::kNotExplained;
        ++verdicts[fit.verdict];
      }
      Result result = Describe(data, "explained", "ours");
      result.m = static_cast<int>(n);
      result.order = order;
      result.explained = explained;
      result.refused = static_cast<double>(refused) / draws;
      result.note = "explained in " + std::to_string(verdicts[KeyVerdict::kExplained]) +
                    ", hardly varies in " +
                    std::to_string(verdicts[KeyVerdict::kTimeHardlyVaries]) + " of " +
                    std::to_string(draws);
      result.verdict = std::string(
          KeyVerdictName(std::max_element(verdicts.begin(), verdicts.end(), [](auto& a, auto& b) {
                           return a.second < b.second;
                         })->first));
      results.push_back(result);
    }
  }
  return results;
}

int MeasurementsFor(const DataSet& data, double error, const Seeds& seeds) {
  for (int m = 1; m <= 256; ++m) {
    const Choice choice = Choose("ours", data, m);
    Tally tally;
    for (int seed = 0; seed < seeds.count; ++seed) {
      Draws draws(data, seeds.first + seed + 1);
      tally.Add(Project(choice, data, data, false, draws) / data.total - 1);
    }
    if (tally.mean_error() <= error) return m;
  }
  return 0;
}

}  // namespace seqpoint::accuracy
