#include "daemon/ranks/longest_scores.h"

#include <cmath>

namespace seqpoint::ranks {

Score LongestScores::Add(int32_t rank, double ratio) {
  const bool again = rank == rank_;
  if (!again && rank_ >= 0) other_ = own_;
  rank_ = rank;
  own_ = std::log(ratio);
  if (again || other_ == kNone) return {.rank = rank};
  const Score score = {.rank = rank,
                       .excess = own_ - other_,
                       .deviation = noise_.deviation(),
                       .penalties = noise_.penalties()};
  noise_.Add(rank, score.excess);
  return score;
}

}  // namespace seqpoint::ranks
