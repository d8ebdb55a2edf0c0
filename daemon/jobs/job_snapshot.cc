// Snapshots of a job.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/base/status_macros.h"
#include "daemon/jobs/job.h"
#include "daemon/jobs/process.h"
#include "daemon/jobs/process_descriptions.h"

namespace seqpoint::jobs {

// A process that goes on from one that is over does its last, open iteration again. No iteration is
// missing where all that were said are there.
bool Job::HasOpenEnd() const {
  const int64_t said = RunIterations();
  if (said > 0 && static_cast<int64_t>(engines_.steps().Totals().iterations) == said) return false;
  return std::any_of(processes_.begin(), processes_.end(), [&](const auto& entry) {
    const Process& process = *entry.second;
    if (process.alive() || !process.counts() || !process.builder.has_begun()) return false;
    return process.state.ended_well() ||
           std::none_of(processes_.begin(), processes_.end(), [&](const auto& other) {
             const ProcessRow& row = other.second->row;
             return row.rank == process.row.rank && row.incarnation > process.row.incarnation &&
                    other.second->counts();
           });
  });
}

// 0 where epochs differ. Nothing tells to which epoch the iterations belong that a run has beyond
// those that were announced.
int64_t Job::EpochIterations() const {
  const int64_t epochs = matching_.horizon().epochs(), run = RunIterations();
  if (epochs < 1 || run == 0 || run % epochs != 0) return 0;
  if (static_cast<int64_t>(engines_.steps().Totals().iterations) > run) return 0;
  if (matching_.horizon().kind() != v1::Horizon::KIND_ITERATIONS && micro_batches_.vary()) return 0;
  return run / epochs;
}

SnapshotData Job::CollectData() const {
  SnapshotData data{.job_id = row_.job_id,
                    .name = row_.name,
                    .run_id = row_.run_id,
                    .command = row_.command,
                    .start_ns = row_.start_ns,
                    .end_ns = row_.end_ns,
                    .refused = !refused_.empty(),
                    .batch = matching_.horizon().batch(),
                    .generation = changes_.generation(),
                    .horizon_kind = matching_.horizon().kind(),
                    .epoch_iterations = EpochIterations(),
                    .live = live(),
                    .imported = facts_.imported(),
                    .measurable = AnyHasCupti(processes_),
                    .host_times = facts_.host_times(),
                    .clock_kind = ClockKindOf(processes_),
                    .losses = SumLosses(),
                    .dimensions = rule_ ? static_cast<int>(rule_->rule.length_count) : 0,
                    .units = matching_.Units(Shape(), observed_),
                    .metrics = metrics_.choice(),
                    .refused_configs = metrics_.refused(),
                    .plan = MakePlanOptions(metrics_, MeasurementBudget()),
                    .measurements = engines_.measurements(),
                    .kernels = kernels_.names(),
                    .engine = engines_.steps().Copy()};
  data.uncounted = UncountedInWords(processes_, ranks_);
  data.overcounted = OvercountedInWords(processes_);
  data.unmatched = UnmatchedInWords(processes_);
  data.begun = HasOpenEnd();
  if (engines_.steps().Totals().iterations == 0 && row_.end_ns != 0) {
    data.ended_without = Error();
    if (data.ended_without.empty()) data.ended_without = "it is not known why";
  }
  data.roofline = roofline_;
  data.no_roofline = WhyNoRoofline(processes_, metrics_.choice());
  if (data.no_roofline.empty()) data.no_roofline = plan_.waits();
  if (data.no_roofline.empty()) data.no_roofline = "each length is first measured otherwise";
  for (const auto& [id, process] : processes_) {
    if (process->uncounted() && !process->state.concurrent()) {
      data.counted_to = std::min(data.counted_to, process->CountedTo());
    }
    AddSampled(process->state.sampled(), &data.sampled);
    data.iterations_per_rank[process->row.rank] +=
        static_cast<int64_t>(process->state.iterations());
    const v1::Feature* const feature = process->FindFeature(abi::Feature::kRoofline);
    if (feature == nullptr || feature->state() != v1::FEATURE_STATE_FAILED) continue;
    data.roofline_failures.push_back(
        absl::StrCat("rank ", process->row.rank, ": ", feature->message()));
  }
  for (const auto& [rank, next] : ranks_.next_numbers()) data.ranks.push_back(rank);
  data.started_ranks = ranks_.started();
  data.next_number = ranks_.LargestNextNumber();
  for (const auto& [rank, process] : processes_.LastOfRanks()) {
    if (engines_.split()) data.collectives[rank] = process->collectives.names();
  }
  if (!data.overcounted.empty()) data.counted_to = 0;
  if (engines_.split()) {
    data.work = engines_.work().Copy();
    data.late = engines_.builder().late();
    data.measured_of_ranks = engines_.measured_of_ranks();
    if (NoRanksKnown().empty()) data.slow = diagnosis_.Spans(observation_.verdicts());
  }
  if (rule_) data.rule = DescribeRule();
  const EngineTotals totals = engines_.steps().Totals();
  data.mostly_untimed = MostlyUntimed() && totals.untimed * 2 >= totals.iterations;
  return data;
}

absl::StatusOr<std::shared_ptr<const Snapshot>> Job::TakeSnapshot(const v1::Horizon* horizon) {
  if (horizon == nullptr) return snapshots_.Take([this] { return CollectData(); });
  SEQPOINT_ASSIGN_OR_RETURN(EngineHorizons other, matching_.OtherRun(*horizon, Shape(), observed_));
  return TakeOther(std::move(other), horizon->kind());
}

absl::StatusOr<std::shared_ptr<const Snapshot>> Job::TakePartSnapshot(
    std::vector<KeyCount> steps, std::vector<KeyCount> work) const {
  EngineHorizons part = {Horizon::Histogram(std::move(steps)), Horizon::Histogram(std::move(work))};
  part.steps.another = part.work.another = true;
  return TakeOther(std::move(part), v1::Horizon::KIND_UNKNOWN);
}

absl::StatusOr<std::shared_ptr<const Snapshot>> Job::TakeOther(EngineHorizons horizons,
                                                               v1::Horizon::Kind kind) const {
  SnapshotData data = CollectData();
  SEQPOINT_RETURN_IF_ERROR(data.engine.SetHorizon(std::move(horizons.steps)));
  if (data.work) {
    SEQPOINT_RETURN_IF_ERROR(data.work->SetHorizon(std::move(horizons.work)));
  }
  data.horizon_kind = kind;
  data.another = true;
  return std::make_shared<const Snapshot>(std::move(data));
}

std::shared_ptr<const Snapshot> Job::TakeDueSummary() {
  return snapshots_.TakeDue(engines_.steps().Totals().iterations, live(),
                            [this] { return CollectData(); });
}

}  // namespace seqpoint::jobs
