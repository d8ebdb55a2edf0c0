#include "daemon/jobs/job_engines.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "daemon/base/status_macros.h"
#include "daemon/seqpoint/engine_codec.h"
#include "injection/abi/matcher.h"

namespace seqpoint::jobs {
namespace {

absl::Status Named(std::string_view part, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::DataLossError(absl::StrCat(std::string(part), ": ", std::string(status.message())));
}

}  // namespace

void JobEngines::Split(const RankTable& ranks) {
  work_.emplace("work").engine = steps().Copy();
  work().current().KeepCalls();
  work_->log.Restart();
  builder_ = StepBuilder(ranks.next_numbers());
  next_sample_ = std::max(next_sample_, static_cast<uint64_t>(ranks.LargestNextNumber()));
}

void JobEngines::SetHorizon(EngineHorizons horizons) {
  steps().SetHorizon(std::move(horizons.steps)).IgnoreError();
  if (work_) work().SetHorizon(std::move(horizons.work)).IgnoreError();
}

void JobEngines::Close() {
  steps().Close();
  if (work_) work().Close();
  StoreWhole();
}

uint64_t JobEngines::AddIteration(Process& process, const FinishedIteration& iteration,
                                  const NumberedIteration& numbered, int64_t first_lost) {
  static_assert(IterationBuilder::kMaxStretch <= kMaxStretch);
  OnlineEngine& engine = work().current();
  const int64_t number = numbered.number;
  first_lost = std::max(first_lost, number - StepBuilder::kMostLost);
  for (int64_t lost = first_lost; lost < number; ++lost) {
    engine.AddIteration({.iteration = NextSample(lost)});
  }
  const uint64_t sample = NextSample(number);
  engine.AddIteration({.iteration = sample,
                       .key = numbered.key,
                       .time_ns = iteration.duration_ns(),
                       .rest_ns = iteration.rest_ns(),
                       .distorted = iteration.distorted(),
                       .measured = iteration.config_id() != 0,
                       .redone = numbered.redone,
                       .cold = numbered.cold,
                       .combined = numbered.sums,
                       .micro_batches = numbered.micro_batches});
  if (numbered.redone || iteration.duration_ns() > 0 || !numbered.known) {
    process.untimed.clear();
  } else {
    process.untimed.push_back({sample, numbered.key, numbered.cold});
  }
  if (iteration.stretch() > 0 && iteration.stretch() <= process.untimed.size()) {
    // Iterations that the engine refuses stay without a time.
    engine
        .AddStretch(absl::MakeConstSpan(process.untimed).last(iteration.stretch()),
                    iteration.stretch_ns())
        .IgnoreError();
  }
  if (iteration.stretch() > 0 || process.untimed.size() > IterationBuilder::kMaxStretch) {
    process.untimed.clear();
  }
  if (!split() || numbered.redone) return sample;
  Step step = iteration;
  step.clear_micro_lengths();
  step.set_number(static_cast<uint64_t>(number));
  step.set_first_length(numbered.key.first);
  step.set_second_length(numbered.key.second);
  step.set_valid(numbered.known ? 1 : 0);
  step.set_cold(numbered.cold);
  builder_.Add(process.row.rank, step);
  return sample;
}

std::vector<IterationRow> JobEngines::AddSteps(const std::set<int32_t>& live_ranks, bool all_heard,
                                               const LearnedRule* rule) {
  std::vector<IterationRow> rows;
  const int dimensions = rule != nullptr ? static_cast<int>(rule->rule.length_count) : 0;
  for (const Step& step : builder_.TakeSteps(live_ranks, all_heard)) {
    steps().current().AddIteration({.iteration = step.number(),
                                    .key = {step.first_length(), step.second_length()},
                                    .time_ns = step.duration_ns(),
                                    .rest_ns = step.rest_ns(),
                                    .distorted = step.distorted(),
                                    .measured = step.config_id() != 0,
                                    .cold = step.cold(),
                                    .combined = rule != nullptr && abi::SumsLengths(rule->rule)});
    rows.push_back({.rank = kStepsRank,
                    .number = static_cast<int64_t>(step.number()),
                    .length_count = step.valid() != 0 ? dimensions : 0,
                    .length = {step.first_length(), step.second_length()},
                    .duration_ns = step.duration_ns(),
                    .rest_ns = step.rest_ns(),
                    .flags = (step.distorted() ? kIterationDistorted : 0u) |
                             (step.cold() ? kIterationFirst : 0u),
                    .config_id = step.config_id() != 0 ? 1u : 0u});
  }
  return rows;
}

void JobEngines::AddMeasurement(uint32_t set, const MeasuredIterationState& iteration,
                                absl::Span<const double> values) {
  const absl::Status added = work().current().AddMeasurement(
      set, iteration.sample(), {iteration.first(), iteration.second()}, values);
  if (!added.ok()) return;
  ++measurements_[set];
  measured_of_ranks_[set][iteration.rank()].push_back(iteration.number());
}

void JobEngines::StoreWhole() {
  steps_.log.Restart();
  if (work_) work_->log.Restart();
}

void JobEngines::StoredEngine::Store(int64_t job_id, int32_t version, bool changed,
                                     std::vector<StateRow>& rows) {
  if (changed) {
    log.Write(
        job_id, version, SerializeCalls(engine.current().TakeCalls()),
        [&] { return engine.Serialize(); }, rows);
  }
  for (; closed < engine.closed(); ++closed) {
    rows.push_back({.job_id = job_id,
                    .part = absl::StrFormat("%s-%06d", part, closed),
                    .version = version,
                    .bytes = engine.SerializeClosed(closed)});
  }
}

absl::Status JobEngines::StoredEngine::Load(const std::vector<StateRow>& rows) {
  for (const StateRow& row : rows) {  // by part, and so in their order
    if (!absl::StartsWith(row.part, part + "-")) continue;
    SEQPOINT_RETURN_IF_ERROR(Named(row.part, engine.RestoreClosed(row.bytes)));
  }
  closed = engine.closed();
  const PartLog::Content content = log.Load(rows);
  absl::Status status = content.base.empty() ? absl::OkStatus() : engine.Restore(content.base);
  if (status.ok()) status = ReplayCalls(content.added, engine.current());
  if (status.ok()) engine.current().KeepCalls();
  return Named(part, status);
}

void JobEngines::Store(int64_t job_id, int32_t version, bool changed, std::vector<StateRow>& rows) {
  steps_.Store(job_id, version, changed, rows);
  if (work_) work_->Store(job_id, version, changed, rows);
}

void JobEngines::Save(EnginesState* to) const {
  for (const auto& [set, count] : measurements_) (*to->mutable_measurements())[set] = count;
  for (const auto& [set, ranks] : measured_of_ranks_) {
    for (const auto& [rank, numbers] : ranks) {
      MeasuredOfRankState& measured = *to->add_measured();
      measured.set_set(set);
      measured.set_rank(rank);
      measured.mutable_numbers()->Add(numbers.begin(), numbers.end());
    }
  }
  if (!work_) return;
  builder_.Save(to->mutable_steps());
  to->set_next_sample(next_sample_);
}

absl::Status JobEngines::Load(const std::vector<StateRow>& rows, const EnginesState& state) {
  measurements_.insert(state.measurements().begin(), state.measurements().end());
  for (const MeasuredOfRankState& measured : state.measured()) {
    measured_of_ranks_[measured.set()][measured.rank()].assign(measured.numbers().begin(),
                                                               measured.numbers().end());
  }
  SEQPOINT_RETURN_IF_ERROR(steps_.Load(rows));
  if (!state.has_steps()) return absl::OkStatus();
  builder_.Load(state.steps());
  next_sample_ = state.next_sample();
  return work_.emplace("work").Load(rows);
}

}  // namespace seqpoint::jobs
