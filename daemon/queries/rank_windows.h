// Iterations that several ranks traced, from the store: the windows of all of them.
//
// Threading: none. Ownership: RankWindows owns the traces that its windows refer to.
#ifndef DAEMON_QUERIES_RANK_WINDOWS_H_
#define DAEMON_QUERIES_RANK_WINDOWS_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/jobs/snapshot.h"
#include "daemon/queries/stored_windows.h"
#include "daemon/ranks/window_join.h"
#include "daemon/store/store.h"
#include "daemon/trace/trace.h"

namespace seqpoint::queries {

// The ranks by the iteration that they traced; of each number at least two. `pieces`: rank and
// number, as the store lists them.
std::map<int64_t, std::vector<int32_t>> SharedIterations(
    const std::vector<std::pair<int32_t, int64_t>>& pieces);

struct RankWindows {
  std::deque<trace::Trace> traces;
  std::vector<ranks::RankWindow> windows;  // by rank; those that traced the iteration as one
};
absl::StatusOr<RankWindows> ReadRankWindows(Store& store, const jobs::SnapshotData& job,
                                            int64_t number, const std::vector<int32_t>& ranks,
                                            StoredWindows* reader);

// The window of an iteration that was traced by itself, on the CPU: from its boundary to the next
// one. `rows`: of the rank, with the next iteration.
std::optional<traces::WindowReader::Window> WindowOf(const std::map<int64_t, IterationRow>& rows,
                                                     int64_t number);
traces::WindowReader::Window TimesOf(const std::map<int64_t, IterationRow>& rows,
                                     const IterationRow& row);

}  // namespace seqpoint::queries

#endif  // DAEMON_QUERIES_RANK_WINDOWS_H_
