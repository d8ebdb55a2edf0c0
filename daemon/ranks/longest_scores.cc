#include "daemon/ranks/longest_scores.h"

#include <cmath>
#include <vector>

#include "daemon/base/statistics.h"

namespace seqpoint::ranks {
namespace {

// A rank that nobody waited for in so many rounds of all ranks is no measure of the others.
constexpr int64_t kMostRounds = 16;

}  // namespace

Score LongestScores::Add(int32_t rank, double ratio) {
  ++added_;
  const int64_t oldest = added_ - kMostRounds * static_cast<int64_t>(latest_.size() + 1);
  std::erase_if(latest_, [&](const auto& entry) { return entry.second.at < oldest; });
  Latest& own = latest_[rank];
  std::vector<double> others;
  size_t newer = 0;
  for (const auto& [other, latest] : latest_) {
    if (other == rank) continue;
    others.push_back(latest.ratio);
    newer += latest.at > own.scored;
  }
  own.ratio = std::log(ratio);
  own.at = added_;
  if (newer == 0 || newer * 2 < others.size()) return {.rank = rank};
  own.scored = added_;
  const Score score = {.rank = rank,
                       .excess = own.ratio - MiddleOf(std::move(others)),
                       .deviation = noise_.deviation(),
                       .penalties = noise_.penalties()};
  noise_.Add(rank, score.excess);
  return score;
}

}  // namespace seqpoint::ranks
