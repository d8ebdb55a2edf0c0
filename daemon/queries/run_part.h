// Questions about some of a run's iterations: which they are, what they took, and how often each
// length is among them. docs/using/client.md
//
// Threading: free functions; the store may be used by others meanwhile.
#ifndef DAEMON_QUERIES_RUN_PART_H_
#define DAEMON_QUERIES_RUN_PART_H_

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/jobs/snapshot.h"
#include "daemon/seqpoint/engine.h"
#include "daemon/store/store.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::queries {

struct IterationRange {
  int64_t first = 0;
  int64_t last = std::numeric_limits<int64_t>::max();
  std::string words;  // "iterations 100 to 199"
};

// InvalidArgument names the field and its value; FailedPrecondition where which iterations an epoch
// had is not known.
absl::StatusOr<IterationRange> RangeOf(const v1::Part& part, const jobs::SnapshotData& job);

// The same for questions about what ran in them: FailedPrecondition where others may be missing
// among them, or some may be none.
absl::StatusOr<IterationRange> CountedRangeOf(const v1::Part& part, const jobs::SnapshotData& job);

// The rows of the part's training iterations, in order; of several ranks those of the steps.
absl::Status ForEachStep(const jobs::SnapshotData& job, const IterationRange& range, Store& store,
                         absl::FunctionRef<void(const IterationRow&)> see);

// Feature values of the part's iterations. FailedPrecondition, with the reason, where some of them
// have none.
struct PartLengths {
  std::vector<KeyCount> steps;
  std::vector<KeyCount> work;  // of all ranks, where there are several
};
absl::StatusOr<PartLengths> ReadLengths(const jobs::SnapshotData& job, const IterationRange& range,
                                        Store& store);

// Times that are known are summed; iterations without a usable one count with what their lengths
// take in the run, or, where their records are lost, with what as many in a row take.
absl::StatusOr<v1::ProjectReply> ProjectPart(const jobs::Snapshot& snapshot,
                                             const IterationRange& range, double confidence,
                                             Store& store);

// Whether this row is an iteration of the run, and whether its time is its own: measuring it took
// none of it, or the trace that was imported is all there is of it.
bool IsTraining(const IterationRow& row);
bool HasUsableTime(const jobs::SnapshotData& job, const IterationRow& row);
// The end of the iteration is not known: it took at most `rest_ns` longer than its time says.
bool HasOpenEnd(const jobs::SnapshotData& job, const IterationRow& row);

}  // namespace seqpoint::queries

#endif  // DAEMON_QUERIES_RUN_PART_H_
