#include "daemon/ranks/rank_monitor.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

#include "daemon/ranks/archive.h"
#include "daemon/ranks/iteration_time.h"
#include "daemon/ranks/link_test.h"
#include "daemon/ranks/rank_scores.h"
#include "daemon/ranks/roles.h"
#include "daemon/ranks/straggler_test.h"

namespace seqpoint::ranks {
namespace {

// Of RankMonitorState::learned.
constexpr int32_t kVersion = 1;
// At most one false alarm about a rank in 200 jobs of 10,000 observed iterations; LinkTest adds as
// many.
constexpr double kValues = 10000, kFalseAlarms = 0.005;
// From so many scores on, a rank without an alarm is even.
constexpr int64_t kEnoughScores = 32;
// Each of the first iterations is wanted, until all ranks have enough scores, and no longer than
// that.
constexpr int64_t kLongestLearning = 128;
// Where the time outside of collectives is this share of a rank's exclusive time, it is a sample of
// all its work: it stands for the whole. Smaller ones count in proportion.
constexpr double kSample = 0.3;

}  // namespace

class RankMonitor::Impl {
 public:
  void Process(const JoinedIteration& iteration);
  void Close();
  bool wants_every_iteration() const;
  RankMonitorState Save() const;

  IterationJoin join;
  Verdicts verdicts;
  int64_t changes = 0;

  template <typename Archive>
  void Visit(Archive& archive) {
    archive(roles_, exclusive_, outside_, tests_, scores_, links_, time_, costs_);
  }

 private:
  RankVerdict& VerdictOf(int32_t rank);
  std::map<int32_t, EvidencePair> Evidences(const JoinedIteration& iteration);
  void TestRanks(const JoinedIteration& iteration);
  void Note(RankVerdict& verdict, const StragglerTest& test, StragglerTest::Event event,
            int64_t number);
  void AddTime(const JoinedIteration& iteration);
  void AddFigures(const JoinedIteration& iteration);
  void Estimate(RankVerdict& verdict);
  void Judge();

  Roles roles_;
  RankScores exclusive_{RankScores::Part::kExclusive}, outside_{RankScores::Part::kOutside};
  std::map<int32_t, StragglerTest> tests_;  // by rank, as the next two
  std::map<int32_t, int64_t> scores_;       // how many
  std::map<int32_t, TimeExcess> costs_;     // of the episode that goes on
  LinkTest links_;
  IterationTime time_;
};

void RankMonitor::Impl::Process(const JoinedIteration& iteration) {
  ++verdicts.observed;
  if (verdicts.first < 0) verdicts.first = iteration.number;
  verdicts.last = iteration.number;
  roles_.Learn(iteration);
  TestRanks(iteration);
  if (links_.Add(iteration, verdicts.links)) ++changes;
  AddTime(iteration);
  AddFigures(iteration);
  Judge();
}

RankVerdict& RankMonitor::Impl::VerdictOf(int32_t rank) {
  auto& ranks = verdicts.ranks;
  auto at = std::lower_bound(ranks.begin(), ranks.end(), rank,
                             [](const RankVerdict& v, int32_t r) { return v.rank < r; });
  if (at == ranks.end() || at->rank != rank) {
    at = ranks.insert(at, RankVerdict());
    at->rank = rank;
    at->doubt = Doubt::kTooFew;
  }
  return *at;
}

std::map<int32_t, EvidencePair> RankMonitor::Impl::Evidences(const JoinedIteration& iteration) {
  std::map<int32_t, EvidencePair> evidences;
  for (const Score& score : exclusive_.Add(iteration, roles_))
    evidences[score.rank][0] = {score.excess, score.deviation};
  std::map<int32_t, Lengths> lengths;
  for (const RankPart& part : iteration.ranks) lengths[part.rank] = part.lengths;
  for (const Score& score : outside_.Add(iteration, roles_)) {
    const int32_t role = roles_.RoleOf(score.rank);
    const Lengths& of_rank = lengths[score.rank];
    const double work = exclusive_.Expect(role, of_rank), outside = outside_.Expect(role, of_rank);
    const double weight = work > 0 ? std::min(1.0, outside / work / kSample) : 0;
    evidences[score.rank][1] = {score.excess * weight, score.deviation * weight};
  }
  return evidences;
}

void RankMonitor::Impl::TestRanks(const JoinedIteration& iteration) {
  const std::map<int32_t, EvidencePair> evidences = Evidences(iteration);
  const std::array<Penalties, 2> penalties = {exclusive_.penalties(), outside_.penalties()};
  const double threshold =
      Threshold(2.0 * static_cast<double>(verdicts.ranks.size()), kValues, kFalseAlarms);
  for (const auto& [rank, evidence] : evidences) {
    if (!(evidence[0].deviation > 0) && !(evidence[1].deviation > 0)) {
      // Nothing can be said yet: what is ordinary is being learned.
      exclusive_.Settle(rank, RankScores::Finding::kOrdinary);
      outside_.Settle(rank, RankScores::Finding::kOrdinary);
      continue;
    }
    ++scores_[rank];
    StragglerTest& test = tests_[rank];
    const auto event = test.Add(iteration.number, evidence, penalties, threshold);
    if (event != StragglerTest::Event::kNone) Note(VerdictOf(rank), test, event, iteration.number);
    exclusive_.Settle(rank, test.finding());
    outside_.Settle(rank, test.finding());
  }
}

void RankMonitor::Impl::Note(RankVerdict& verdict, const StragglerTest& test,
                             StragglerTest::Event event, int64_t number) {
  ++changes;
  if (event == StragglerTest::Event::kRecovered) {
    verdict.episodes.back().last = test.since() - 1;
    return;
  }
  costs_[verdict.rank] = {};
  ++verdict.episode_count;
  if (verdict.episodes.size() >= RankVerdict::kMostEpisodes)
    verdict.episodes.erase(verdict.episodes.begin());
  verdict.episodes.push_back(
      {.first = test.since(), .from_start = test.from_start(), .named = number});
}

void RankMonitor::Impl::AddTime(const JoinedIteration& iteration) {
  double time_ns = 0, longest_ns = 0;
  Lengths longest = {};
  std::vector<Lengths> lengths;
  bool slow = links_.wants_more() || links_.slow();
  for (const RankPart& part : iteration.ranks) {
    if (part.duration_ns <= 0 || part.distorted || part.missed > 0) return;
    time_ns += static_cast<double>(part.duration_ns) / static_cast<double>(iteration.ranks.size());
    const double expected = exclusive_.Expect(roles_.RoleOf(part.rank), part.lengths);
    if (expected >= longest_ns) longest = part.lengths;
    longest_ns = std::max(longest_ns, expected);
    lengths.push_back(part.lengths);
    slow |= tests_[part.rank].finding() != RankScores::Finding::kOrdinary;
  }
  const double expected = time_.Expect(longest);
  for (auto& [rank, test] : tests_)
    if (test.finding() == RankScores::Finding::kSlow && expected > 0)
      costs_[rank].Add(time_ns, expected);
  if (longest_ns > 0) time_.Add(time_ns, longest, lengths, slow);
}

void RankMonitor::Impl::AddFigures(const JoinedIteration& iteration) {
  for (const RankPart& part : iteration.ranks) {
    RankVerdict& verdict = VerdictOf(part.rank);
    ++verdict.iterations;
    verdict.duration_ns += static_cast<double>(part.duration_ns);
    verdict.exclusive_ns += static_cast<double>(part.exclusive_ns);
    verdict.wait_ns += static_cast<double>(part.wait_ns);
    verdict.collectives += part.matched + part.unmatched;
    verdict.last += part.last;
  }
}

// The size of an episode that goes on.
void RankMonitor::Impl::Estimate(RankVerdict& verdict) {
  Episode& episode = verdict.episodes.back();
  const StragglerTest& test = tests_[verdict.rank];
  const ExcessMean& excess = test.excess()[test.part()];
  const double error = 1.96 * excess.deviation / std::sqrt(std::max(excess.count, 1.0));
  episode.excess = {std::expm1(excess.mean), std::expm1(excess.mean - error),
                    std::expm1(excess.mean + error)};
  episode.cost = costs_[verdict.rank].Share(time_.Error());
  if (episode.from_start) episode.cost_doubt = Doubt::kNoBaseline;
}

void RankMonitor::Impl::Judge() {
  for (RankVerdict& verdict : verdicts.ranks) {
    const Course before = verdict.course;
    const bool slow =
        tests_[verdict.rank].finding() == RankScores::Finding::kSlow && !verdict.episodes.empty();
    if (slow) Estimate(verdict);
    if (slow) {
      verdict.course = Course::kSlow;
    } else if (!verdict.episodes.empty()) {
      verdict.course = Course::kWasSlow;
    } else if (scores_[verdict.rank] >= kEnoughScores) {
      verdict.course = Course::kEven;
    }
    if (verdict.course != Course::kUnknown) verdict.doubt = Doubt::kNone;
    changes += before != verdict.course;
  }
  const bool found = verdicts.imbalance.found;
  verdicts.imbalance = time_.imbalance();
  changes += found != verdicts.imbalance.found;
}

bool RankMonitor::Impl::wants_every_iteration() const {
  const auto enough = [&](const RankVerdict& verdict) {
    const auto at = scores_.find(verdict.rank);
    return at != scores_.end() && at->second >= kEnoughScores;
  };
  if (verdicts.observed < kLongestLearning &&
      !(verdicts.observed > 0 && std::all_of(verdicts.ranks.begin(), verdicts.ranks.end(), enough)))
    return true;
  return links_.wants_more() || std::any_of(tests_.begin(), tests_.end(), [](const auto& entry) {
           return entry.second.wants_more();
         });
}

RankMonitorState RankMonitor::Impl::Save() const {
  Saver saver;
  const_cast<Impl*>(this)->Visit(saver);
  return {.verdicts = verdicts,
          .losses = join.losses(),
          .changes = changes,
          .version = kVersion,
          .learned = std::move(saver.numbers)};
}

RankMonitor::RankMonitor() : impl_(std::make_unique<Impl>()) {}
RankMonitor::~RankMonitor() = default;
RankMonitor::RankMonitor(RankMonitor&&) noexcept = default;
RankMonitor& RankMonitor::operator=(RankMonitor&&) noexcept = default;

void RankMonitor::SetRanks(std::set<int32_t> ranks) { impl_->join.SetRanks(std::move(ranks)); }

void RankMonitor::SetSize(uint64_t communicator, int32_t ranks) {
  impl_->join.SetSize(communicator, ranks);
}

void RankMonitor::Add(RankIteration iteration) {
  impl_->join.Add(std::move(iteration));
  for (const JoinedIteration& joined : impl_->join.Take()) impl_->Process(joined);
}

bool RankMonitor::wants_every_iteration() const { return impl_->wants_every_iteration(); }
const Verdicts& RankMonitor::verdicts() const { return impl_->verdicts; }
int64_t RankMonitor::changes() const { return impl_->changes; }
const JoinLosses& RankMonitor::losses() const { return impl_->join.losses(); }
RankMonitorState RankMonitor::Save() const { return impl_->Save(); }

void RankMonitor::Load(const RankMonitorState& state) {
  impl_->verdicts = state.verdicts;
  impl_->changes = state.changes;
}

}  // namespace seqpoint::ranks
