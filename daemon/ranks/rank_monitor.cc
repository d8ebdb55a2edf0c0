#include "daemon/ranks/rank_monitor.h"

#include <algorithm>
#include <map>
#include <utility>

#include "daemon/ranks/archive.h"
#include "daemon/ranks/episode_size.h"
#include "daemon/ranks/link_detector.h"
#include "daemon/ranks/rank_evidence.h"
#include "daemon/ranks/straggler_detector.h"
#include "daemon/ranks/turns.h"

namespace seqpoint::ranks {
namespace {

// Of RankMonitorState::learned.
constexpr int32_t kVersion = 8;
// From so many scores on, a rank without an alarm is even.
constexpr int64_t kEnoughScores = 32;
// Each of the first iterations is wanted until there are enough scores, and while most of what
// ranks report is disturbed because their lengths are new; and no longer than this.
constexpr int64_t kLongestLearning = 1024;
constexpr double kMostDisturbed = 0.5, kDisturbedMemory = 128;  // share; reports of ranks

}  // namespace

class RankMonitor::Impl {
 public:
  void SetRanks(std::set<int32_t> ranks);
  void Add(RankIteration iteration);
  bool wants_every_iteration() const;
  RankMonitorState Save() const;
  void Load(const RankMonitorState& state);

  IterationJoin join;
  KindSizes sizes;
  Verdicts verdicts;
  int64_t changes = 0;

 private:
  // The test of one rank.
  struct Tested {
    StragglerDetector test;
    int64_t scores = 0, missed = 0;  // iterations; missed: with collectives that were not reported
    EpisodeTime time;                // since it became slow
    bool named = false;              // the episode that goes on has a verdict

    template <typename Archive>
    void Visit(Archive& archive) {
      archive(test, scores, missed, time, named);
    }
  };

  // RankMonitorState::learned has it.
  struct Learned {
    RankEvidence evidence;
    std::map<int32_t, Tested> tests;  // by rank
    LinkDetector links;
    UnknownTime before;    // all iterations
    double disturbed = 0;  // recent share of observed reports

    template <typename Archive>
    void Visit(Archive& archive) {
      archive(evidence, tests, links, before, disturbed);
    }
  };

  void Process(const JoinedIteration& joined);
  RankVerdict& VerdictOf(int32_t rank);
  void AddFigures(const JoinedIteration& joined);
  void TestRanks(int64_t number, const RankEvidence::Iteration& iteration);
  bool MostStagesAreSlow() const;
  void TakeBack(RankVerdict& verdict, Tested& tested);
  void NameSlowRanks(int64_t number);
  void Open(RankVerdict& verdict, const Tested& tested, int64_t number);
  void Close(RankVerdict& verdict, const Tested& tested, int64_t last);
  void AddTime(const RankEvidence::Iteration& iteration);
  EpisodeEvidence EvidenceOf(const RankVerdict& verdict);
  void Judge();
  Course CourseOf(const RankVerdict& verdict) const;
  Doubt DoubtOf(const RankVerdict& verdict) const;

  Learned learned_;
};

void RankMonitor::Impl::SetRanks(std::set<int32_t> ranks) {
  for (const int32_t rank : ranks) VerdictOf(rank);
  for (auto& [rank, tested] : learned_.tests) {
    if (ranks.contains(rank)) continue;
    // It is gone: nobody can tell when it would have recovered.
    if (tested.test.slow()) Close(VerdictOf(rank), tested, verdicts.last);
    tested.test = {};
  }
  join.SetRanks(std::move(ranks));
}

void RankMonitor::Impl::Add(RankIteration iteration) {
  join.Add(std::move(iteration));
  for (const JoinedIteration& joined : join.Take()) Process(joined);
}

void RankMonitor::Impl::Process(const JoinedIteration& joined) {
  const int64_t before = changes;
  AddFigures(joined);
  const RankEvidence::Iteration iteration = learned_.evidence.Add(joined);
  if (joined.ranks.size() > 1) TestRanks(joined.number, iteration);
  changes += learned_.links.Add(joined, sizes, verdicts.links);
  AddTime(iteration);
  NameSlowRanks(joined.number);
  if (joined.observed() || changes != before) Judge();
}

RankVerdict& RankMonitor::Impl::VerdictOf(int32_t rank) {
  auto& ranks = verdicts.ranks;
  const auto at = std::lower_bound(ranks.begin(), ranks.end(), rank,
                                   [](const RankVerdict& v, int32_t r) { return v.rank < r; });
  if (at != ranks.end() && at->rank == rank) return *at;
  RankVerdict verdict;
  verdict.rank = rank;
  verdict.doubt = Doubt::kNoCollectives;
  return *ranks.insert(at, verdict);
}

void RankMonitor::Impl::AddFigures(const JoinedIteration& joined) {
  verdicts.last = std::max(verdicts.last, joined.number);
  if (verdicts.first < 0) verdicts.first = joined.number;
  verdicts.observed += joined.observed();
  for (const RankPart& part : joined.ranks) {
    RankVerdict& verdict = VerdictOf(part.rank);
    if (!part.observed()) continue;
    learned_.disturbed += (part.disturbed() - learned_.disturbed) / kDisturbedMemory;
    ++verdict.iterations;
    verdict.duration_ns += static_cast<double>(part.duration_ns);
    verdict.exclusive_ns += static_cast<double>(part.exclusive_ns);
    verdict.wait_ns += static_cast<double>(part.wait_ns);
    verdict.collectives += part.matched + part.unmatched;
    verdict.last += part.last;
    learned_.tests[part.rank].missed += part.missed > 0;
  }
}

void RankMonitor::Impl::TestRanks(int64_t number, const RankEvidence::Iteration& iteration) {
  const double threshold = Threshold(kParts * verdicts.ranks.size());
  for (const auto& [rank, evidences] : iteration.ranks) {
    Tested& tested = learned_.tests[rank];
    tested.scores += evidences[kExclusive].deviation > 0;
    const auto event = tested.test.Add(number, evidences, threshold);
    if (event == StragglerDetector::Event::kBecameSlow) {
      tested.time = {};
      if (tested.test.no_baseline()) {  // it may have been so from the first iteration on
        tested.time.unknown = learned_.before;
        learned_.evidence.ForgetTimes();
      }
      tested.named = false;
    }
    if (event == StragglerDetector::Event::kRecovered)
      Close(VerdictOf(rank), tested, tested.test.since() - 1);
  }
  RankEvidence& evidence = learned_.evidence;
  auto worst = RankScores::Finding::kOrdinary;  // of the stages of a pipeline
  for (const auto& [rank, tested] : learned_.tests)
    if (!evidence.HasPeers(rank)) worst = std::max(worst, tested.test.finding());
  for (const auto& [rank, evidences] : iteration.ranks) {
    const StragglerDetector& test = learned_.tests[rank].test;
    const RankScores::Finding finding = test.finding();
    evidence.Settle(rank, finding, evidence.HasPeers(rank) ? finding : worst, test.Factor().value);
  }
}

void RankMonitor::Impl::Close(RankVerdict& verdict, const Tested& tested, int64_t last) {
  if (!tested.named || verdict.episodes.empty()) return;
  ++changes;
  verdict.episodes.back().last = last;
}

// Stages are compared with the median of the others, or with their own past. Where most of them
// became slower, something that they share may have changed, as in a pipeline whose iterations are
// counted otherwise than before: none is named, and none is called even.
bool RankMonitor::Impl::MostStagesAreSlow() const {
  int64_t stages = 0, slow = 0;
  for (const auto& [rank, tested] : learned_.tests) {
    if (learned_.evidence.HasPeers(rank)) continue;
    ++stages;
    slow += tested.test.slow();
  }
  return slow > 1 && 2 * slow > stages;
}

void RankMonitor::Impl::TakeBack(RankVerdict& verdict, Tested& tested) {
  if (!tested.named || verdict.episodes.empty()) return;
  tested.named = false;
  ++changes;
  --verdict.episode_count;
  verdict.episodes.pop_back();
}

// Names those that are slow and matter, and takes back what turned out not to matter.
void RankMonitor::Impl::NameSlowRanks(int64_t number) {
  const bool together = MostStagesAreSlow();
  for (auto& [rank, tested] : learned_.tests) {
    if (!tested.test.slow()) continue;
    RankVerdict& verdict = VerdictOf(rank);
    if (together && !learned_.evidence.HasPeers(rank)) {
      TakeBack(verdict, tested);
      continue;
    }
    const auto matters = Matters(EvidenceOf(verdict), tested.test.part());
    if (matters == false) {
      tested.test.Dismiss();
      TakeBack(verdict, tested);
    } else if (matters == true && !tested.named) {
      tested.named = true;
      Open(verdict, tested, number);
    }
  }
}

void RankMonitor::Impl::Open(RankVerdict& verdict, const Tested& tested, int64_t number) {
  ++changes;
  ++verdict.episode_count;
  if (verdict.episodes.size() >= RankVerdict::kMostEpisodes)
    verdict.episodes.erase(verdict.episodes.begin());
  Episode& episode = verdict.episodes.emplace_back();
  episode.first = tested.test.since();
  episode.maybe_before = tested.test.maybe_before();
  episode.named = number;
}

void RankMonitor::Impl::AddTime(const RankEvidence::Iteration& iteration) {
  if (iteration.elapsed_ns > 0)
    learned_.before.Add(iteration.elapsed_ns, iteration.longest_lengths);
  const bool link = learned_.links.slow() || learned_.links.wants_more();
  bool slow = link, from_start = false, baseline = false;
  for (auto& [rank, tested] : learned_.tests) {
    slow |= tested.test.slow() || tested.test.wants_more();
    from_start |= tested.test.slow() && tested.test.no_baseline();
    baseline |= tested.test.slow() && !tested.test.no_baseline();
    if (tested.test.steady()) learned_.evidence.AddTo(tested.time, iteration, rank);
  }
  // Where a rank is slow from the start, the others tell what is ordinary; where all have equal
  // lengths, nothing does, and what is usual is learned. A baseline that is known stays what it
  // was.
  const auto ordinary = [&](int32_t rank) {
    return learned_.tests[rank].test.finding() == RankScores::Finding::kOrdinary;
  };
  const bool own_tells = !slow || (from_start && !link && !baseline && iteration.own &&
                                   (iteration.equal_lengths() || ordinary(iteration.own->rank)));
  learned_.evidence.LearnTime(iteration, slow, own_tells);
}

EpisodeEvidence RankMonitor::Impl::EvidenceOf(const RankVerdict& verdict) {
  const Tested& tested = learned_.tests[verdict.rank];
  const RankEvidence& evidence = learned_.evidence;
  const double share = verdict.duration_ns > 0 ? verdict.exclusive_ns / verdict.duration_ns : 0;
  // Stages tell how much work a batch is, by what their lengths let expect; that was learned from
  // so many batches, and changes while it is learned.
  const bool has_peers = evidence.HasPeers(verdict.rank);
  const double deviation =
      std::hypot(tested.test.excess()[kExclusive].deviation, evidence.time().deviation());
  const double expected_error =
      has_peers ? 0 : deviation / std::sqrt(std::max(evidence.Count(verdict.rank), 1.0));
  return {.excess = tested.test.excess(),
          .cost = tested.test.no_baseline()
                      ? evidence.time().CostByFactor(tested.time, tested.test.Factor())
                      : evidence.time().Cost(tested.time, expected_error),
          .usual_share = evidence.time().UsualShare(tested.time),
          .time_count = tested.time.ratio.count,
          .leverage = evidence.leverage(),
          .exclusive_share = share,
          .no_baseline = tested.test.no_baseline(),
          .has_peers = has_peers,
          .baseline_count = evidence.Count(verdict.rank),
          .equal_lengths = evidence.time().equal_lengths()};
}

void RankMonitor::Impl::Judge() {
  const std::set<int32_t> in_turn = RanksInTurn(verdicts);
  verdicts.rotating = !in_turn.empty();
  for (RankVerdict& verdict : verdicts.ranks) {
    if (const Tested& tested = learned_.tests[verdict.rank]; tested.test.slow() && tested.named)
      SizeEpisode(EvidenceOf(verdict), verdict.episodes.back());
    const Course course = in_turn.contains(verdict.rank) ? Course::kRotating : CourseOf(verdict);
    changes += course != verdict.course;
    verdict.course = course;
    verdict.doubt = course == Course::kUnknown ? DoubtOf(verdict) : Doubt::kNone;
    verdict.own_baseline = verdict.iterations > 0 && !learned_.evidence.HasPeers(verdict.rank);
  }
  const bool found = verdicts.imbalance.found;
  verdicts.imbalance = learned_.evidence.time().imbalance();
  changes += found != verdicts.imbalance.found;
}

Course RankMonitor::Impl::CourseOf(const RankVerdict& verdict) const {
  const Tested& tested = learned_.tests.at(verdict.rank);
  if (tested.test.slow() && tested.named) return Course::kSlow;
  if (!verdict.episodes.empty()) return Course::kWasSlow;
  // It stands out, and it is not known whether that matters, or whether it is this rank.
  if (tested.test.slow()) return Course::kUnknown;
  return tested.scores >= kEnoughScores ? Course::kEven : Course::kUnknown;
}

Doubt RankMonitor::Impl::DoubtOf(const RankVerdict& verdict) const {
  if (verdict.iterations == 0) return Doubt::kNoCollectives;
  const auto seen = std::count_if(verdicts.ranks.begin(), verdicts.ranks.end(),
                                  [](const RankVerdict& v) { return v.iterations > 0; });
  if (seen < 2) return Doubt::kOneRank;
  if (!(verdict.duration_ns > 0)) return Doubt::kNoDurations;
  if (learned_.tests.at(verdict.rank).missed * 2 > verdict.iterations)
    return Doubt::kRecordsMissing;
  const bool has_peers = learned_.evidence.HasPeers(verdict.rank);
  if (!has_peers && learned_.tests.at(verdict.rank).test.slow() && MostStagesAreSlow()) {
    return Doubt::kMostAreSlow;
  }
  return has_peers ? Doubt::kTooFew : Doubt::kUnlike;
}

bool RankMonitor::Impl::wants_every_iteration() const {
  const auto enough = [](const auto& entry) { return entry.second.scores >= kEnoughScores; };
  const auto& tests = learned_.tests;
  const bool learned = !tests.empty() && std::all_of(tests.begin(), tests.end(), enough);
  const bool few =
      !learned || learned_.disturbed > kMostDisturbed || learned_.evidence.wants_more();
  if (few && verdicts.observed < kLongestLearning) return true;
  return learned_.links.wants_more() || std::any_of(tests.begin(), tests.end(), [](const auto& e) {
           return e.second.test.wants_more();
         });
}

RankMonitorState RankMonitor::Impl::Save() const {
  Saver saver;
  Learned copy = learned_;
  saver(copy);
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
  Loader loader(state.learned);
  Learned learned;
  if (state.version == kVersion) loader(learned);
  if (state.version == kVersion && loader.ok()) {
    learned_ = std::move(learned);
    return;
  }
  // Nobody knows when these end: they are over where they were seen last.
  for (RankVerdict& verdict : verdicts.ranks)
    for (Episode& episode : verdict.episodes)
      if (episode.last < 0) episode.last = verdicts.last;
  for (LinkVerdict& link : verdicts.links)
    if (link.last < 0) link.last = verdicts.last;
}

RankMonitor::RankMonitor() : impl_(std::make_unique<Impl>()) {}
RankMonitor::~RankMonitor() = default;
RankMonitor::RankMonitor(RankMonitor&&) noexcept = default;
RankMonitor& RankMonitor::operator=(RankMonitor&&) noexcept = default;

void RankMonitor::SetRanks(std::set<int32_t> ranks) { impl_->SetRanks(std::move(ranks)); }

void RankMonitor::SetAwaited(std::set<int32_t> ranks) { impl_->join.SetAwaited(std::move(ranks)); }
void RankMonitor::SetSize(uint64_t communicator, int32_t ranks) {
  impl_->join.SetSize(communicator, ranks);
}

void RankMonitor::SetKind(uint32_t kind, uint64_t function, uint64_t elements) {
  impl_->sizes[kind] = {function, elements};
}

void RankMonitor::Add(RankIteration iteration) { impl_->Add(std::move(iteration)); }
bool RankMonitor::wants_every_iteration() const { return impl_->wants_every_iteration(); }
const Verdicts& RankMonitor::verdicts() const { return impl_->verdicts; }
int64_t RankMonitor::changes() const { return impl_->changes; }
const JoinLosses& RankMonitor::losses() const { return impl_->join.losses(); }
RankMonitorState RankMonitor::Save() const { return impl_->Save(); }
void RankMonitor::Load(const RankMonitorState& state) { impl_->Load(state); }

}  // namespace seqpoint::ranks
