// The user's lengths and what the engines make of them.
#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/jobs/hello.h"
#include "daemon/jobs/job.h"
#include "daemon/jobs/process.h"

namespace seqpoint::jobs {

RunShape Job::Shape() const {
  RunShape shape{.rule = rule_ ? &*rule_ : nullptr,
                 .imported = imported_,
                 .micro_batches = micro_batches_,
                 .working_ranks = WorkingRanks(),
                 .world_size = WorldSize(),
                 .several_ranks = work_.has_value()};
  std::map<int32_t, const Process*> last;  // by rank
  for (const auto& [id, process] : processes_) {
    const bool counts = process->state.iterations() > 0 || process->alive();
    if (const Process*& of_rank = last[process->row.rank]; counts || of_rank == nullptr) {
      of_rank = process.get();
    }
  }
  for (const auto& [rank, process] : last) {
    const v1::Feature* const feature = process->FindFeature(abi::Feature::kBatches);
    if (feature == nullptr || static_cast<uint32_t>(feature->code()) <= shape.batches) continue;
    shape.batches = static_cast<uint32_t>(feature->code());
    shape.batches_message = feature->sentence();
  }
  return shape;
}

int64_t Job::WorkingRanks() const {
  const int64_t ranks = std::count_if(start_ranks_.begin(), start_ranks_.end(),
                                      [&](int32_t rank) { return next_number_.contains(rank); });
  return std::max<int64_t>(ranks, 1);
}

int64_t Job::WorldSize() const {
  return std::min(std::max(world_size_, WorkingRanks()), kMostRanks);
}

absl::Status Job::SetHorizon(const v1::Horizon& horizon) {
  if (!refused_.empty()) return absl::DataLossError(refused_);
  if (imported_ &&
      matching_.horizon().kind() != v1::Horizon::KIND_UNKNOWN) {  // it has the log's own
    return absl::FailedPreconditionError(absl::StrCat(
        "job \"", row_.name, "@", row_.run_id,
        "\" was made of another tool's log and is over; to ask about another run: seqpoint project "
        "JOB --lengths FILE"));
  }
  if (const absl::Status status = CheckHorizon(horizon); !status.ok()) return status;
  matching_.SetHorizon(horizon);
  MatchLengths();
  changes_.Mark(Change::kHorizon);
  return absl::OkStatus();
}

void Job::MatchLengths() {
  const LengthMatching::Run run = {
      .iterations = static_cast<int64_t>(engine_.current().Totals().iterations),
      .over = row_.end_ns != 0,
      .same_lengths = steps_.same_lengths()};
  LengthMatching::Outcome outcome = matching_.Match(Shape(), observed_, run);
  if (outcome.looked) changes_.Mark(Change::kDescription);
  if (!outcome.horizons) return;
  engine_.SetHorizon(std::move(outcome.horizons->steps)).IgnoreError();
  if (work_) work_->SetHorizon(std::move(outcome.horizons->work)).IgnoreError();
  changes_.Mark(Change::kSchedule);
}

int64_t Job::RunIterations() const { return jobs::RunIterations(matching_.horizon(), Shape()); }

LengthUnits Job::Units() const { return matching_.Units(Shape(), observed_); }

std::vector<int64_t> Job::UserLengths(const int64_t length[2], int count) const {
  return Units().Of(length, count);
}

}  // namespace seqpoint::jobs
