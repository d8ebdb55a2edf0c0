// The user's lengths and the horizon of the engines.
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/base/status_macros.h"
#include "daemon/jobs/job.h"

namespace seqpoint::jobs {

RunShape Job::Shape() const {
  RunShape shape{.rule = rule_ ? &*rule_ : nullptr,
                 .imported = facts_.imported(),
                 .micro_batches = micro_batches_,
                 .working_ranks = ranks_.working(),
                 .world_size = ranks_.world_size(),
                 .several_ranks = engines_.split()};
  const auto last = processes_.LastOfRanks(
      [](const Process& process) { return process.state.iterations() > 0 || process.alive(); });
  for (const auto& [rank, process] : last) {
    const v1::Feature* const feature = process->FindFeature(abi::Feature::kBatches);
    if (feature == nullptr || static_cast<uint32_t>(feature->code()) <= shape.batches) continue;
    shape.batches = static_cast<uint32_t>(feature->code());
    shape.batches_message = feature->message();
  }
  return shape;
}

absl::Status Job::SetHorizon(const v1::Horizon& horizon) {
  if (!refused_.empty()) return absl::DataLossError(refused_);
  if (facts_.imported() &&
      matching_.horizon().kind() != v1::Horizon::KIND_UNKNOWN) {  // the horizon of the log
    return absl::FailedPreconditionError(absl::StrCat(
        "job \"", row_.name, "@", row_.run_id,
        "\" was made of another tool's log and is over; to ask about another run: seqpoint project "
        "JOB --lengths FILE"));
  }
  SEQPOINT_RETURN_IF_ERROR(CheckJobHorizon(horizon));
  matching_.SetHorizon(horizon);
  if (!processes_.empty()) reports_.Add(processes_.begin()->first, horizon);
  MatchLengths();
  changes_.Mark(Change::kHorizon);
  return absl::OkStatus();
}

void Job::MatchLengths() {
  const LengthMatching::Run run = {
      .iterations = static_cast<int64_t>(engines_.steps().current().Totals().iterations),
      .over = row_.end_ns != 0,
      .same_lengths = engines_.builder().same_lengths()};
  LengthMatching::Outcome outcome = matching_.Match(Shape(), observed_, run);
  if (outcome.looked) changes_.Mark(Change::kDescription);
  if (!outcome.horizons) return;
  engines_.SetHorizon(*std::move(outcome.horizons));
  changes_.Mark(Change::kSchedule);
}

int64_t Job::RunIterations() const { return jobs::RunIterations(matching_.horizon(), Shape()); }

}  // namespace seqpoint::jobs
