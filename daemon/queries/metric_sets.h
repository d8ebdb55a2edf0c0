// The metric sets that there are, as a chip offers them, and sets of a person's own from a file.
// docs/using/counters.md
// Threading: thread-safe (CUPTI's host library is asked by one thread at a time). Ownership:
// values.
#ifndef DAEMON_QUERIES_METRIC_SETS_H_
#define DAEMON_QUERIES_METRIC_SETS_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::queries {

// Own sets come first. InvalidArgument: a chip or a set that there is not, with those that there
// are; a file with a mistake, with its line.
absl::StatusOr<v1::ListMetricSetsReply> ListMetricSets(const v1::ListMetricSetsRequest& request);

// Puts the sets of the request's file among its own sets. InvalidArgument: the file's mistake; a
// metric of it that no chip offers to the backend, where CUPTI's host library is here to be asked;
// a set that is wanted, is not its own and is not shipped.
absl::Status ResolveMetricSets(v1::PrepareJobRequest* request);

}  // namespace seqpoint::queries

#endif  // DAEMON_QUERIES_METRIC_SETS_H_
