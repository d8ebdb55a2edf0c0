// The dependency graphs of all ranks of one iteration, joined at their collectives: a recording
// that is replayed and changed as that of one rank is (daemon/whatif/recording.h).
//
//   RankRecording recorded = RecordRanks(windows, join);
//   double before_ns = recorded.IterationNs(recorded.recording.graphs);
//
// A window holds one iteration that begins with an idle GPU. It is repeated, so that from the
// second turn on iterations follow each other as in a run.
//
// Threading: free functions. Ownership: values; a recording does not need the windows any more.
#ifndef DAEMON_RANKS_RANK_RECORDING_H_
#define DAEMON_RANKS_RANK_RECORDING_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "daemon/ranks/window_join.h"
#include "daemon/ranks/window_profile.h"
#include "daemon/whatif/recording.h"

namespace seqpoint::ranks {

// A collective of the recording, in each turn. Sends and receives that share a kernel are one.
struct JoinedCollective {
  std::string function;
  std::vector<size_t> ranks;  // indices
  uint64_t bytes = 0;         // 0: not known
  int64_t transfer_ns = 0;
};

struct RankRecording {
  whatif::Recording recording;
  std::vector<JoinedCollective> collectives;  // in the order of their ends
  std::vector<RankProfile> profiles;          // by rank, of the window
  size_t counted = 0;                         // the turn that stands for the iterations of a run

  // Of GpuTask::collective.
  size_t CollectiveOf(uint32_t number) const { return number % collectives.size(); }
  // How long the job's iteration takes: its slowest rank's, nanoseconds. `graphs`: as recorded or
  // changed.
  double IterationNs(const std::vector<whatif::Graph>& graphs) const;
};

// `turns`: how often the iteration is repeated; 1: as it was recorded.
RankRecording RecordRanks(absl::Span<const RankWindow> windows, const WindowJoin& join,
                          int turns = 4);

}  // namespace seqpoint::ranks

#endif  // DAEMON_RANKS_RANK_RECORDING_H_
