#include "daemon/ranks/rank_evidence.h"

#include <algorithm>

namespace seqpoint::ranks {
namespace {

// Where the time outside of collectives is this share of a rank's exclusive time, it is a sample of
// all its work: it stands for the whole. Smaller ones count in proportion.
constexpr double kSample = 0.3;
// The others' expected work ends well before the longest rank's: it alone decides the time.
constexpr double kFarBehind = 0.85;

}  // namespace

RankEvidence::Iteration RankEvidence::Add(const JoinedIteration& joined) {
  roles_.Learn(joined);
  Iteration iteration;
  Summarize(joined, iteration);
  std::map<int32_t, double> weights;  // of the time outside
  for (const RankPart& part : joined.ranks) {
    const double work = Work(part);
    const double outside = outside_.Expect(roles_.RoleOf(part.rank), part.lengths);
    weights[part.rank] = work > 0 ? std::min(1.0, outside / work / kSample) : 0;
  }
  for (const Score& score : exclusive_.Add(joined, roles_))
    iteration.ranks[score.rank][kExclusive] = {score.excess, score.deviation};
  for (const Score& score : outside_.Add(joined, roles_))
    iteration.ranks[score.rank][kOutside] = {score.excess, score.deviation, weights[score.rank]};
  if (iteration.expected_ns > 0 && iteration.second < kFarBehind) {
    const Score score = longest_.Add(iteration.longest, iteration.time_ns / iteration.expected_ns);
    iteration.ranks[score.rank][kLongest] = {score.excess, score.deviation};
  }
  return iteration;
}

double RankEvidence::Work(const RankPart& part) const {
  return exclusive_.Expect(roles_.RoleOf(part.rank), part.lengths);
}

void RankEvidence::Summarize(const JoinedIteration& joined, Iteration& iteration) const {
  double longest = 0, second = 0, time_ns = 0;
  for (const RankPart& part : joined.ranks) {
    if (part.duration_ns <= 0 || part.distorted || part.missed > 0) return;
    time_ns += static_cast<double>(part.duration_ns);
    iteration.lengths.push_back(part.lengths);
    const double work = Work(part);
    if (work > longest) {
      second = longest;
      longest = work;
      iteration.longest = part.rank;
      iteration.longest_lengths = part.lengths;
    } else {
      second = std::max(second, work);
    }
  }
  if (longest <= 0) return;
  iteration.second = second / longest;
  iteration.time_ns = time_ns / static_cast<double>(joined.ranks.size());
  iteration.expected_ns = time_.Expect(iteration.longest_lengths);
}

void RankEvidence::Settle(int32_t rank, RankScores::Finding finding) {
  exclusive_.Settle(rank, finding);
  outside_.Settle(rank, finding);
}

void RankEvidence::LearnTime(const Iteration& iteration, bool slow) {
  if (iteration.time_ns > 0)
    time_.Add(iteration.time_ns, iteration.longest_lengths, iteration.lengths, slow);
}

std::array<Penalties, kParts> RankEvidence::penalties() const {
  return {exclusive_.penalties(), outside_.penalties(), longest_.penalties()};
}

}  // namespace seqpoint::ranks
