#include "daemon/seqpoint/forecast.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "daemon/seqpoint/bins.h"

namespace seqpoint {
namespace {

constexpr int kForecastBins = 128;
// A length that is known to come is expected so often.
constexpr double kCertain = 100;
// The horizon's histogram is another run's where this share of the past, and 3 iterations more,
// cannot come from it.
constexpr double kHistogramSlack = 0.02;

struct ForecastRow {
  Key key;
  double past = 0, untimed = 0, remaining = 0;  // iterations
};

// Whether the past cannot come from the given histogram (in `remaining`). An expected distribution
// need not hold every pair of lengths, only their range.
bool MatchesBadly(absl::Span<const ForecastRow> rows, bool expected_only, double so_far) {
  KeyBox known;
  for (const ForecastRow& row : rows) {
    if (row.remaining != 0) known.Add(row.key);
  }
  double strangers = 0;
  for (const ForecastRow& row : rows) {
    if (!expected_only) {
      strangers += std::max(0.0, row.past - row.remaining);
    } else if (!known.Contains(row.key)) {
      strangers += row.past;
    }
  }
  return strangers > kHistogramSlack * so_far + 3;
}

// Subtracts the past from the run's histogram: key by key, or where that is only expected, bin by
// bin.
void TakeOffPast(std::vector<ForecastRow>& rows, bool expected_only, const Quadratic& curve) {
  if (!expected_only) {
    for (ForecastRow& row : rows) row.remaining = std::max(0.0, row.remaining - row.past);
    return;
  }
  std::vector<Key> keys;
  std::vector<double> mass;
  for (const ForecastRow& row : rows) {
    keys.push_back(row.key);
    mass.push_back((row.past + row.remaining) * curve(row.key));
  }
  const std::vector<int> bins = CutIntoBins(keys, mass, kForecastBins);
  std::vector<double> past(kForecastBins), whole(kForecastBins);
  for (size_t i = 0; i < rows.size(); ++i) {
    past[bins[i]] += rows[i].past;
    whole[bins[i]] += rows[i].remaining;
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    const double share = whole[bins[i]] > 0 ? past[bins[i]] / whole[bins[i]] : 0;
    rows[i].remaining *= std::max(0.0, 1 - share);
  }
}

// The past in key order. Iterations whose length is not known (their records were lost) are shared
// out over the others; `untimed_unknown` gets how many of them have no time.
std::vector<ForecastRow> PastRows(const KeyTable& keys, double* untimed_unknown) {
  std::vector<ForecastRow> rows;
  rows.reserve(keys.size());
  for (const auto& [key, record] : keys.records()) {
    rows.push_back(
        {key, static_cast<double>(record.iterations), static_cast<double>(record.untimed), 0});
  }
  std::sort(rows.begin(), rows.end(),
            [](const ForecastRow& a, const ForecastRow& b) { return a.key < b.key; });
  if (!rows.empty() && keys.LengthUnknown(rows.front().key)) {
    const ForecastRow unknown = rows.front();
    rows.erase(rows.begin());
    double known = 0;
    for (const ForecastRow& row : rows) known += row.past;
    for (ForecastRow& row : rows) {
      const double share = known > 0 ? row.past / known : 0;
      row.past += share * unknown.past;
      row.untimed += share * unknown.untimed;
    }
    *untimed_unknown = unknown.untimed;
  }
  return rows;
}

// Adds the counts of the whole run. Both are in key order.
std::vector<ForecastRow> WithHistogram(absl::Span<const ForecastRow> rows,
                                       absl::Span<const KeyCount> histogram) {
  std::vector<ForecastRow> merged;
  merged.reserve(rows.size() + histogram.size());
  size_t r = 0;
  for (const KeyCount& k : histogram) {
    while (r < rows.size() && rows[r].key < k.key) merged.push_back(rows[r++]);
    ForecastRow row{k.key};
    if (r < rows.size() && rows[r].key == k.key) row = rows[r++];
    row.remaining = static_cast<double>(k.count);
    merged.push_back(row);
  }
  while (r < rows.size()) merged.push_back(rows[r++]);
  return merged;
}

// Buckets of lengths that the horizon has and the past has not. Where lengths are unknown, those
// that occurred once foretell how many are unseen (Good and Turing). Where keys are sums, the
// lengths are those of micro-batches, and each kind of micro-batch has its share of the rest.
BucketCounts UnseenBuckets(absl::Span<const ForecastRow> rows, const ColdIterations& cold,
                           const Horizon& horizon, const Forecast& forecast, double so_far,
                           double rest, bool two_dimensional) {
  BucketCounts all = {};
  double all_batches = 0;
  for (int kind = 0; kind < kMicroBatchKinds; ++kind) all_batches += cold.MicroBatchesOf(2 * kind);
  const bool unknown =
      (cold.sums ? horizon.parts.empty() : horizon.histogram.empty()) || forecast.mismatch;
  for (int list = 0; list < kLengthLists; ++list) {
    const int d = list % 2;
    if ((d == 1 && !two_dimensional) || (list > 0 && cold.first_seen[list].empty())) continue;
    LengthHistory history = cold.HistoryOf(list);
    const double share = all_batches > 0 ? cold.MicroBatchesOf(list) / all_batches : 1;
    const bool certain = cold.sums ? horizon.parts_certain && share == 1 : !forecast.sampled;
    if (horizon.another) history.sorted.clear();
    std::map<int64_t, double> values;
    double lengths_so_far = so_far;
    if (cold.sums && unknown) {
      values.insert(cold.micro_batches[list].begin(), cold.micro_batches[list].end());
      lengths_so_far = share * all_batches;
    } else if (cold.sums) {
      for (const KeyCount& k : horizon.parts) {
        values[d == 0 ? k.key.first : k.key.second] +=
            static_cast<double>(k.count) * share * rest / static_cast<double>(horizon.iterations);
      }
    } else {
      for (const ForecastRow& row : rows) {
        values[d == 0 ? row.key.first : row.key.second] += unknown ? row.past : row.remaining;
      }
    }
    const double lengths_left = so_far > 0 ? rest * lengths_so_far / so_far : 0;
    BucketCounts unseen = {};
    if (!unknown) {
      std::vector<std::pair<int64_t, double>> coming;
      for (const auto& [value, times] : values) {
        if (!(times > 0) || (!horizon.another && cold.first_seen[list].contains(value))) continue;
        coming.push_back({value, certain ? kCertain : times});
      }
      unseen = history.UnseenAmong(coming);
    } else if (lengths_so_far > 0) {
      double size = history.step;
      for (double& count : unseen) {
        std::map<double, double> buckets;
        for (const auto& [value, times] : values) {
          buckets[std::floor(static_cast<double>(value) / size)] += times;
        }
        for (const auto& [bucket, times] : buckets) {
          count += horizon.another ? 1 - std::pow(1 - times / lengths_so_far, lengths_left)
                   : times == 1    ? std::log1p(lengths_left / lengths_so_far)
                                   : 0;
        }
        size *= 2;
      }
    }
    for (int s = 0; s < kBucketSizes; ++s) all[s] += unseen[s];
  }
  return all;
}

// The rows as targets of the cost curve, in bins of about equal time.
void AddTargets(absl::Span<const ForecastRow> rows, const TimeModel& model, Forecast& forecast) {
  std::vector<Key> row_keys;
  std::vector<double> mass;
  for (const ForecastRow& row : rows) {
    row_keys.push_back(row.key);
    mass.push_back((row.past + row.remaining) * model.Expected(row.key));
  }
  std::vector<int> bins = CutIntoBins(row_keys, mass, kForecastBins);
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto own = model.BaselineBin(rows[i].key);
    if (own.has_value()) bins[i] = kForecastBins + *own;
    CurveTarget target{model.curve.scale(rows[i].key), model.Expected(rows[i].key), rows[i].past,
                       bins[i]};
    if (rows[i].past > 0) forecast.past.push_back(target);
    target.weight = rows[i].untimed;
    if (rows[i].untimed > 0) forecast.untimed.push_back(target);
    target.weight = rows[i].remaining;
    if (rows[i].remaining > 0) forecast.remaining.push_back(target);
  }
}

}  // namespace

double IterationsOf(absl::Span<const CurveTarget> targets) {
  double sum = 0;
  for (const CurveTarget& t : targets) sum += t.weight;
  return sum;
}

BucketCounts Forecast::AllUntimed() const {
  BucketCounts all = unseen;
  for (int i = 0; i < kBucketSizes; ++i) all[i] += opened_untimed[i];
  return all;
}

Forecast MakeForecast(const IterationLog& log, const ColdIterations& cold, const Horizon& horizon,
                      const TimeModel& model, bool drifting) {
  Forecast forecast;
  std::vector<ForecastRow> rows = PastRows(log.keys, &forecast.untimed_unknown);
  const double so_far = static_cast<double>(log.iterations);
  const double done = horizon.another ? 0 : so_far;  // of the run that is asked about
  const double total = static_cast<double>(horizon.iterations);
  forecast.iterations_total = std::max<int64_t>(horizon.iterations, static_cast<int64_t>(done));
  forecast.overrun = horizon.kind != Horizon::Kind::kUnknown && done > total;
  // Past its horizon the run is as long as nobody knows.
  if (horizon.kind == Horizon::Kind::kUnknown || forecast.overrun) forecast.iterations_total = 0;
  const double rest = std::max(0.0, total - done);

  if (!horizon.histogram.empty() && rest > 0) {
    rows = WithHistogram(rows, horizon.histogram);
    forecast.sampled = horizon.kind == Horizon::Kind::kDistribution;
    forecast.mismatch = !horizon.another && MatchesBadly(rows, forecast.sampled, so_far);
    if (!horizon.another && (!forecast.sampled || drifting)) {
      TakeOffPast(rows, forecast.sampled, model.curve);
    }
    double sum = 0;
    for (const ForecastRow& row : rows) sum += row.remaining;
    for (ForecastRow& row : rows) row.remaining *= sum > 0 ? rest / sum : 0;
  }
  if (horizon.kind == Horizon::Kind::kIterations || forecast.mismatch) {
    forecast.sampled = true;
    for (ForecastRow& row : rows) row.remaining = so_far > 0 ? row.past * rest / so_far : 0;
  }

  forecast.unseen = UnseenBuckets(rows, cold, horizon, forecast, so_far, rest, log.two_dimensional);
  AddTargets(rows, model, forecast);
  return forecast;
}

double SamplingVariance(const IterationLog& log, const Horizon& horizon, const Forecast& forecast,
                        const DriftEstimate& drift, double remaining, double variance) {
  // Iterations whose length is not known say nothing of which lengths are drawn.
  const double n = static_cast<double>(log.iterations) - forecast.untimed_unknown;
  if (!(n > 0) || !(remaining > 0)) return 0;
  const bool known = horizon.kind == Horizon::Kind::kDistribution && !forecast.mismatch;
  // A given distribution is not estimated: only the draws from it vary.
  double per_square = variance * (1 / remaining + (known ? 0 : drift.inflation / n));
  if (!known) {
    per_square += drift.walk_variance * (n + remaining) / 3;
    per_square += std::pow(drift.trend * (n + remaining) / 2, 2);
  }
  return remaining * remaining * per_square;
}

}  // namespace seqpoint
