#include "daemon/ranks/rank_evidence.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "daemon/base/statistics.h"

namespace seqpoint::ranks {
namespace {

// Where the time outside of collectives is this share of a rank's exclusive time, it is a sample of
// all its work: it stands for the whole. Smaller ones count in proportion.
constexpr double kSample = 0.3;
// The others' expected time is shorter than the longest rank's by more than this: where they were
// not seen to wait for it, it alone decides the iteration's time; and where they were.
constexpr double kFarBehind = 0.85, kBehind = 1 - kTolerance;

// The rank that the others waited for, and which hardly waited itself. Null where none is seen to
// be, and where that one was disturbed.
const RankPart* WaitedFor(const JoinedIteration& joined) {
  const RankPart* least = nullptr;
  for (const RankPart& part : joined.ranks)
    if (part.last > 0 && (least == nullptr || part.wait_ns < least->wait_ns)) least = &part;
  if (least == nullptr || least->disturbed() || least->missed + least->unmatched > 0)
    return nullptr;
  return least->hardly_waited() ? least : nullptr;
}

size_t LongestOf(const std::vector<double>& works) {
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
  const auto add = [&](size_t part, const std::vector<Score>& scores) {
    for (const Score& score : scores) {
      const double weight = part == kOutside || part == kFirstTime ? weights[score.rank] : 1;
      iteration.ranks[score.rank][part] = {score.excess, score.deviation, weight, score.penalties};
    }
  };
  add(kExclusive, exclusive_.Add(joined, roles_));
  add(kExclusive, stages_.Add(joined, roles_));
  add(kOutside, outside_.Add(joined, roles_));
  add(kFirstTime, first_time_.Add(joined, roles_, outside_));
  add(kPace, pace_.Add(joined, roles_));
  ScoreOwnTime(iteration);
  return iteration;
}

void RankEvidence::ScoreOwnTime(Iteration& iteration) {
  if (!iteration.own || !iteration.own->alone) return;
  const double expected = time_.Expect(iteration.own->lengths);
  if (!(expected > 0)) return;
  const Score score = longest_.Add(iteration.own->rank, iteration.own->time_ns / expected);
  iteration.ranks[score.rank][kLongest] = {score.excess, score.deviation, 1, score.penalties};
}

double RankEvidence::Work(const RankPart& part) const {
  return exclusive_.Expect(roles_.RoleOf(part.rank), part.lengths);
}

// The expected work of each rank, in any unit. Until the times are known, the lengths tell where
// one of them alone differs, and else the ranks' exclusive times, which are vague in a young job.
std::vector<double> RankEvidence::Works(const JoinedIteration& joined) const {
  const std::vector<RankPart>& parts = joined.ranks;
  const bool by_time = time_.Expect(parts.front().lengths) > 0;
  const bool by_length = std::all_of(parts.begin(), parts.end(), [&](const RankPart& part) {
    return part.lengths[0] > 0 && part.lengths[1] == parts.front().lengths[1];
  });
  std::vector<double> works;
  for (const RankPart& part : parts)
    works.push_back(by_time     ? time_.Expect(part.lengths)
                    : by_length ? static_cast<double>(part.lengths[0])
                                : Work(part));
  return works;
}

void RankEvidence::Summarize(const JoinedIteration& joined, Iteration& iteration) const {
  std::vector<double> works = Works(joined);
  const size_t longest = LongestOf(works);
  if (!(works[longest] > 0)) return;
  SumUp(joined, joined.ranks[longest].lengths, iteration);
  // A slow rank needs longer than its lengths tell.
  for (size_t i = 0; i < works.size(); ++i)
    if (const auto at = slow_.find(joined.ranks[i].rank); at != slow_.end()) works[i] *= at->second;
  const RankPart* own = WaitedFor(joined);
  const bool seen = own != nullptr;
  if (own == nullptr && iteration.time_ns > 0) own = &joined.ranks[LongestOf(works)];
  if (own == nullptr) return;
  const auto at = static_cast<size_t>(own - joined.ranks.data());
  const double work = works[at];
  works.erase(works.begin() + static_cast<ptrdiff_t>(at));
  if (works.empty()) return;
  const double next = *std::max_element(works.begin(), works.end()) / work;
  if (next * kBehind > 1) return;  // it should not have been the last one: something held it up
  iteration.own = {
      .rank = own->rank,
      .lengths = own->lengths,
      .time_ns = seen ? static_cast<double>(own->duration_ns) : iteration.time_ns,
      .alone = seen ? next < kBehind : !joined.observed() && next < kFarBehind,
  };
}

// The time is left out where a rank was disturbed.
void RankEvidence::SumUp(const JoinedIteration& joined, const Lengths& longest,
                         Iteration& iteration) const {
  iteration.longest_lengths = longest;
  double time_ns = 0, wait_ns = 0;
  bool ordinary = true, whole = true;
  for (const RankPart& part : joined.ranks) {
    iteration.lengths.push_back(part.lengths);
    whole &= part.duration_ns > 0 && !part.distorted;
    ordinary &= whole && !part.new_length && part.missed == 0;
    iteration.works_ns.emplace_back(part.rank, time_.Expect(part.lengths));
    time_ns += static_cast<double>(part.duration_ns);
    wait_ns += static_cast<double>(part.wait_ns);
  }
  const bool known = std::all_of(iteration.works_ns.begin(), iteration.works_ns.end(),
                                 [](const auto& work) { return work.second > 0; });
  if (!known) iteration.works_ns.clear();
  const auto ranks = static_cast<double>(joined.ranks.size());
  if (whole) iteration.elapsed_ns = time_ns / ranks;
  if (!ordinary) return;
  iteration.time_ns = time_ns / ranks;
  iteration.wait_ns = wait_ns / ranks;
  const double batch = BatchOf(joined);
  iteration.expected_ns = batch * time_.Expect(longest);
  for (auto& [rank, work_ns] : iteration.works_ns) work_ns *= batch;
}

// Batches of equal lengths differ by 10 % in work on all stages of a pipeline alike: by how much,
// the stages tell that are not slow. 0: they do not, as their collectives are not known. 1 where
// ranks have peers: each one has a batch of its own.
double RankEvidence::BatchOf(const JoinedIteration& joined) const {
  std::vector<double> ratios;
  for (const RankPart& part : joined.ranks) {
    if (roles_.HasPeers(part.rank)) return 1;
    const double work = Work(part);
    if (slow_.contains(part.rank) || !part.observed() || !(work > 0)) continue;
    ratios.push_back(static_cast<double>(part.exclusive_ns) / work);
  }
  return ratios.empty() ? 0 : MiddleOf(std::move(ratios));
}

void RankEvidence::AddTo(EpisodeTime& episode, const Iteration& iteration, int32_t rank) const {
  if (iteration.works_ns.empty()) {
    if (iteration.elapsed_ns > 0)
      episode.unknown.Add(iteration.elapsed_ns, iteration.longest_lengths);
    return;
  }
  double with_ns = 0, without_ns = 0;
  for (const auto& [other, work_ns] : iteration.works_ns) {
    const auto slow = slow_.find(other);
    const double slow_ns = slow == slow_.end() ? work_ns : work_ns * slow->second;
    with_ns = std::max(with_ns, slow_ns);
    without_ns = std::max(without_ns, other == rank ? work_ns : slow_ns);
  }
  if (!(with_ns > 0)) return;
  if (iteration.time_ns > 0) episode.ratio.Add(iteration.time_ns, with_ns, time_.deviation());
  if (!(iteration.elapsed_ns > 0)) return;
  episode.with_ns += with_ns;
  episode.without_ns += without_ns;
  episode.time_ns += iteration.elapsed_ns;
}

void RankEvidence::Settle(int32_t rank, RankScores::Finding finding, RankScores::Finding common,
                          double factor) {
  exclusive_.Settle(rank, finding, common);
  outside_.Settle(rank, finding, common);
  stages_.Settle(rank, finding);
  slow_.erase(rank);
  if (finding == RankScores::Finding::kSlow) slow_[rank] = factor;
}

void RankEvidence::LearnTime(const Iteration& iteration, bool slow, bool own_tells) {
  const double time = iteration.expected_ns > 0 ? iteration.time_ns / iteration.expected_ns : 0;
  const bool stall = std::abs(time - 1) > kClip * time_.deviation();
  if (!slow && !stall && iteration.wait_ns > 0)
    leverage_.Add(time, iteration.wait_ns / iteration.expected_ns);
  if (!iteration.lengths.empty()) time_.AddLengths(iteration.longest_lengths, iteration.lengths);
  if (!slow && iteration.expected_ns > 0)
    time_.AddOrdinary(iteration.time_ns, iteration.expected_ns);
  pace_.Settle(slow);
  if (iteration.own && own_tells) time_.Learn(iteration.own->time_ns, iteration.own->lengths);
}

}  // namespace seqpoint::ranks
