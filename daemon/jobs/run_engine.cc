#include "daemon/jobs/run_engine.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/base/status_macros.h"
#include "daemon/jobs/cumulative_rounder.h"

namespace seqpoint::jobs {
namespace {

// The sum of two independent estimates.
Estimate Sum(const Estimate& a, const Estimate& b) {
  const double value = a.value + b.value;
  return {value, value - std::hypot(a.value - a.low, b.value - b.low),
          value + std::hypot(a.high - a.value, b.high - b.value)};
}

}  // namespace

void RunEngine::Close() {
  closed_iterations_ += static_cast<int64_t>(current_.Totals().iterations);
  closed_.push_back(std::exchange(current_, OnlineEngine()));
  current_.KeepCalls();
}

absl::Status RunEngine::SetHorizon(Horizon horizon) {
  another_ = horizon.another;
  if (closed_iterations_ == 0 || another_ || horizon.kind == Horizon::Kind::kUnknown) {
    return current_.SetHorizon(std::move(horizon));
  }
  const int64_t left = std::max<int64_t>(horizon.iterations - closed_iterations_, 0);
  if (horizon.kind == Horizon::Kind::kIterations) {
    return current_.SetHorizon(Horizon::Iterations(left));
  }
  // The lengths of the closed engines are not known in the current keys: of each length the average
  // number is left.
  const double share = static_cast<double>(left) / static_cast<double>(horizon.iterations);
  CumulativeRounder round;
  for (KeyCount& entry : horizon.histogram) {
    entry.count = round.Next(static_cast<double>(entry.count) * share);
  }
  // The same holds for the lengths of their micro-batches (and a Distribution has none).
  std::erase_if(horizon.histogram, [](const KeyCount& entry) { return entry.count == 0; });
  if (horizon.histogram.empty()) return current_.SetHorizon(Horizon::Iterations(left));
  return current_.SetHorizon(Horizon::Distribution(std::move(horizon.histogram)));
}

EngineTotals RunEngine::Totals() const {
  EngineTotals sum = current_.Totals();
  for (const OnlineEngine& engine : closed_) {
    const EngineTotals part = engine.Totals();
    sum.iterations += part.iterations;
    sum.redone += part.redone;
    sum.untimed += part.untimed;
    sum.together += part.together;
    sum.stretches += part.stretches;
    sum.distorted += part.distorted;
    sum.measured += part.measured;
    sum.rejected += part.rejected;
    sum.observed_time_ns += part.observed_time_ns;
    sum.measurements_used += part.measurements_used;
    sum.measurements_refused += part.measurements_refused;
  }
  return sum;
}

void RunEngine::AddClosed(Projection& sum, const Projection& part) const {
  sum.iterations_so_far += part.iterations_so_far;
  sum.measured_with += part.measured_with;
  const auto add = [&](std::optional<Estimate>& to) {
    if (to && part.so_far) {
      to = Sum(*to, *part.so_far);
    } else {
      to.reset();
    }
  };
  add(sum.so_far);
  if (another_ || sum.iterations_total == 0) return;
  add(sum.total);
  sum.iterations_total += part.iterations_so_far;
}

Projection RunEngine::ProjectTime(double confidence, bool host_times) const {
  Projection sum = current_.ProjectTime(confidence, host_times);
  for (const OnlineEngine& engine : closed_)
    AddClosed(sum, engine.ProjectTime(confidence, host_times));
  if (closed_iterations_ > 0) {
    absl::StrAppend(&sum.basis, "; ", closed_iterations_,
                    " iterations before them ran under an earlier rule");
  }
  return sum;
}

absl::StatusOr<Projection> RunEngine::ProjectStatistic(uint32_t set, int index, double confidence,
                                                       StatisticKind kind) const {
  return ProjectStatistics(set, {&index, 1}, confidence, kind);
}

std::vector<double> RunEngine::MeasuredSums(uint32_t set) const {
  std::vector<double> sums = current_.MeasuredSums(set);
  for (const OnlineEngine& engine : closed_) {
    const std::vector<double> part = engine.MeasuredSums(set);
    sums.resize(std::max(sums.size(), part.size()));
    for (size_t i = 0; i < part.size(); ++i) sums[i] += part[i];
  }
  return sums;
}

absl::StatusOr<Projection> RunEngine::ProjectStatistics(uint32_t set, absl::Span<const int> indices,
                                                        double confidence,
                                                        StatisticKind kind) const {
  absl::StatusOr<Projection> sum = current_.ProjectStatistics(set, indices, confidence, kind);
  for (const OnlineEngine& engine : closed_) {
    if (!sum.ok()) break;
    if (engine.Totals().iterations == 0) continue;
    const absl::StatusOr<Projection> part =
        engine.ProjectStatistics(set, indices, confidence, kind);
    // It was measured, and no kernel had this index.
    if (absl::IsOutOfRange(part.status())) continue;
    if (!part.ok()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the rule was learned again, and of the ", engine.Totals().iterations,
          " iterations before that none was measured for this: ", part.status().message()));
    }
    AddClosed(*sum, *part);
  }
  return sum;
}

RunEngine RunEngine::Copy() const {
  RunEngine copy;
  copy.current_ = current_.Copy();
  for (const OnlineEngine& engine : closed_) copy.closed_.push_back(engine.Copy());
  copy.closed_iterations_ = closed_iterations_;
  return copy;
}

absl::Status RunEngine::Restore(std::string_view state) {
  SEQPOINT_ASSIGN_OR_RETURN(current_, ParseEngine(state));
  return absl::OkStatus();
}

absl::Status RunEngine::RestoreClosed(std::string_view state) {
  SEQPOINT_ASSIGN_OR_RETURN(OnlineEngine engine, ParseEngine(state));
  closed_iterations_ += static_cast<int64_t>(engine.Totals().iterations);
  closed_.push_back(std::move(engine));
  return absl::OkStatus();
}

}  // namespace seqpoint::jobs
