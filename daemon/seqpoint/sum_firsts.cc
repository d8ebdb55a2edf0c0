#include "daemon/seqpoint/sum_firsts.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "daemon/seqpoint/dense.h"

namespace seqpoint {
namespace {

constexpr int kMinTimes = 8;
// More of either tell no more.
constexpr size_t kEnoughTimes = 4096;
constexpr int kRounds = 6;
// Residuals beyond so many deviations weigh less (Huber).
constexpr double kHuber = 2;
constexpr double kLeastNoise = 1e-3;
// What all first occurrences in an iteration cost, before anything is known: so much of its time.
constexpr double kPriorShare = 0.2;
constexpr double kRidge = 1e-9;  // two lengths may be one

constexpr int kColumns = 4;  // 1, the key's values, what was opened
using Row = std::array<double, kColumns>;

struct Data {
  std::vector<Row> rows;  // the last term is for one size
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
// the last coefficient before anything is known.
std::optional<Fit> FitRows(const Data& data, const Row& mean, double penalty) {
  const size_t n = data.rows.size();
  std::vector<double> weights = data.counts;
  double noise = 0.05;
  Fit fit;
  double count = 0;
  for (double c : data.counts) count += c;
  for (int round = 0; round < kRounds; ++round) {
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
    for (int i = 0; i < kColumns; ++i) normal[i * kColumns + i] += kRidge * (count + 1);
    normal[kColumns * kColumns - 1] += penalty * noise * noise;
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
      weights[r] = data.counts[r] * std::min(1.0, kHuber / std::max(miss, 1e-9));
      loss += data.counts[r] * (miss < kHuber ? miss * miss : 2 * kHuber * miss - kHuber * kHuber);
    }
    const double last = fit.coefficients[kColumns - 1];
    loss += penalty * last * last;
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

SumFirsts JudgeSumFirsts(absl::Span<const KeyTimes> regular, absl::Span<const FirstTime> first) {
  SumFirsts judged;
  double count = 0, time = 0, mean[2] = {0, 0};
  const auto add = [&](const Key& key, double times, double ns) {
    count += times;
    time += times * ns;
    mean[0] += times * static_cast<double>(key.first);
    mean[1] += times * static_cast<double>(key.second);
  };
  for (const KeyTimes& g : regular) add(g.key, g.count, g.mean);
  for (const FirstTime& f : first) {
    if (!f.of_run) add(f.time.key, 1, f.time.time_ns);
  }
  if (count < kMinTimes) return judged;
  time /= count;
  const Row typical_row = {1, 1, mean[1] > 0 ? 1.0 : 0.0, 0};
  for (double& m : mean) m = m > 0 ? m / count : 1;
  const auto row = [&](const Key& key, double opened) {
    return Row{1, static_cast<double>(key.first) / mean[0],
               static_cast<double>(key.second) / mean[1], opened};
  };

  struct Hypothesis {
    Fit fit;
    int size;
    double probability;
  };
  std::vector<Hypothesis> hypotheses;
  double best = -INFINITY;
  for (int s = -1; s < kBucketSizes; ++s) {
    Data data;
    double opened = 0;
    for (size_t i = 0; i < regular.size(); i += 1 + regular.size() / kEnoughTimes) {
      const KeyTimes& g = regular[i];
      data.rows.push_back(row(g.key, 0));
      data.times.push_back(g.mean / time);
      data.counts.push_back(g.count);
    }
    for (size_t i = 0; i < first.size(); i += 1 + first.size() / kEnoughTimes) {
      const FirstTime& f = first[i];
      if (f.of_run) continue;
      const double here = s < 0 ? 0 : f.opened[s];
      opened += here;
      data.rows.push_back(row(f.time.key, here));
      data.times.push_back(f.time.time_ns / time);
      data.counts.push_back(1);
    }
    const double typical = opened / count / kPriorShare;
    const std::optional<Fit> fit =
        FitRows(data, typical_row, s < 0 ? 1 : std::max(typical * typical, 1e-6));
    if (!fit || (s >= 0 && fit->coefficients[kColumns - 1] <= 0)) continue;
    hypotheses.push_back({*fit, s, fit->log_evidence});
    best = std::max(best, fit->log_evidence);
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
    if (h.size >= 0) judged.costly_probability += h.probability;
  }
  judged.doubt = std::sqrt(std::max(0.0, square - level * level)) / std::max(level, 0.1);
  for (const FirstTime& f : first) {
    double surcharge = 0, plain = 0;
    for (const Hypothesis& h : hypotheses) {
      const double cost = h.size < 0 ? 0 : h.fit.coefficients[kColumns - 1] * f.opened[h.size];
      surcharge += h.probability * cost;
      plain += h.probability * Value(h.fit.coefficients, row(f.time.key, 0));
    }
    judged.surcharge_ns.push_back(surcharge * time);
    judged.excess_ns.push_back(f.time.time_ns - plain * time);
  }
  return judged;
}

}  // namespace seqpoint
