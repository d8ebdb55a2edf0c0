// A process' place among the ranks of its job.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "daemon/jobs/hello.h"
#include "daemon/jobs/job.h"
#include "daemon/jobs/process.h"

namespace seqpoint::jobs {
void Job::Place(Process& process, const std::set<int64_t>& gone) {
  const int32_t rank = process.row.rank;
  // A new incarnation goes on counting where its rank was, until we know what it repeats. One that
  // runs beside another of its rank is no resumed run.
  process.state.set_first_number(FirstNumber(rank));
  const auto next = next_number_.find(rank);
  process.state.set_rank_next(next == next_number_.end() ? 0 : next->second);
  process.learning->SetFirstNumber(process.state.first_number());
  process.state.clear_overlaps();
  for (const auto& [id, other] : processes_) {
    if (other.get() != &process && other->row.rank == rank && other->alive() &&
        !gone.contains(id)) {
      process.state.add_overlaps(id);
    }
  }
  process.state.set_aligning(process.state.first_number() > 0 || !process.state.overlaps().empty());
  if (rule_) process.learning->SetRule(rule_->rule);
}

void Job::SplitRanksIfNeeded() {
  const bool alone = std::all_of(processes_.begin(), processes_.end(), [&](const auto& entry) {
    return entry.second->row.rank == processes_.begin()->second->row.rank;
  });
  if (!alone && !work_) SplitRanks();
}

void Job::OnRank(Process& process, const abi::RankEvent& event) {
  SetHelloField("world_size", event.world_size, process.row);
  world_size_ = std::max<int64_t>(world_size_, event.world_size);
  const int32_t before = process.row.rank;
  // What a process has done is in the log under the rank that it had then.
  const bool moves = event.rank != before && process.state.iterations() == 0 &&
                     process.buffered.empty() && process.learning;
  if (moves) {
    SetHelloField("rank", event.rank, process.row);
    process.row.incarnation = NextIncarnation(event.rank);
    process.row.rank = event.rank;
    Place(process, {});
    start_ranks_.insert(event.rank);
    bool left = true;
    for (const auto& [id, other] : processes_) {
      left &= other->row.rank != before || !other->alive();
      auto& overlaps = *other->state.mutable_overlaps();
      overlaps.erase(std::remove(overlaps.begin(), overlaps.end(), process.row.process_id),
                     overlaps.end());
      // It was held back only for this process.
      if (other->state.aligning() && other->state.overlaps().empty() &&
          other->state.first_number() == 0) {
        EndAlignment(*other);
      }
    }
    if (left) start_ranks_.erase(before);
    SplitRanksIfNeeded();
  }
  rows_.processes.push_back(process.row);
  changes_.Mark(Change::kProcesses);
}

}  // namespace seqpoint::jobs
