#include "daemon/queries/step_rows.h"

#include <algorithm>
#include <limits>

#include "daemon/base/status_macros.h"
#include "daemon/jobs/step_builder.h"

namespace seqpoint::queries {
namespace {

constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();

}  // namespace

absl::StatusOr<std::vector<IterationRow>> StepRows::ReadPage(int32_t rank, int64_t end,
                                                             uint32_t without) {
  for (int64_t from = next_;;) {
    SEQPOINT_ASSIGN_OR_RETURN(const auto page,
                              store_.ReadIterations(job_id_, rank, from, kPageRows));
    std::vector<IterationRow> rows;
    for (const IterationRow& row : page) {
      if (row.number >= end || (row.flags & without) != 0) continue;
      // The same iteration of a later incarnation; the first one counts.
      if (!rows.empty() && rows.back().number == row.number) continue;
      rows.push_back(row);
    }
    if (!rows.empty() || page.size() < kPageRows || page.back().number >= end) return rows;
    from = page.back().number + 1;
  }
}

absl::StatusOr<std::vector<IterationRow>> StepRows::ReadSteps() {
  if (ranks_.size() == 1) return ReadPage(ranks_.front(), kEnd, kIterationConcurrent);
  if (!first_step_) {
    SEQPOINT_ASSIGN_OR_RETURN(const auto first, store_.ReadIterations(job_id_, kStepsRank, 0, 1));
    first_step_ = first.empty() ? kEnd : first.front().number;
  }
  if (next_ < *first_step_) {
    for (const int32_t rank : ranks_) {
      auto rows = ReadPage(rank, *first_step_, kIterationConcurrent | kIterationLate);
      if (!rows.ok() || !rows->empty()) return rows;
    }
  }
  return ReadPage(kStepsRank, kEnd, 0);
}

absl::StatusOr<bool> StepRows::Read(std::vector<IterationRow>& steps) {
  steps.clear();
  SEQPOINT_ASSIGN_OR_RETURN(const auto rows, ReadSteps());
  for (const IterationRow& row : rows) {
    // A run's numbers begin anywhere; from there, or from the number that was asked for, on none is
    // missing but with its record.
    if (!any_ && next_ == 0) next_ = row.number;
    // As many as the figures count: a number that is damaged is no run.
    next_ = std::max(next_, row.number - jobs::StepBuilder::kMostLost);
    for (; next_ < row.number; ++next_) {
      steps.push_back({.job_id = job_id_, .rank = row.rank, .number = next_});
    }
    steps.push_back(row);
    ++next_;
    any_ = true;
  }
  return !steps.empty();
}

}  // namespace seqpoint::queries
