#include "daemon/seqpoint/accumulated_warm_up.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "daemon/base/linear_solver.h"

namespace seqpoint {
namespace {

constexpr int kMinTimes = 8;  // for five columns
// More of either tell no more.
constexpr size_t kEnoughTimes = 4096;
constexpr int kWeightRounds = 6;  // of reweighting; the fit stays after three or four
// Residuals beyond so many deviations weigh less (Huber).
constexpr double kWeightHuber = 2;
constexpr double kLeastNoise = 1e-3;  // relative
// The prior of the warm-up cost of one iteration: this share of its time.
constexpr double kPriorShare = 0.2;
constexpr double kRidge = 1e-9;  // two lengths may be one

// 1, the key's values, the lengths that are new, the buckets that were opened.
constexpr int kColumns = 5;
constexpr int kNewLengths = 3, kOpened = 4;
using Row = std::array<double, kColumns>;

struct Data {
  std::vector<Row> rows;
  std::vector<double> times, counts;
};

struct Fit {
  Row coefficients = {};
  double log_evidence = 0;
  double variance = 0;  // of the level at the mean key
};

double Value(const Row& coefficients, const Row& row) {
  double sum = 0;
  for (int i = 0; i < kColumns; ++i) sum += coefficients[i] * row[i];
  return sum;
}

// Robust least squares. `mean`: of the rows, with nothing opened. `penalty`: inverse variance of
// the coefficients before anything is known.
std::optional<Fit> FitRows(const Data& data, const Row& mean, const Row& penalty) {
  const size_t n = data.rows.size();
  std::vector<double> weights = data.counts;
  double noise = 0.05;
  Fit fit;
  double count = 0;
  for (double c : data.counts) count += c;
  for (int round = 0; round < kWeightRounds; ++round) {
    std::vector<double> normal(kColumns * kColumns);
    Row right = {};
    for (size_t r = 0; r < n; ++r) {
      for (int i = 0; i < kColumns; ++i) {
        right[i] += weights[r] * data.rows[r][i] * data.times[r];
        for (int j = 0; j < kColumns; ++j) {
          normal[i * kColumns + j] += weights[r] * data.rows[r][i] * data.rows[r][j];
        }
      }
    }
    for (int i = 0; i < kColumns; ++i) {
      normal[i * kColumns + i] += kRidge * (count + 1) + penalty[i] * noise * noise;
    }
    if (!Cholesky(normal, kColumns)) return std::nullopt;
    fit.coefficients = right;
    SolveLower(normal, kColumns, fit.coefficients.data());
    SolveUpper(normal, kColumns, fit.coefficients.data());

    std::vector<std::pair<double, double>> misses;
    for (size_t r = 0; r < n; ++r) {
      misses.push_back(
          {std::abs(data.times[r] - Value(fit.coefficients, data.rows[r])), data.counts[r]});
    }
    std::vector<std::pair<double, double>> order = misses;
    std::sort(order.begin(), order.end());
    double left = count / 2;
    size_t median = 0;
    while (median + 1 < n && (left -= order[median].second) > 0) ++median;
    noise = std::max(kLeastNoise, 1.4826 * order[median].first);
    double loss = 0;
    for (size_t r = 0; r < n; ++r) {
      const double miss = misses[r].first / noise;
      weights[r] = data.counts[r] * std::min(1.0, kWeightHuber / std::max(miss, 1e-9));
      loss += data.counts[r] * (miss < kWeightHuber
                                    ? miss * miss
                                    : 2 * kWeightHuber * miss - kWeightHuber * kWeightHuber);
    }
    for (int i = 0; i < kColumns; ++i) loss += penalty[i] * std::pow(fit.coefficients[i], 2);
    Row level = mean;
    SolveLower(normal, kColumns, level.data());
    fit.variance = 0;
    for (double l : level) fit.variance += noise * noise * l * l;
    fit.log_evidence =
        -count / 2 * std::log(noise * noise * loss / count + kLeastNoise * kLeastNoise);
  }
  return fit;
}

}  // namespace

AccumulatedWarmUp EstimateAccumulatedWarmUp(absl::Span<const KeyTimes> regular,
                                            absl::Span<const ColdTime> cold) {
  AccumulatedWarmUp judged;
  double count = 0, time = 0, mean[2] = {0, 0};
  const auto add = [&](const Key& key, double times, double ns) {
    count += times;
    time += times * ns;
    mean[0] += times * static_cast<double>(key.first);
    mean[1] += times * static_cast<double>(key.second);
  };
  for (const KeyTimes& g : regular) add(g.key, g.count, g.mean);
  for (const ColdTime& f : cold) {
    if (!f.of_run) add(f.time.key, 1, f.time.time_ns);
  }
  if (count < kMinTimes) return judged;
  time /= count;
  const Row typical_row = {1, 1, mean[1] > 0 ? 1.0 : 0.0, 0, 0};
  for (double& m : mean) m = m > 0 ? m / count : 1;
  const auto row = [&](const Key& key, double lengths, double opened) {
    return Row{1, static_cast<double>(key.first) / mean[0],
               static_cast<double>(key.second) / mean[1], lengths, opened};
  };

  // Each new length costs something, or each bucket of some size that is opened, or both.
  struct Hypothesis {
    Fit fit;
    int size;  // 0: no buckets
    double probability;
  };
  std::vector<Hypothesis> hypotheses;
  double best = -INFINITY;
  const auto consider = [&](bool lengths, int size) {
    Data data;
    double sums[2] = {0, 0};
    for (size_t i = 0; i < regular.size(); i += 1 + regular.size() / kEnoughTimes) {
      data.rows.push_back(row(regular[i].key, 0, 0));
      data.times.push_back(regular[i].mean / time);
      data.counts.push_back(regular[i].count);
    }
    for (size_t i = 0; i < cold.size(); i += 1 + cold.size() / kEnoughTimes) {
      const ColdTime& f = cold[i];
      if (f.of_run) continue;
      const double new_lengths = lengths ? f.opened[0] : 0;
      const double opened = size > 0 ? f.opened[size] : 0;
      sums[0] += new_lengths;
      sums[1] += opened;
      data.rows.push_back(row(f.time.key, new_lengths, opened));
      data.times.push_back(f.time.time_ns / time);
      data.counts.push_back(1);
    }
    Row penalty = {};
    for (int i : {0, 1}) {
      const double typical = sums[i] / count / kPriorShare;
      penalty[kNewLengths + i] = std::max(typical * typical, 1e-6);
    }
    const std::optional<Fit> fit = FitRows(data, typical_row, penalty);
    if (!fit || (lengths && fit->coefficients[kNewLengths] <= 0) ||
        (size > 0 && fit->coefficients[kOpened] <= 0)) {
      return;
    }
    hypotheses.push_back({*fit, size, fit->log_evidence});
    best = std::max(best, fit->log_evidence);
  };
  for (int size = 0; size < kBucketSizes; ++size) {
    consider(false, size);
    consider(true, size);
  }
  if (hypotheses.empty()) return judged;
  double total = 0;
  for (Hypothesis& h : hypotheses) total += h.probability = std::exp(h.probability - best);
  double level = 0, square = 0;
  for (Hypothesis& h : hypotheses) {
    h.probability /= total;
    const double at = Value(h.fit.coefficients, typical_row);
    level += h.probability * at;
    square += h.probability * (at * at + h.fit.variance);
    const double per_length = h.fit.coefficients[kNewLengths];
    const double per_bucket = h.fit.coefficients[kOpened];
    if (per_length > 0 || per_bucket > 0) judged.costly_probability += h.probability;
    judged.costs_ns[0] += h.probability * per_length * time;
    judged.costs_ns[h.size] += h.probability * per_bucket * time;
  }
  judged.doubt = std::sqrt(std::max(0.0, square - level * level)) / std::max(level, 0.1);
  for (const ColdTime& f : cold) {
    double warm_up_cost = 0, plain = 0;
    for (int s = 0; s < kBucketSizes; ++s) warm_up_cost += judged.costs_ns[s] * f.opened[s];
    for (const Hypothesis& h : hypotheses) {
      plain += h.probability * Value(h.fit.coefficients, row(f.time.key, 0, 0));
    }
    judged.warm_up_cost_ns.push_back(warm_up_cost);
    judged.excess_ns.push_back(f.time.time_ns - plain * time);
  }
  return judged;
}

}  // namespace seqpoint
