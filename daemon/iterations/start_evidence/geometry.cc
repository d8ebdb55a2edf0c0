#include <algorithm>

#include "daemon/iterations/start_evidence.h"

namespace seqpoint::iterations {

void JudgeGeometry(const LogWindow& window, const CommonSubsequence& subsequence,
                   std::vector<Evidence>* places) {
  constexpr size_t kMaxPairs = 6;
  const size_t n = subsequence.size();
  const size_t iterations = subsequence[0].at.size();
  std::vector<double> behind(n, 0), ahead(n, 0);
  size_t pairs = 0;
  size_t looked_at = 0;
  for (size_t iteration = iterations - 1; iteration >= 2 && pairs < kMaxPairs; --iteration) {
    ++looked_at;
    // Loop iterations of the same length agree everywhere and say nothing.
    const uint32_t launches =
        window.CountLaunches(subsequence[0].at[iteration - 1], subsequence[0].at[iteration]);
    if (window.SameLaunches(subsequence[0].at[iteration - 1], subsequence[0].at[iteration - 2],
                            1) >= std::min(launches, kMaxWalk)) {
      continue;
    }
    ++pairs;
    for (size_t i = 0; i < n; ++i) {
      behind[i] += window.SameLaunches(subsequence[i].at[iteration - 1],
                                       subsequence[i].at[iteration - 2], -1);
      ahead[i] += window.SameLaunches(subsequence[i].at[iteration - 1],
                                      subsequence[i].at[iteration - 2], 1);
    }
  }
  // A stray difference now and then does not come from the length.
  if (pairs * 2 < looked_at || pairs == 0) return;
  const double most = *std::max_element(behind.begin(), behind.end());
  if (most < static_cast<double>(pairs)) return;
  for (size_t i = 0; i < n; ++i) {
    const double share = behind[i] / most * (1 - std::min(1.0, ahead[i] / most));
    if (share < 0.4) continue;
    (*places)[i].score += 1.5 * share * std::min(1.0, static_cast<double>(pairs) / 4);
    if (share > 0.8) (*places)[i].words.push_back("only launches after it follow the length");
  }
}

}  // namespace seqpoint::iterations
