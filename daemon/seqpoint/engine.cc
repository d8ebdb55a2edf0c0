#include "daemon/seqpoint/engine.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/seqpoint/engine_state.h"
#include "daemon/seqpoint/fitted_model.h"
#include "daemon/seqpoint/statistic_projector.h"
#include "daemon/seqpoint/time_projector.h"

namespace seqpoint {

OnlineEngine::OnlineEngine() : state_(std::make_unique<EngineState>()) {}
OnlineEngine::OnlineEngine(EngineState state)
    : state_(std::make_unique<EngineState>(std::move(state))) {}
OnlineEngine::~OnlineEngine() = default;
OnlineEngine::OnlineEngine(OnlineEngine&&) noexcept = default;
OnlineEngine& OnlineEngine::operator=(OnlineEngine&&) noexcept = default;

OnlineEngine OnlineEngine::Copy() const {
  OnlineEngine copy(*state_);
  if (fitted_) copy.fitted_ = std::make_unique<FittedModel>(*fitted_);
  return copy;
}

void OnlineEngine::AddIteration(const IterationSample& sample) {
  if (calls_) calls_->since_taken.push_back(sample);
  EngineState& s = *state_;
  if (!s.log.Accepts(sample)) return;
  fitted_.reset();
  if (sample.phase == Phase::kOther) return s.log.AddOther(sample);
  const SampleUse use(sample);
  const double time_ns = static_cast<double>(sample.time_ns);
  if (use.usable) {
    if (!s.log.keys.LengthUnknown(sample.key)) {
      s.plain.trace.Add(sample.iteration, sample.key, time_ns);
    }
    s.plain.Add(time_ns);
  }
  KeyRecord* record = s.log.Add(sample, use);
  if (record == nullptr) return;
  const ColdIterations::Noted noted = s.cold.Add(sample, use, *record);
  if (!use.usable || noted.recurrence) return;
  s.sample.Add({sample.key, time_ns, noted.cold});
  if (noted.cold || s.log.keys.LengthUnknown(sample.key)) return;
  s.filter.Add({sample.key, time_ns}, s.log.newest, s.sample, record->ordinary, s.log.keys);
}

absl::Status OnlineEngine::AddStretch(absl::Span<const StretchIteration> iterations,
                                      int64_t time_ns) {
  if (calls_) {
    // One more than is taken is refused as more are.
    const auto noted = iterations.subspan(0, kMaxStretch + 1);
    calls_->since_taken.push_back(StretchCall{{noted.begin(), noted.end()}, time_ns});
  }
  EngineState& s = *state_;
  if (absl::Status status = s.log.CheckStretch(iterations, time_ns); !status.ok()) return status;
  fitted_.reset();
  const auto time = static_cast<double>(time_ns);
  s.log.AddStretch(iterations, time);
  s.cold.AddStretch(iterations);
  ++s.stretches.count;
  s.stretches.iterations += iterations.size();
  std::vector<Key> keys;
  uint64_t last = 0;
  for (const StretchIteration& i : iterations) {
    keys.push_back(i.key);
    last = std::max(last, i.iteration);
  }
  s.stretches.trace.Add(last, keys, time);
  return absl::OkStatus();
}

absl::Status OnlineEngine::AddMeasurement(uint32_t set, uint64_t iteration, const Key& key,
                                          absl::Span<const double> values) {
  if (calls_) {
    // As above.
    const auto noted = values.subspan(0, kMaxValues + 1);
    calls_->since_taken.push_back(
        MeasurementCall{set, iteration, key, {noted.begin(), noted.end()}});
  }
  EngineState& s = *state_;
  absl::Status status = s.measurements.Check(set, iteration, values);
  if (status.ok() && s.log.keys.Find(key) == nullptr) {
    status = absl::FailedPreconditionError(
        absl::StrCat("iteration ", iteration, " was measured with key (", key.first, ", ",
                     key.second, "), which never occurred; add the iteration first"));
  }
  // Early in a run nearly every sum holds an unseen length, and the budget is soon spent: such
  // iterations are measured all the same.
  if (status.ok() && !s.cold.sums && s.cold.IsCold(iteration) &&
      Fitted().time.warm_up != TimeModel::WarmUp::kOrdinary) {
    status = absl::FailedPreconditionError(
        absl::StrCat("iteration ", iteration, " is the first occurrence of its length (", key.first,
                     ", ", key.second, ") and may hold algorithm search; it is not used"));
  }
  if (status.ok()) {
    s.measurements.Add(set, iteration, key, values);
  } else {
    s.measurements.Refuse(iteration);
  }
  return status;
}

absl::Status OnlineEngine::SetHorizon(Horizon horizon) {
  absl::StatusOr<Horizon> checked = Horizon::Checked(std::move(horizon));
  if (!checked.ok()) return checked.status();
  const std::vector<KeyCount>& lengths = checked->histogram;
  if (checked->another && !lengths.empty() && state_->log.keys.LengthUnknown(lengths[0].key)) {
    return absl::InvalidArgumentError(absl::StrCat(
        lengths[0].count,
        " of the given lengths are 0, and an iteration of length 0 counts as one whose "
        "length is not known; leave them out"));
  }
  if (calls_) calls_->since_taken.push_back(*checked);
  state_->horizon = *std::move(checked);
  ++state_->horizon_version;
  fitted_.reset();
  return absl::OkStatus();
}

const FittedModel& OnlineEngine::Fitted() const {
  if (!fitted_) fitted_ = std::make_unique<FittedModel>(FitModel(*state_));
  return *fitted_;
}

void OnlineEngine::Refresh(const PlanOptions& options) const {
  RefreshPlan(*state_, options, [this]() -> const FittedModel& { return Fitted(); });
}

Plan OnlineEngine::MakePlan(const PlanOptions& options) const {
  Refresh(options);
  return MakePlanOf(*state_, options);
}

std::vector<SeqPointInfo> OnlineEngine::SeqPoints(const PlanOptions& options) const {
  Refresh(options);
  return SeqPointsOf(*state_, options);
}

Projection OnlineEngine::ProjectTime(double confidence, bool host_times) const {
  return ProjectTimeOf(*state_, Fitted(), confidence, host_times);
}

absl::StatusOr<Projection> OnlineEngine::ProjectStatistic(uint32_t set, int index,
                                                          double confidence,
                                                          StatisticKind kind) const {
  return ProjectStatistics(set, {&index, 1}, confidence, kind);
}

absl::StatusOr<Projection> OnlineEngine::ProjectStatistics(uint32_t set,
                                                           absl::Span<const int> indices,
                                                           double confidence,
                                                           StatisticKind kind) const {
  return ProjectStatisticsOf(*state_, Fitted(), set, indices, confidence, kind);
}

std::vector<double> OnlineEngine::MeasuredSums(uint32_t set) const {
  return state_->measurements.Sums(set);
}

KeyFit OnlineEngine::Explained() const { return Fitted().explained; }

std::vector<KeyTimes> OnlineEngine::OrdinaryTimes() const {
  const KeyTable& keys = state_->log.keys;
  const TimeModel& model = Fitted().time;
  std::vector<KeyTimes> times;
  if (!model.known) return times;
  double known = 0;
  for (const auto& [key, record] : keys.Sorted()) {
    if (record.iterations == 0 || keys.LengthUnknown(key)) continue;
    const auto count = static_cast<double>(record.iterations);
    const auto& o = record.ordinary;
    const double mean = o.count > 0 ? o.mean_ns : std::max(1.0, PredictTime(key));
    const double variance = o.count > 1 ? o.m2 / (o.count - 1) : std::pow(model.noise * mean, 2);
    times.push_back({key, count, mean, variance * (count - 1)});
    known += count;
  }
  const double scale = static_cast<double>(state_->log.iterations) / known;
  for (KeyTimes& t : times) {
    t.count *= scale;
    t.m2 *= scale;
  }
  return times;
}

double OnlineEngine::PredictTime(const Key& key) const {
  const TimeModel& model = Fitted().time;
  return model.known && IsValid(key) ? std::max(0.0, model.At(key)) : 0;
}

EngineTotals OnlineEngine::Totals() const {
  const EngineState& s = *state_;
  return {.iterations = s.log.iterations,
          .redone = s.log.redone,
          .untimed = s.log.untimed,
          .together = s.stretches.iterations,
          .stretches = s.stretches.count,
          .distorted = s.log.distorted,
          .measured = s.log.measured,
          .cold_iterations = s.cold.count,
          .outliers = s.filter.stalls,
          .rejected = s.log.rejected,
          .other_iterations = s.log.other_iterations,
          .other_time_ns = s.log.other_time_ns,
          .observed_time_ns = s.log.observed_time_ns,
          .unique_keys = s.log.keys.Lengths(),
          .measurements_used = s.measurements.used,
          .measurements_refused = s.measurements.refused};
}

std::vector<int64_t> OnlineEngine::SeenLengths(int dimension, MicroBatch::Kind kind) const {
  std::vector<int64_t> lengths;
  for (const auto& [length, iteration] : state_->cold.first_seen[LengthList(dimension, kind)]) {
    lengths.push_back(length);
  }
  return lengths;
}

void OnlineEngine::KeepCalls() {
  calls_ = std::make_unique<Calls>();
  calls_->plan = state_->plan;
}

std::vector<EngineCall> OnlineEngine::TakeCalls() {
  if (!calls_) return {};
  if (calls_->plan != state_->plan) {
    calls_->since_taken.push_back(state_->plan);
    calls_->plan = state_->plan;
  }
  return std::exchange(calls_->since_taken, {});
}

absl::Status OnlineEngine::Replay(std::vector<EngineCall> calls) {
  for (EngineCall& call : calls) {
    if (const auto* sample = std::get_if<IterationSample>(&call)) {
      AddIteration(*sample);
    } else if (const auto* stretch = std::get_if<StretchCall>(&call)) {
      AddStretch(stretch->iterations, stretch->time_ns).IgnoreError();
    } else if (const auto* m = std::get_if<MeasurementCall>(&call)) {
      AddMeasurement(m->set, m->iteration, m->key, m->values).IgnoreError();
    } else if (auto* plan = std::get_if<PlanBasis>(&call)) {
      state_->plan = std::move(*plan);
    } else if (absl::Status status = SetHorizon(std::get<Horizon>(std::move(call))); !status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

}  // namespace seqpoint
