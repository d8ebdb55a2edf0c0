#include "daemon/seqpoint/intermittent.h"

#include <algorithm>
#include <cmath>

#include "daemon/seqpoint/forecast.h"

namespace seqpoint {

Intermittent::Intermittent(absl::Span<const Measurement> measurements,
                           absl::Span<const double> values, const KeyScale& scale) {
  double with = 0, sum = 0;
  for (size_t i = 0; i < measurements.size(); ++i) {
    const Point at = scale(measurements[i].key);
    for (int d = 0; d < 2; ++d) {
      low_[d] = i == 0 ? at[d] : std::min(low_[d], at[d]);
      high_[d] = i == 0 ? at[d] : std::max(high_[d], at[d]);
    }
    with += values[i] != 0 ? 1 : 0;
    sum += std::abs(values[i]);
  }
  if (with == 0) return;
  const auto count = static_cast<double>(measurements.size());
  // Half a measurement with it and half a one without were seen on top: that all others had it,
  // or none, does not mean that every iteration has.
  const double share = (with + 0.5) / (count + 1);
  if (with < count) presence_variance_ = std::pow(sum / with, 2) * share * (1 - share) / count;
  NoteOthers(measurements);
  if (with < count) probability_ = 1;
  beyond_ = std::min(sum / with, beyond_);
}

double Intermittent::LeastVariance(absl::Span<const CurveTarget> targets) const {
  return std::pow(IterationsOf(targets), 2) * presence_variance_;
}

std::vector<Normal> Intermittent::Beyond(absl::Span<const CurveTarget> targets) const {
  double beyond = 0;
  for (const CurveTarget& t : targets) {
    const bool within = low_[0] <= t.point[0] && t.point[0] <= high_[0] && low_[1] <= t.point[1] &&
                        t.point[1] <= high_[1];
    if (!within) beyond += t.weight;
  }
  if (!(beyond * beyond_ > 0)) return {{1, 0, 0}};
  return {{1 - probability_, 0, 0}, {probability_, 0, std::pow(beyond * beyond_, 2) / 3}};
}

// How many of the set's statistics come and go, and by how much at most.
void Intermittent::NoteOthers(absl::Span<const Measurement> measurements) {
  std::vector<double> sums, with;
  for (const Measurement& m : measurements) {
    sums.resize(std::max(sums.size(), m.values.size()));
    with.resize(sums.size());
    for (size_t i = 0; i < m.values.size(); ++i) {
      sums[i] += std::abs(m.values[i]);
      with[i] += m.values[i] != 0 ? 1 : 0;
    }
  }
  double all = 0, jumping = 0;
  for (size_t i = 0; i < sums.size(); ++i) {
    all += with[i] > 0 ? 1 : 0;
    if (with[i] == 0 || with[i] == static_cast<double>(measurements.size())) continue;
    ++jumping;
    beyond_ = std::max(beyond_, sums[i] / with[i]);
  }
  probability_ = jumping / all;
}

}  // namespace seqpoint
