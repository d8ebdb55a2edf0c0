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
  for (const auto& [other, latest] : latest_)
    if (other != rank && latest.at > own.scored) others.push_back(latest.ratio);
  own.ratio = std::log(ratio);
  own.at = added_;
  noise_.Add(rank, own.ratio);
  if (others.empty()) return {.rank = rank};
  own.scored = added_;
  const double scale = std::sqrt(1 + kOfMedian * kOfMedian / static_cast<double>(others.size()));
  return {.rank = rank,
          .excess = own.ratio - MiddleOf(std::move(others)),
          .deviation = scale * noise_.deviation(),
          .penalties = noise_.penalties()};
}

}  // namespace seqpoint::ranks
