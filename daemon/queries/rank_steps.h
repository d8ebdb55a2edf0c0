// The steps of a job of several ranks, from the store: how long each took, and what its ranks'
// batches let expect.
//
// Threading: none. Ownership: values.
#ifndef DAEMON_QUERIES_RANK_STEPS_H_
#define DAEMON_QUERIES_RANK_STEPS_H_

#include <vector>

#include "absl/status/statusor.h"
#include "daemon/jobs/snapshot.h"
#include "daemon/queries/recorded_run.h"
#include "daemon/ranks/rank_count.h"
#include "daemon/store/store.h"

namespace seqpoint::queries {

// The newest ones, at most 8,192, that exactly the ranks of the last start reported, with their
// lengths where iterations have any. In order.
absl::StatusOr<std::vector<ranks::StepOfRanks>> ReadRankSteps(Store& store,
                                                              const jobs::Snapshot& snapshot,
                                                              Cancelled cancelled);

}  // namespace seqpoint::queries

#endif  // DAEMON_QUERIES_RANK_STEPS_H_
