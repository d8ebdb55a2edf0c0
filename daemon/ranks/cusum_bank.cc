#include "daemon/ranks/cusum_bank.h"

#include <algorithm>
#include <cmath>

namespace seqpoint::ranks {

double Threshold(size_t tests, double values, double false_alarms) {
  return std::log(static_cast<double>(kSlopes.size() * std::max<size_t>(tests, 1)) * values /
                  false_alarms);
}

void CusumBank::Add(int64_t number, double z, const Penalties& penalties) {
  z = std::clamp(z, -kClip, kClip);
  for (size_t i = 0; i < kSlopes.size(); ++i) {
    if (sums_[i] <= 0) onsets_[i] = number;
    if (starts_[i].earlier.number < 0) starts_[i] = {{number, 0}, {number, 0}};
    const double sum = sums_[i] + kSlopes[i] * z - penalties[i];
    if (sum < 0) starts_[i].Fall(number, -sum);
    sums_[i] = std::max(0.0, sum);
  }
}

void CusumBank::Starts::Fall(int64_t number, double by) {
  earlier.fall += by;
  later.fall += by;
  const Start next = {number + 1, 0};
  if (earlier.fall > kSuspicion) {
    earlier = later.fall > kSuspicion ? next : later;
    later = next;
  } else if (later.number == earlier.number && later.fall > kSuspicion / 2) {
    later = next;
  }
}

bool CusumBank::quiet() const {
  return std::all_of(sums_.begin(), sums_.end(), [](double sum) { return sum <= 0; });
}

int64_t CusumBank::onset() const {
  int64_t onset = onsets_[Largest()];
  for (size_t i = 0; i < kSlopes.size(); ++i)
    if (sums_[i] > kSuspicion) onset = std::min(onset, onsets_[i]);
  return onset;
}

size_t CusumBank::Largest() const {
  return static_cast<size_t>(std::max_element(sums_.begin(), sums_.end()) - sums_.begin());
}

}  // namespace seqpoint::ranks
