#include "daemon/ranks/longest_scores.h"

#include <cmath>
#include <vector>

#include "daemon/base/statistics.h"

namespace seqpoint::ranks {

Score LongestScores::Add(int32_t rank, double ratio) {
  const double own = std::log(ratio);
  std::vector<double> others;
  for (const auto& [other, last] : last_)
    if (other != rank) others.push_back(last);
  last_[rank] = own;
  if (others.empty()) return {.rank = rank};
  const Score score = {
      .rank = rank, .excess = own - Median(std::move(others)), .deviation = noise_.deviation()};
  noise_.Add(rank, score.excess);
  return score;
}

}  // namespace seqpoint::ranks
