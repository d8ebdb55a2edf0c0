// Joins the trace windows of all ranks at one iteration at their collectives: which kernels of NCCL
// on which ranks are one collective, how long its data took to move, and how long each rank waited
// in it.
//
//   std::vector<RankWindow> windows = ...;  // one of each rank, of the same iteration
//   WindowJoin join = JoinWindows(windows);
//   join.collectives[0].transfer_ns
//
// The kernel of a collective starts on a rank when its stream reaches it and ends on all ranks at
// the same time. So the rank with the shortest kernel came last, its duration is the time of the
// transfer, and a rank waited for as long as its own kernel took longer. The clocks of two GPUs are
// never compared beyond that: where clocks are aligned, ends of collectives align them.
//
// Where NCCL's profiler interface told the collectives (RankWindow::records), communicator and
// sequence number say what belongs together. Without it, kernels are joined that have the same name
// and whose ends, in order, keep the same distances on all ranks. A kernel that fits nowhere is
// left out and said.
//
// Threading: free functions. Ownership: a window refers to its trace, which outlives it; a join
// refers to nothing, its indices are those of the windows that it was made from.
#ifndef DAEMON_RANKS_WINDOW_JOIN_H_
#define DAEMON_RANKS_WINDOW_JOIN_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "daemon/trace/trace.h"

namespace seqpoint::ranks {

// A collective, or one send or receive, as NCCL's profiler interface told it to one rank.
struct CollectiveRecord {
  uint64_t communicator = 0;  // NCCL's hash, equal on all of its ranks
  uint32_t sequence = 0;      // within the communicator; of a send or receive: not used
  std::string function;       // "AllReduce", "Send", ...
  uint64_t bytes = 0;         // of the message, 0: not known
  int32_t own = -1;           // of a send or receive: this rank's number in the communicator
  int32_t peer = -1;          // ... and the other one's; -1: a collective of the communicator
  int64_t start_ns = 0;       // on the GPU, by any clock of its own; both 0: not known
  int64_t end_ns = 0;
};

// One iteration of one rank.
struct RankWindow {
  int32_t rank = 0;
  int64_t iteration = 0;                  // the same number on all ranks
  std::array<int64_t, 2> lengths = {};    // of the rank's own batch; 0: not known
  const trace::Trace* trace = nullptr;    // of this iteration alone
  int64_t begin_ns = 0;                   // on the host, by the trace's clock: the call that starts
  int64_t end_ns = 0;                     // the iteration, and the one that starts the next
  std::vector<CollectiveRecord> records;  // in the order of their starts; empty: not told
  bool disturbed = false;                 // the rank has not had these lengths before
};

// A rank's part in a collective.
struct CollectivePart {
  uint32_t window = 0;  // index
  uint32_t work = 0;    // in Trace::works
  int64_t duration_ns = 0;
  int64_t wait_ns = 0;  // of it, before the last rank had come
};

struct WindowCollective {
  std::string function;       // "AllReduce", "SendRecv"; of other libraries the kernel's name
  uint64_t communicator = 0;  // NCCL's hash; 0: not told
  uint32_t sequence = 0;
  uint64_t bytes = 0;                 // 0: not known
  int64_t transfer_ns = 0;            // shortest duration
  std::vector<CollectivePart> parts;  // two or more, by window
  size_t last = 0;                    // in `parts`: the one that came last

  std::vector<int32_t> RanksOf(absl::Span<const RankWindow> windows) const;
};

struct WindowJoin {
  std::vector<WindowCollective> collectives;  // in the order of the first window that has each
  bool told = false;                          // by NCCL on all ranks, not inferred
  // By window: added to its clock, ends of collectives are those of the first window. 0 where no
  // chain of collectives connects them.
  std::vector<int64_t> clock_behind_ns;
  int64_t spread_ns = 0;                // the most between two ends of a collective, then
  uint64_t kernels = 0;                 // of collectives, in all windows
  uint64_t alone = 0;                   // of these, that no other rank's window has: left out
  std::vector<std::string> mismatches;  // in words

  // The wait of a rank in a kernel that is left out passes for the time of a transfer. With more of
  // them than lost records explain, 1 in 20, the windows tell neither.
  bool TooManyAlone() const { return alone * 20 > kernels; }
};

// `windows`: two or more, one for each rank, of the same iteration.
WindowJoin JoinWindows(absl::Span<const RankWindow> windows);

}  // namespace seqpoint::ranks

#endif  // DAEMON_RANKS_WINDOW_JOIN_H_
