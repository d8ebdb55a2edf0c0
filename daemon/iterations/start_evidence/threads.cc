#include "absl/container/flat_hash_map.h"
#include "daemon/iterations/start_evidence.h"

namespace seqpoint::iterations {

using abi::Op;

void JudgeThreads(const LogWindow& window, const CommonSubsequence& subsequence,
                  std::vector<Evidence>* places) {
  const size_t iterations = subsequence[0].at.size();
  absl::flat_hash_map<uint32_t, uint32_t> hosts;
  for (uint32_t i = subsequence[0].at[0]; i < subsequence[0].at[iterations - 1]; ++i) {
    const Op op = window.OpAt(i);
    if (op == Op::kCopyH2D || op == Op::kCopyD2H || BlocksHost(op))
      ++hosts[window.calls()[i].thread_id];
  }
  for (size_t i = 0; i < subsequence.size(); ++i) {
    uint32_t changes = 0, elsewhere = 0;
    for (uint32_t launch : subsequence[i].at) {
      const uint32_t segment = window.SegmentOf(launch);
      changes += segment > window.begin &&
                 window.calls()[segment - 1].thread_id != window.calls()[launch].thread_id;
      elsewhere += !hosts.empty() && !hosts.contains(window.calls()[launch].thread_id);
    }
    if (changes * 2 > iterations) (*places)[i].score -= 2;
    if (elsewhere * 2 > iterations) (*places)[i].score -= 1;
  }
}

}  // namespace seqpoint::iterations
