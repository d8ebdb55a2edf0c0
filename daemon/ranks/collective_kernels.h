// The kernels of NCCL in the windows of ranks, and two ways to find which of them are one
// collective: by what NCCL told, and by their ends.
//
// Threading: free functions. Ownership: kernels refer to the windows' traces, which outlive them.
#ifndef DAEMON_RANKS_COLLECTIVE_KERNELS_H_
#define DAEMON_RANKS_COLLECTIVE_KERNELS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "daemon/ranks/window_join.h"

namespace seqpoint::ranks {

struct CollectiveKernel {
  uint32_t window = 0;
  uint32_t work = 0;  // in Trace::works
  uint32_t stream = 0;
  std::string_view name;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  std::vector<uint32_t> records;  // of RankWindow::records, that it carried out
};
// Those of one window, in the order of their starts.
using WindowKernels = std::vector<CollectiveKernel>;
std::vector<WindowKernels> KernelsOf(absl::Span<const RankWindow> windows);

// "AllReduce" of "ncclDevKernel_AllReduce_Sum_f32_RING_LL(...)"; of another library's kernel its
// name without parameters.
std::string FunctionOf(std::string_view kernel);

// Kernels of several windows that are one collective.
struct JoinedKernels {
  std::vector<const CollectiveKernel*> kernels;  // by window, two or more
  const CollectiveRecord* record = nullptr;      // one of them; null: not told
  uint64_t bytes = 0;                            // of all records; 0: not known
};

// Gives each kernel the records that it carried out. The clock of the records is the kernels' but
// for a difference, which most starts have in common. Empty: done; else why the records of this
// window cannot be used.
std::string AssignRecords(const RankWindow& window, WindowKernels* kernels);
// By communicator and sequence number; sends and receives by pair and order.
std::vector<JoinedKernels> JoinByRecords(absl::Span<const RankWindow> windows,
                                         const std::vector<WindowKernels>& kernels,
                                         WindowJoin* join);

// By names, order and ends. Sets WindowJoin::clock_behind_ns and mismatches.
std::vector<JoinedKernels> JoinByEnds(absl::Span<const RankWindow> windows,
                                      const std::vector<WindowKernels>& kernels, WindowJoin* join);

// Ends of one collective lie within this time once clocks are aligned. Real ones of eight GPUs of a
// host do within 10 us.
inline constexpr int64_t kSameEndNs = 15'000;

// The middle of the most times that are within `width_ns` of each other, and how many these are.
// `times_ns` ascend.
std::pair<int64_t, size_t> Densest(const std::vector<int64_t>& times_ns, int64_t width_ns);

}  // namespace seqpoint::ranks

#endif  // DAEMON_RANKS_COLLECTIVE_KERNELS_H_
