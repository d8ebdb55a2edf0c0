#include "daemon/base/statistics.h"
#include "daemon/iterations/start_evidence.h"

namespace seqpoint::iterations {

void JudgePauses(const LogWindow& window, const CommonSubsequence& subsequence,
                 std::vector<Evidence>* places) {
  const size_t n = subsequence.size();
  const size_t iterations = subsequence[0].at.size();
  if (iterations < 4) return;
  std::vector<uint32_t> lengths;
  std::vector<std::vector<uint32_t>> gaps(n);
  for (size_t iteration = 0; iteration + 1 < iterations; ++iteration) {
    lengths.push_back(subsequence[0].at[iteration + 1] - subsequence[0].at[iteration]);
    for (size_t i = 0; i < n; ++i) {
      const uint32_t to = i == 0 ? subsequence[0].at[iteration + 1] : subsequence[i].at[iteration];
      const uint32_t from =
          i == 0 ? subsequence[n - 1].at[iteration] : subsequence[i - 1].at[iteration];
      gaps[i].push_back(to - from);
    }
  }
  const double usual_length = Median(lengths);
  for (size_t i = 0; i < n; ++i) {
    const double usual = Median(gaps[i]);
    size_t pauses = 0;
    for (uint32_t gap : gaps[i]) pauses += gap > 4 * usual + 8 && gap > 0.25 * usual_length;
    if (pauses == 0 || pauses * 2 > gaps[i].size()) continue;
    // In a gap that usually holds many calls (repeated layers) a long sequence is the likelier
    // reason.
    if (usual > 0.1 * usual_length) continue;
    (*places)[i].score += 3;
    (*places)[i].words.push_back("training pauses here for evaluation");
  }
}

}  // namespace seqpoint::iterations
