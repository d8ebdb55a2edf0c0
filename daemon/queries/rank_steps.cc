#include "daemon/queries/rank_steps.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "daemon/base/status_macros.h"
#include "daemon/queries/stored_windows.h"

namespace seqpoint::queries {
namespace {

// More of them tell hardly more: what the mean of so many is off by chance is 1/90 of one's spread.
constexpr int64_t kMostSteps = 8192;

// The time that iterations of a length take; 1 where iterations have no lengths. 0: not known.
class UsualTimes {
 public:
  explicit UsualTimes(const jobs::Snapshot& snapshot) : snapshot_(snapshot) {}

  double Of(const IterationRow& row) {
    const int dimensions = snapshot_.data().dimensions;
    if (dimensions == 0) return 1;
    if (row.length_count != dimensions) return 0;
    const auto [it, added] = times_.try_emplace({row.length[0], row.length[1]}, 0);
    if (added) it->second = snapshot_.UsualStepTime({row.length[0], row.length[1]});
    return it->second;
  }

 private:
  const jobs::Snapshot& snapshot_;
  std::map<std::pair<int64_t, int64_t>, double> times_;
};

}  // namespace

absl::StatusOr<std::vector<ranks::StepOfRanks>> ReadRankSteps(Store& store,
                                                              const jobs::Snapshot& snapshot,
                                                              Cancelled cancelled) {
  const jobs::SnapshotData& job = snapshot.data();
  std::vector<ranks::StepOfRanks> steps;
  const int64_t last = job.next_number - 1;
  const int64_t first = std::max(last + 1 - kMostSteps, job.engine.closed_iterations());
  SEQPOINT_ASSIGN_OR_RETURN(const auto rows, ReadRows(store, job.job_id, kStepsRank, first, last));
  std::map<int64_t, ranks::StepOfRanks> by_number;
  UsualTimes usual(snapshot);
  for (const auto& [number, row] : rows) {
    // A length's first times and our own stops are none of the ranks' delays.
    const bool ordinary =
        (row.flags & (kIterationDistorted | kIterationFirst)) == 0 && row.config_id == 0;
    by_number[number] = {.number = number,
                         .time_ns = ordinary ? static_cast<double>(row.duration_ns) : 0};
  }
  const std::vector<int32_t>& ranks = job.started_ranks.empty() ? job.ranks : job.started_ranks;
  const std::set<int32_t> started(ranks.begin(), ranks.end());
  for (const int32_t rank : job.ranks) {
    SEQPOINT_RETURN_IF_ERROR(CheckAsked(cancelled));
    SEQPOINT_ASSIGN_OR_RETURN(const auto of_rank, ReadRows(store, job.job_id, rank, first, last));
    for (const auto& [number, row] : of_rank) {
      const auto step = by_number.find(number);
      if (step == by_number.end()) continue;
      if (!started.contains(rank)) {
        by_number.erase(step);  // a step of another start, with other ranks
        continue;
      }
      if ((row.flags & kIterationConcurrent) != 0) continue;
      const double expected_ns = usual.Of(row);
      if (expected_ns > 0) step->second.expected_ns.push_back(expected_ns);
    }
  }
  for (auto& [number, step] : by_number) {
    if (step.expected_ns.size() == started.size()) steps.push_back(std::move(step));
  }
  return steps;
}

}  // namespace seqpoint::queries
