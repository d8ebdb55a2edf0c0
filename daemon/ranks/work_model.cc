#include "daemon/ranks/work_model.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "daemon/base/linear_solver.h"
#include "daemon/base/statistics.h"
#include "daemon/ranks/cusum_bank.h"

namespace seqpoint::ranks {
namespace {

constexpr size_t kTerms = WorkSums::kTerms;
// The terms are of the order of 1 for usual lengths, so that they can share one ridge.
constexpr double kUnit = 1024;
// Relative: terms that the data do not tell apart stay finite.
constexpr double kRidge = 1e-9;
// So many iterations are remembered; older ones fade.
constexpr double kModelMemory = 4096;
// Relative, of one time: few samples lie on a curve by chance.
constexpr double kLeastDeviation = 0.002;

}  // namespace

LengthTerms TermsOf(const Lengths& lengths) {
  const double a = static_cast<double>(lengths[0]) / kUnit;
  const double b = static_cast<double>(lengths[1]) / kUnit;
  return {1, a, a * a, b, b * b, a * b};
}

void WorkSums::Add(const Lengths& lengths, double time_ns) {
  if (!(time_ns > 0)) return;
  const LengthTerms terms = TermsOf(lengths);
  // Times in ms, as terms of the order of 1.
  const double weight = 1e6 / time_ns;
  for (size_t i = 0; i < kTerms; ++i) {
    targets[i] += terms[i] * weight;
    for (size_t j = 0; j < kTerms; ++j)
      products[i * kTerms + j] += terms[i] * terms[j] * weight * weight;
  }
  count += 1;
}

void WorkSums::Add(const WorkSums& other) {
  for (size_t i = 0; i < products.size(); ++i) products[i] += other.products[i];
  for (size_t i = 0; i < targets.size(); ++i) targets[i] += other.targets[i];
  count += other.count;
}

void WorkModel::Keep(double count) {
  const double keep = count / sums_.count;
  for (double& product : sums_.products) product *= keep;
  for (double& target : sums_.targets) target *= keep;
  sums_.count = count;
}

void WorkModel::Forget() {
  if (sums_.count > 1) Keep(1);
  fitted_at_ = 0;
}

void WorkModel::Learn(const WorkSums& sums) {
  const double all = sums_.count + sums.count;
  if (all > kModelMemory) Keep(sums_.count * kModelMemory / all);
  sums_.Add(sums);
  // A sixteenth more data moves the fit by less than its error.
  if (sums_.count >= fitted_at_ * 17 / 16 || sums_.count >= kModelMemory / 2) Fit();
}

double WorkModel::Start(const std::vector<WorkSample>& samples) {
  constexpr int kTurns = 4;  // each one leaves out what the one before hid
  std::vector<bool> kept(samples.size(), true);
  double deviation = 0;
  for (int turn = 0; turn < kTurns; ++turn) {
    WorkSums sums;
    for (size_t i = 0; i < samples.size(); ++i)
      if (kept[i]) sums.Add(samples[i].lengths, samples[i].time_ns);
    *this = {};
    Learn(sums);
    std::vector<double> distances;
    for (const WorkSample& sample : samples)
      distances.push_back(Expect(sample.lengths) / sample.time_ns - 1);
    deviation = std::max(MedianDeviation(distances, 0), kLeastDeviation);
    for (size_t i = 0; i < samples.size(); ++i)
      kept[i] = std::abs(distances[i]) <= kClip * deviation;
  }
  return deviation;
}

// The Cholesky factor of the normal equations, or nothing.
std::vector<double> WorkModel::Factor() const {
  std::vector<double> matrix(sums_.products.begin(), sums_.products.end());
  for (size_t i = 0; i < kTerms; ++i) {
    double& diagonal = matrix[i * kTerms + i];
    diagonal = diagonal > 0 ? diagonal * (1 + kRidge) : 1;  // 0: no iteration has such a length
  }
  if (!Cholesky(matrix, kTerms)) matrix.clear();
  return matrix;
}

void WorkModel::Fit() {
  const std::vector<double> factor = Factor();
  if (factor.empty()) return;
  weights_ = sums_.targets;
  SolveLower(factor, kTerms, weights_.data());
  SolveUpper(factor, kTerms, weights_.data());
  fitted_at_ = sums_.count;
}

double WorkModel::Variance(const LengthTerms& terms) const {
  const std::vector<double> factor = Factor();
  if (factor.empty()) return 0;
  LengthTerms solved = terms;
  SolveLower(factor, kTerms, solved.data());
  double sum = 0;
  for (const double value : solved) sum += value * value;
  return sum * 1e12;  // from ms²
}

double WorkModel::Expect(const LengthTerms& terms) const {
  double ms = 0;
  for (size_t i = 0; i < kTerms; ++i) ms += terms[i] * weights_[i];
  const double mean_ms = sums_.targets[0] > 0 ? sums_.count / sums_.targets[0] : 0;
  return ms > mean_ms / 10 ? ms * 1e6 : 0;
}

}  // namespace seqpoint::ranks
