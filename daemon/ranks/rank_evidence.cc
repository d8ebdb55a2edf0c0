#include "daemon/ranks/rank_evidence.h"

#include <algorithm>
#include <cmath>

namespace seqpoint::ranks {
namespace {

// Where the time outside of collectives is this share of a rank's exclusive time, it is a sample of
// all its work: it stands for the whole. Smaller ones count in proportion.
constexpr double kSample = 0.3;
// The others' expected work ends well before the longest rank's: it alone decides the time.
constexpr double kFarBehind = 0.85;

// The rank that works longest. Where one length alone differs it needs no model, which is vague
// while a job is young.
size_t Longest(const std::vector<Lengths>& lengths, const std::vector<double>& works) {
  const bool one_differs = std::all_of(
      lengths.begin(), lengths.end(), [&](const Lengths& l) { return l[1] == lengths.front()[1]; });
  const bool none_differs = std::all_of(lengths.begin(), lengths.end(),
                                        [&](const Lengths& l) { return l == lengths.front(); });
  if (one_differs && !none_differs)
    return static_cast<size_t>(std::max_element(lengths.begin(), lengths.end()) - lengths.begin());
  return static_cast<size_t>(std::max_element(works.begin(), works.end()) - works.begin());
}

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
    iteration.ranks[score.rank][kExclusive] = {score.excess, score.deviation, 1, score.penalties};
  for (const Score& score : outside_.Add(joined, roles_))
    iteration.ranks[score.rank][kOutside] = {score.excess, score.deviation, weights[score.rank],
                                             score.penalties};
  if (iteration.expected_ns > 0 && iteration.second < kFarBehind) {
    const Score score = longest_.Add(iteration.longest, iteration.time_ns / iteration.expected_ns);
    iteration.ranks[score.rank][kLongest] = {score.excess, score.deviation, 1, score.penalties};
  }
  return iteration;
}

double RankEvidence::Work(const RankPart& part) const {
  return exclusive_.Expect(roles_.RoleOf(part.rank), part.lengths);
}

void RankEvidence::Summarize(const JoinedIteration& joined, Iteration& iteration) const {
  double time_ns = 0, wait_ns = 0;
  std::vector<double> works;
  for (const RankPart& part : joined.ranks) {
    if (part.duration_ns <= 0 || part.distorted || part.missed > 0) return;
    time_ns += static_cast<double>(part.duration_ns);
    wait_ns += static_cast<double>(part.wait_ns);
    iteration.lengths.push_back(part.lengths);
    works.push_back(Work(part));
  }
  const size_t longest = Longest(iteration.lengths, works);
  const double work = works[longest];
  works.erase(works.begin() + static_cast<ptrdiff_t>(longest));
  if (works.empty() || !(work > 0)) return;
  iteration.time_ns = time_ns / static_cast<double>(joined.ranks.size());
  iteration.wait_ns = wait_ns / static_cast<double>(joined.ranks.size());
  iteration.longest = joined.ranks[longest].rank;
  iteration.longest_lengths = joined.ranks[longest].lengths;
  iteration.second = *std::max_element(works.begin(), works.end()) / work;
  iteration.expected_ns = time_.Expect(iteration.longest_lengths);
}

void RankEvidence::Settle(int32_t rank, RankScores::Finding finding, RankScores::Finding common) {
  exclusive_.Settle(rank, finding, common);
  outside_.Settle(rank, finding, common);
}

void RankEvidence::LearnTime(const Iteration& iteration, bool slow) {
  const double time = iteration.expected_ns > 0 ? iteration.time_ns / iteration.expected_ns : 0;
  const bool stall = std::abs(time - 1) > kClip * time_.deviation();
  if (!slow && !stall && iteration.wait_ns > 0)
    leverage_.Add(time, iteration.wait_ns / iteration.expected_ns);
  if (iteration.time_ns > 0)
    time_.Add(iteration.time_ns, iteration.longest_lengths, iteration.lengths, slow);
}

}  // namespace seqpoint::ranks
