// Why one job took longer than another: docs/using/compare.md.
//
// Threading: a free function; the store may be used by others meanwhile.
#ifndef DAEMON_QUERIES_COMPARE_H_
#define DAEMON_QUERIES_COMPARE_H_

#include "absl/status/statusor.h"
#include "daemon/jobs/snapshot.h"
#include "daemon/store/store.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::queries {

// Reads all rows of both jobs: a second or two for a million. Everything that is in memory must be
// in the store, too.
absl::StatusOr<v1::CompareReply> Compare(const jobs::Snapshot& base, const jobs::Snapshot& other,
                                         const v1::CompareRequest& request, Store& store);

}  // namespace seqpoint::queries

#endif  // DAEMON_QUERIES_COMPARE_H_
