// StepRows: the rows of a run's steps, in order and a page at a time, as they are in its figures.
// Steps of several ranks are stored as such; until the second rank came, the rows of the only rank
// are its steps. Numbers without a row, since their records were lost, come as rows without length
// and time. Iterations that were repeated after a checkpoint are read once, and those of a
// concurrent incarnation not at all.
//
// Threading: one thread. Ownership: keeps a pointer to the store.
#ifndef DAEMON_QUERIES_STEP_ROWS_H_
#define DAEMON_QUERIES_STEP_ROWS_H_

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/store/store.h"

namespace seqpoint::queries {

inline constexpr int kPageRows = 4096;  // that are in memory at a time

class StepRows {
 public:
  // `ranks`: all of the job, or one, whose own iterations are read then.
  StepRows(Store& store, int64_t job_id, std::vector<int32_t> ranks, int64_t first_number)
      : store_(store), job_id_(job_id), ranks_(std::move(ranks)), next_(first_number) {}

  // False at the end.
  absl::StatusOr<bool> Read(std::vector<IterationRow>& steps);

 private:
  // The next page of a rank's rows below `end` that has any.
  absl::StatusOr<std::vector<IterationRow>> ReadPage(int32_t rank, int64_t end, uint32_t without);
  absl::StatusOr<std::vector<IterationRow>> ReadSteps();

  Store& store_;
  const int64_t job_id_;
  const std::vector<int32_t> ranks_;
  std::optional<int64_t> first_step_;  // that is stored as such
  int64_t next_;
  bool any_ = false;  // was read
};

}  // namespace seqpoint::queries

#endif  // DAEMON_QUERIES_STEP_ROWS_H_
