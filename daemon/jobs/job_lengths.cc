// The user's lengths: matched to the learned feature, made the engine's horizon.
#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/jobs/job.h"
#include "daemon/jobs/job_process.h"

namespace seqpoint::jobs {
namespace {

constexpr int64_t kScaleRetryIterations = 50;

Histogram1 Marginal(const v1::Horizon& horizon, int dimension) {
  Histogram1 histogram;
  for (const v1::LengthCount& entry : horizon.histogram()) {
    if (dimension < entry.lengths_size()) histogram[entry.lengths(dimension)] += entry.count();
  }
  return histogram;
}

}  // namespace

int64_t HorizonIterations(const v1::Horizon& horizon) {
  if (horizon.iterations() > 0) return horizon.iterations();
  int64_t total = 0;
  for (const v1::LengthCount& entry : horizon.histogram()) total += entry.count();
  return total * std::max<int64_t>(horizon.epochs(), 1);
}

absl::Status Job::SetHorizon(const v1::Horizon& horizon) {
  for (const v1::LengthCount& entry : horizon.histogram()) {
    if (entry.lengths_size() < 1 || entry.lengths_size() > 2 || entry.count() < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("horizon.histogram: an entry needs one or two lengths and a count, not ",
                       entry.lengths_size(), " and ", entry.count()));
    }
    for (const int64_t length : entry.lengths()) {
      if (length < 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("horizon.histogram: length ", length, " is negative"));
      }
    }
  }
  if (horizon.iterations() < 0 || horizon.epochs() < 0) {
    return absl::InvalidArgumentError(absl::StrCat("horizon: iterations ", horizon.iterations(),
                                                   " and epochs ", horizon.epochs(),
                                                   " must not be negative"));
  }
  horizon_ = horizon;
  horizon_applied_ = false;
  next_match_ = 0;
  factor_[0] = factor_[1] = 0;
  MatchLengths();
  plan_stale_ = true;
  state_dirty_ = true;
  ++generation_;
  return absl::OkStatus();
}

void Job::MatchLengths() {
  const int64_t seen = static_cast<int64_t>(engine_.current().Totals().iterations);
  if (horizon_.kind() == v1::Horizon::KIND_UNKNOWN || seen < next_match_) return;
  const bool by_length = horizon_.kind() != v1::Horizon::KIND_ITERATIONS;
  if (by_length && (seen < kScaleRetryIterations || !rule_)) {
    if (horizon_applied_) return;
    // The number of iterations is good from the start.
    engine_.SetHorizon(Horizon::Iterations(HorizonIterations(horizon_))).IgnoreError();
    horizon_applied_ = plan_stale_ = engine_dirty_ = true;
    summary_.generation = 0;
    return;
  }
  const bool known_before = factor_[0] > 0;
  if (by_length) FindFactors();
  absl::StatusOr<Horizon> horizon = EngineHorizon(horizon_);
  // Looked at again and again: what fits the first lengths may not fit the later ones.
  next_match_ = horizon.ok() ? std::max<int64_t>(2 * seen, 1) : seen + kScaleRetryIterations;
  if (horizon.ok() || known_before || !horizon_applied_) {
    engine_.SetHorizon(horizon.ok() ? *horizon : Horizon::Iterations(HorizonIterations(horizon_)))
        .IgnoreError();
    plan_stale_ = engine_dirty_ = true;
    summary_.generation = 0;
  }
  sentence_ = horizon.ok() ? "" : std::string(horizon.status().message());
  horizon_applied_ = true;
  ++generation_;
}

// Which of the user's lengths is which feature, and what one step of it is. Zero: no match.
void Job::FindFactors() {
  const int dimensions = static_cast<int>(rule_->rule.length_count);
  const int given = horizon_.histogram_size() == 0 ? 0 : horizon_.histogram(0).lengths_size();
  factor_[0] = factor_[1] = 0;
  double best = 2;
  for (const bool swapped : {false, true}) {
    if (dimensions == 0 || given == 0 || (swapped && given < 2)) continue;
    double distance = 0;
    int64_t factor[2] = {0, 0};
    bool matched = true;
    for (int i = 0; i < dimensions && matched; ++i) {
      const int column = given == 1 ? 0 : (swapped ? 1 - i : i);
      const auto scale = FindScale(observed_[i], Marginal(horizon_, column));
      matched = scale.has_value();
      if (!matched) break;
      factor[i] = scale->factor;
      distance = std::max(distance, scale->distance);
    }
    if (matched && distance < best) {
      best = distance;
      swapped_ = swapped;
      factor_[0] = factor[0];
      factor_[1] = factor[1];
    }
  }
}

absl::StatusOr<Horizon> Job::EngineHorizon(const v1::Horizon& horizon) const {
  switch (horizon.kind()) {
    case v1::Horizon::KIND_UNKNOWN:
      return Horizon::Unknown();
    case v1::Horizon::KIND_ITERATIONS:
      return Horizon::Iterations(horizon.iterations());
    default:
      break;
  }
  const int dimensions = rule_ ? static_cast<int>(rule_->rule.length_count) : 0;
  if (dimensions == 0 || factor_[0] == 0) {
    return absl::FailedPreconditionError(
        "the given lengths do not match the length feature that was learned, so only the number of "
        "iterations is used; check the column and the batch size");
  }
  std::map<Key, int64_t> counts;
  for (const v1::LengthCount& entry : horizon.histogram()) {
    const auto value = [&](int dimension) -> int64_t {
      if (dimension >= dimensions) return 0;
      const int column = entry.lengths_size() == 1 ? 0 : (swapped_ ? 1 - dimension : dimension);
      return entry.lengths(column) * factor_[dimension];
    };
    counts[{value(0), value(1)}] += entry.count();
  }
  std::vector<KeyCount> histogram;
  for (const auto& [key, count] : counts) histogram.push_back({key, count});
  const int64_t epochs = std::max<int64_t>(horizon.epochs(), 1);
  return horizon.kind() == v1::Horizon::KIND_HISTOGRAM
             ? Horizon::Histogram(std::move(histogram), epochs)
             : Horizon::Distribution(std::move(histogram), epochs);
}

absl::StatusOr<const RunEngine*> Job::EngineFor(const v1::Horizon* horizon,
                                                std::optional<RunEngine>& other) const {
  if (horizon == nullptr) return &engine_;
  absl::StatusOr<RunEngine> copy = engine_.Copy();
  if (!copy.ok()) return copy.status();
  absl::StatusOr<Horizon> wanted = EngineHorizon(*horizon);
  if (!wanted.ok()) return wanted.status();
  if (const absl::Status status = copy->SetHorizon(*std::move(wanted)); !status.ok()) return status;
  other = *std::move(copy);
  return &*other;
}

std::vector<int64_t> Job::UserLengths(const int64_t length[2], int count) const {
  std::vector<int64_t> lengths(count);
  for (int i = 0; i < count; ++i) {
    const int64_t unit = factor_[i] > 0 ? factor_[i] : NaturalUnit(observed_[i]);
    lengths[swapped_ && count == 2 ? 1 - i : i] = length[i] / unit;
  }
  return lengths;
}

}  // namespace seqpoint::jobs
