// The rows of a run's steps, in order and a page at a time. Of several ranks a step has the largest
// lengths and times, and what is amiss with any; steps that not every rank has are left out. What
// was repeated after a checkpoint is read once.
//
// Threading: one thread. Ownership: keeps a pointer to the store.
#ifndef DAEMON_QUERIES_STEP_ROWS_H_
#define DAEMON_QUERIES_STEP_ROWS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/store/store.h"

namespace seqpoint {

class StepRows {
 public:
  StepRows(Store& store, int64_t job_id, std::vector<int32_t> ranks, int64_t first_number)
      : store_(store), job_id_(job_id), ranks_(std::move(ranks)), next_(first_number) {}

  // False at the end.
  absl::StatusOr<bool> Read(std::vector<IterationRow>& steps);

 private:
  Store& store_;
  const int64_t job_id_;
  const std::vector<int32_t> ranks_;
  int64_t next_;
  bool done_ = false;
};

}  // namespace seqpoint

#endif  // DAEMON_QUERIES_STEP_ROWS_H_
