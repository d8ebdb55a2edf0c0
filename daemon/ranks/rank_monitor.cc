#include "daemon/ranks/rank_monitor.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "daemon/ranks/archive.h"
#include "daemon/ranks/link_test.h"
#include "daemon/ranks/rank_evidence.h"
#include "daemon/ranks/straggler_test.h"

namespace seqpoint::ranks {
namespace {

// Of RankMonitorState::learned.
constexpr int32_t kVersion = 1;
// From so many scores on, a rank without an alarm is even.
constexpr int64_t kEnoughScores = 32;
// Each of the first iterations is wanted, until all ranks have enough scores, and no longer than
// that.
constexpr int64_t kLongestLearning = 128;
// Where collectives block, a rank's excess makes the iteration longer by nearly as much. Where the
// iteration grows by less than this share of it, collectives hide a part of the work.
constexpr double kBlocking = 0.4;
// Episodes in turn that are more than chance.
constexpr size_t kInTurn = 3;

}  // namespace

class RankMonitor::Impl {
 public:
  void Process(const JoinedIteration& joined);
  bool wants_every_iteration() const;
  RankMonitorState Save() const;
  void Load(const RankMonitorState& state);

  IterationJoin join;
  Verdicts verdicts;
  int64_t changes = 0;

  template <typename Archive>
  void Visit(Archive& archive) {
    archive(evidence_, tests_, links_);
  }

 private:
  // The test of one rank.
  struct Tested {
    StragglerTest test;
    int64_t scores = 0;
    TimeExcess cost;  // of the episode that goes on

    template <typename Archive>
    void Visit(Archive& archive) {
      archive(test, scores, cost);
    }
  };
  RankVerdict& VerdictOf(int32_t rank);
  void TestRanks(int64_t number, const RankEvidence::Iteration& iteration);
  void Note(RankVerdict& verdict, Tested& tested, StragglerTest::Event event, int64_t number);
  void AddFigures(const JoinedIteration& joined);
  void Estimate(RankVerdict& verdict) const;
  void Judge(RankVerdict& verdict);
  void FindTurns();

  RankEvidence evidence_;
  std::map<int32_t, Tested> tests_;  // by rank
  LinkTest links_;
};

void RankMonitor::Impl::Process(const JoinedIteration& joined) {
  ++verdicts.observed;
  if (verdicts.first < 0) verdicts.first = joined.number;
  verdicts.last = joined.number;
  AddFigures(joined);
  const RankEvidence::Iteration iteration = evidence_.Add(joined);
  TestRanks(joined.number, iteration);
  changes += links_.Add(joined, verdicts.links);
  bool slow = links_.slow() || links_.wants_more();
  for (auto& [rank, tested] : tests_) {
    slow |= tested.test.slow() || tested.test.wants_more();
    if (tested.test.slow() && iteration.expected_ns > 0)
      tested.cost.Add(iteration.time_ns, iteration.expected_ns);
  }
  evidence_.LearnTime(iteration, slow);
  for (RankVerdict& verdict : verdicts.ranks) Judge(verdict);
  FindTurns();
  const bool found = verdicts.imbalance.found;
  verdicts.imbalance = evidence_.time().imbalance();
  changes += found != verdicts.imbalance.found;
}

RankVerdict& RankMonitor::Impl::VerdictOf(int32_t rank) {
  auto& ranks = verdicts.ranks;
  const auto at = std::lower_bound(ranks.begin(), ranks.end(), rank,
                                   [](const RankVerdict& v, int32_t r) { return v.rank < r; });
  if (at != ranks.end() && at->rank == rank) return *at;
  return *ranks.insert(at, {.rank = rank, .doubt = Doubt::kTooFew});
}

void RankMonitor::Impl::AddFigures(const JoinedIteration& joined) {
  for (const RankPart& part : joined.ranks) {
    RankVerdict& verdict = VerdictOf(part.rank);
    ++verdict.iterations;
    verdict.duration_ns += static_cast<double>(part.duration_ns);
    verdict.exclusive_ns += static_cast<double>(part.exclusive_ns);
    verdict.wait_ns += static_cast<double>(part.wait_ns);
    verdict.collectives += part.matched + part.unmatched;
    verdict.last += part.last;
  }
}

void RankMonitor::Impl::TestRanks(int64_t number, const RankEvidence::Iteration& iteration) {
  const auto penalties = evidence_.penalties();
  const double threshold = Threshold(kParts * verdicts.ranks.size());
  for (const auto& [rank, evidences] : iteration.ranks) {
    const bool known = std::any_of(evidences.begin(), evidences.end(),
                                   [](const Evidence& e) { return e.deviation > 0; });
    Tested& tested = tests_[rank];
    if (known) {
      ++tested.scores;
      const auto event = tested.test.Add(number, evidences, penalties, threshold);
      if (event != StragglerTest::Event::kNone) Note(VerdictOf(rank), tested, event, number);
    }
    evidence_.Settle(rank, tested.test.finding());
  }
}

void RankMonitor::Impl::Note(RankVerdict& verdict, Tested& tested, StragglerTest::Event event,
                             int64_t number) {
  ++changes;
  if (event == StragglerTest::Event::kRecovered) {
    if (!verdict.episodes.empty()) verdict.episodes.back().last = tested.test.since() - 1;
    return;
  }
  tested.cost = {};
  ++verdict.episode_count;
  if (verdict.episodes.size() >= RankVerdict::kMostEpisodes)
    verdict.episodes.erase(verdict.episodes.begin());
  verdict.episodes.push_back(
      {.first = tested.test.since(), .from_start = tested.test.from_start(), .named = number});
}

// The size of the episode that goes on. The rank's exclusive time tells it where collectives block.
// Where they overlap with work, differences of exclusive times count a delay several times; then
// the time of iterations tells, and at equal lengths that is all of the excess.
void RankMonitor::Impl::Estimate(RankVerdict& verdict) const {
  Episode& episode = verdict.episodes.back();
  const Tested& tested = tests_.at(verdict.rank);
  const auto range = [&](Part part) -> Range {
    const ExcessMean& excess = tested.test.excess()[part];
    const double error = kNormal95 * std::max(excess.deviation, excess.spread) /
                         std::sqrt(std::max(excess.count, 1.0));
    return {std::expm1(excess.mean), std::expm1(excess.mean - error),
            std::expm1(excess.mean + error)};
  };
  const double baseline = evidence_.time().Error();
  episode.cost = tested.cost.Share(baseline);
  episode.cost_doubt = episode.from_start      ? Doubt::kNoBaseline
                       : tested.cost.count < 1 ? Doubt::kTooFew
                                               : Doubt::kNone;
  episode.excess = range(kExclusive);
  episode.doubt = Doubt::kNone;
}

void RankMonitor::Impl::Judge(RankVerdict& verdict) {
  const Course before = verdict.course;
  const Tested& tested = tests_[verdict.rank];
  if (tested.test.slow() && !verdict.episodes.empty()) {
    Estimate(verdict);
    verdict.course = Course::kSlow;
  } else if (!verdict.episodes.empty()) {
    verdict.course = Course::kWasSlow;
  } else if (tested.scores >= kEnoughScores) {
    verdict.course = Course::kEven;
  }
  if (verdict.course != Course::kUnknown) verdict.doubt = Doubt::kNone;
  changes += before != verdict.course;
}

// Whether the last episodes of all ranks follow each other, each of another rank.
void RankMonitor::Impl::FindTurns() {}

bool RankMonitor::Impl::wants_every_iteration() const {
  const auto enough = [](const auto& entry) { return entry.second.scores >= kEnoughScores; };
  const bool learning = tests_.empty() || !std::all_of(tests_.begin(), tests_.end(), enough);
  if (learning && verdicts.observed < kLongestLearning) return true;
  return links_.wants_more() || std::any_of(tests_.begin(), tests_.end(), [](const auto& entry) {
           return entry.second.test.wants_more();
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

void RankMonitor::Impl::Load(const RankMonitorState& state) {
  verdicts = state.verdicts;
  changes = state.changes;
  join.SetLosses(state.losses);
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

void RankMonitor::Load(const RankMonitorState& state) { impl_->Load(state); }

}  // namespace seqpoint::ranks
