#include "daemon/seqpoint/expected_end.h"

#include <cmath>

namespace seqpoint {
namespace {

// Fewer parts tell hardly anything of how they vary.
constexpr size_t kFewestParts = 8;

}  // namespace

void WallPace::Add(int64_t begin_ns, int64_t duration_ns) {
  if (begin_ns < last_begin_ns_) *this = WallPace();
  if (last_begin_ns_ != 0 && last_duration_ns_ > 0) {
    open_.wall_ns += static_cast<double>(begin_ns - last_begin_ns_);
    open_.training_ns += static_cast<double>(last_duration_ns_);
    ++iterations_;
  }
  last_begin_ns_ = begin_ns;
  last_duration_ns_ = duration_ns;
  if (iterations_ < size_) return;
  parts_.push_back(open_);
  open_ = {};
  iterations_ = 0;
  if (parts_.size() < kMostParts) return;
  for (size_t i = 0; i < kMostParts / 2; ++i) {
    const Part& a = parts_[2 * i];
    const Part& b = parts_[2 * i + 1];
    parts_[i] = {a.wall_ns + b.wall_ns, a.training_ns + b.training_ns};
  }
  parts_.resize(kMostParts / 2);
  size_ *= 2;
}

std::optional<Estimate> WallPace::WallTimeOf(const Estimate& training, double confidence) const {
  const auto n = static_cast<double>(parts_.size());
  if (parts_.size() < kFewestParts) return std::nullopt;
  double wall = open_.wall_ns, trained = open_.training_ns, of_parts = 0;
  for (const Part& part : parts_) {
    wall += part.wall_ns;
    trained += part.training_ns;
    of_parts += part.training_ns;
  }
  const double pace = wall / trained;
  double squares = 0;
  for (const Part& part : parts_) {
    squares += std::pow(part.wall_ns - pace * part.training_ns, 2);
  }
  // The pace of the parts so far is not exactly that of all, and those to come vary as these did.
  const double mean = of_parts / n;
  const double variance = squares / (n - 1);
  const double to_come = training.value / mean;  // parts
  const double of_pace = std::sqrt(variance * (to_come + to_come * to_come / n));
  const double quantile = StudentQuantile(confidence, n - 1);
  const double value = pace * training.value;
  return Estimate{value,
                  value - std::hypot(quantile * of_pace, pace * (training.value - training.low)),
                  value + std::hypot(quantile * of_pace, pace * (training.high - training.value))};
}

}  // namespace seqpoint
