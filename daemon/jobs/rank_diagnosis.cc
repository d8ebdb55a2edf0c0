#include "daemon/jobs/rank_diagnosis.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/jobs/figures.h"
#include "daemon/ranks/rank_monitor.h"
#include "daemon/ranks/window_cost.h"
#include "daemon/ranks/window_reason.h"

namespace seqpoint::jobs {
namespace {

constexpr int64_t kEarliest = 16;  // observed iterations before the first window
// Windows that are spread are so many times as far from the beginning as the one before: the run's,
// in which fewer lengths are new as it goes on, or the episode's. As many as a run may have before
// a rank is slow span a decade of iterations: the 100th to the 1,000th.
const double kSpread = std::pow(10, 2.0 / RankDiagnosis::kMostWindows);
constexpr double kConfidence = 0.95;

bool IsOpen(const ranks::RankVerdict& rank) {
  return !rank.episodes.empty() && rank.episodes.back().last < 0;
}

// Time that the reason adds to the rank's work, as a share of the work without it, with 95 %:
// sequences that were longer in the traced iterations are no part of it.
Estimate ExcessShare(const std::vector<ranks::IterationProfiles>& iterations, int32_t rank,
                     const ranks::ReasonVerdict& verdict) {
  double work_ns = 0;
  for (const ranks::IterationProfiles& iteration : iterations) {
    const ranks::RankProfile* const profile = ranks::ProfileOf(iteration, rank);
    if (profile != nullptr) work_ns += profile->time.work_ns();
  }
  const double usual_ns = work_ns / static_cast<double>(iterations.size()) - verdict.explained_ns;
  if (!(usual_ns > 0)) return {};
  const double half_ns = ranks::kNormal95 * verdict.error_ns;
  return {verdict.explained_ns / usual_ns, (verdict.explained_ns - half_ns) / usual_ns,
          (verdict.explained_ns + half_ns) / usual_ns};
}

// The tests have taken lengths into account, over many more iterations than the windows.
bool SaysWhy(ranks::Reason reason) {
  return reason != ranks::Reason::kUnknown && reason != ranks::Reason::kImbalance;
}

// While the others wait for a late host, their own hosts run ahead, which hides what they would
// wait for launches otherwise.
bool SaysHowMuch(ranks::Reason reason) { return reason != ranks::Reason::kHost; }

using Windows = std::vector<ranks::IterationProfiles>;

bool IsIn(const ranks::Episode& episode, const ranks::IterationProfiles& window) {
  const int64_t number = window.front().iteration;
  return number >= episode.first && (episode.last < 0 || number <= episode.last);
}

// No rank was slow then.
bool WasEven(const ranks::Verdicts& verdicts, const ranks::IterationProfiles& window) {
  return std::none_of(verdicts.ranks.begin(), verdicts.ranks.end(), [&](const auto& rank) {
    return std::any_of(rank.episodes.begin(), rank.episodes.end(),
                       [&](const auto& episode) { return IsIn(episode, window); });
  });
}

// A share of the episode's time; 1: not known.
double UsualShare(const ranks::Verdicts& verdicts, int32_t rank, int64_t first) {
  for (const ranks::RankVerdict& verdict : verdicts.ranks) {
    if (verdict.rank != rank) continue;
    for (const ranks::Episode& episode : verdict.episodes) {
      if (episode.first == first) return std::min(episode.usual_share, 1.0);
    }
  }
  return 1;
}

template <typename Chosen>
Windows Choose(const Windows& windows, const Chosen& chosen) {
  Windows to;
  std::copy_if(windows.begin(), windows.end(), std::back_inserter(to), chosen);
  return to;
}

}  // namespace

bool RankDiagnosis::KnowsReason(int32_t rank, int64_t first) const {
  const auto it = reasons_.find({rank, first});
  return it != reasons_.end() && it->second.reason() != v1::SLOW_REASON_UNSPECIFIED;
}

// The next of the windows that are spread from iteration `first` on.
bool RankDiagnosis::IsDue(int64_t newest, int64_t first) const {
  const int64_t latest = asked_.empty() ? -1 : asked_.back();
  return static_cast<double>(newest - first) >= kSpread * static_cast<double>(latest - first);
}

bool RankDiagnosis::WantsWindow(int64_t newest, const ranks::Verdicts& verdicts) const {
  if (taken_ >= kMostWindows || verdicts.observed < kEarliest) return false;
  const auto count = [this](const auto& chosen) {
    return std::count_if(windows_.iterations().begin(), windows_.iterations().end(), chosen);
  };
  bool any = false;
  for (const ranks::RankVerdict& rank : verdicts.ranks) {
    if (!IsOpen(rank)) continue;
    any = true;
    const ranks::Episode& episode = rank.episodes.back();
    const auto during = [&](const auto& window) { return IsIn(episode, window); };
    const auto telling = [&](const auto& window) {
      return during(window) && ranks::TellsOf(window, rank.rank);
    };
    if (count(during) >= kMostOfEpisode) continue;
    const bool known = KnowsReason(rank.rank, episode.first);
    const bool few = count(telling) < kSizeWindows;
    const auto asked = std::count_if(asked_.begin(), asked_.end(),
                                     [&](int64_t number) { return number >= episode.first; });
    if (few && !known && asked < kMostAtOnce) return true;
    if ((few || !known) && IsDue(newest, episode.first)) return true;
  }
  if (any || taken_ >= kMostWindows / 2 || !IsDue(newest, 0)) return false;
  return std::any_of(verdicts.ranks.begin(), verdicts.ranks.end(), [&](const auto& rank) {
    const auto before = [&](const auto& window) {
      return WasEven(verdicts, window) && (!rank.own_baseline || ranks::TellsOf(window, rank.rank));
    };
    return count(before) < (rank.own_baseline ? kOwnWindows : kEarlyWindows);
  });
}

// Iterations from the newest one to one that all libraries hear of in time. Where a machine is too
// busy for that, iterations are given up, and each one doubles the lead.
int64_t RankDiagnosis::Lead() const {
  const auto doublings = std::min<int64_t>(windows_.given_up(), 4);
  return (4 + static_cast<int64_t>(publish_s_ * iterations_per_s_)) << doublings;
}

void RankDiagnosis::OnTime(int64_t monotonic_ns, int64_t newest, double publish_s) {
  publish_s_ = publish_s;
  windows_.OnTime();
  if (checked_newest_ >= 0 && monotonic_ns > checked_ns_) {
    const double passed = static_cast<double>(newest - checked_newest_);
    const double now =
        std::max(passed, 0.0) * 1e9 / static_cast<double>(monotonic_ns - checked_ns_);
    iterations_per_s_ = std::max(now, 0.8 * iterations_per_s_);
  }
  checked_ns_ = monotonic_ns;
  checked_newest_ = newest;
}

bool RankDiagnosis::Ask(int64_t newest, const std::set<int32_t>& ranks,
                        const ranks::Verdicts& verdicts) {
  if (!windows_.idle() || ranks.size() < 2 || !WantsWindow(newest, verdicts)) return false;
  // One whose collectives are timed, too.
  constexpr int64_t kPeriod = ranks::RankMonitor::kPeriod;
  const int64_t earliest = newest + Lead();
  asked_.push_back((earliest + kPeriod - 1) / kPeriod * kPeriod);
  windows_.Want(asked_.back(), ranks);
  ++taken_;
  return true;
}

bool RankDiagnosis::Update(const ranks::Verdicts& verdicts) {
  const int64_t wanted = windows_.wanted();
  const bool more = windows_.TakeFinished();
  bool changed = wanted != windows_.wanted();
  if (!more) return changed;
  std::vector<int32_t> alike;
  for (const ranks::RankVerdict& rank : verdicts.ranks) {
    if (!rank.own_baseline) alike.push_back(rank.rank);
  }
  const auto even = [&](const auto& window) { return WasEven(verdicts, window); };
  const Windows before = Choose(windows_.iterations(), even);
  const Windows first_times = Choose(windows_.first_times(), even);
  for (const ranks::RankVerdict& rank : verdicts.ranks) {
    if (!IsOpen(rank)) continue;
    const ranks::Episode& episode = rank.episodes.back();
    const Windows during = Choose(windows_.iterations(), [&](const auto& window) {
      return IsIn(episode, window) && ranks::TellsOf(window, rank.rank);
    });
    if (during.size() < kReasonWindows) continue;
    ranks::RankQuestion question = {
        .rank = rank.rank, .iterations = during, .earlier = before, .first_times = first_times};
    for (const int32_t other : alike) {
      if (!rank.own_baseline && other != rank.rank) question.peers.push_back(other);
    }
    const ranks::ReasonVerdict verdict = ranks::FindReason(question);
    SlowReasonState& reason = reasons_[{rank.rank, episode.first}];
    reason.Clear();
    changed = true;
    if (!SaysWhy(verdict.reason)) {
      reason.set_message(
          absl::StrCat("not known; in the iterations that all ranks traced, ", verdict.text));
      continue;
    }
    reason.set_reason(static_cast<v1::SlowReason>(verdict.reason));
    reason.set_message(verdict.text);
    if (verdict.reason == ranks::Reason::kClocks || verdict.reason == ranks::Reason::kKernels) {
      Estimate factor = verdict.factor;
      const double beyond = factor.value > 0 ? factor.high / factor.value : 1;
      for (const ranks::SlowKernel& kernel : verdict.kernels) {
        factor.high = std::max(factor.high, kernel.factor * beyond);
      }
      SetEstimate(factor, reason.mutable_factor());
    }
    if (!SaysHowMuch(verdict.reason) || verdict.first_times) continue;
    const Estimate excess = ExcessShare(during, rank.rank, verdict);
    SetDifference(excess, reason.mutable_excess());
    const auto cost = ranks::CostShare(question, kConfidence);
    if (cost) SetEstimate(*cost, reason.mutable_cost());
  }
  return changed;
}

void RankDiagnosis::SetReasons(const ranks::Verdicts& verdicts, bool host_times,
                               v1::GetRanksReply* reply) const {
  for (v1::RankSummary& rank : *reply->mutable_ranks()) {
    for (v1::SlowEpisode& episode : *rank.mutable_episodes()) {
      const auto it = reasons_.find({rank.rank(), episode.first_iteration()});
      // The tests say that a rank is slow, and iterations before it what that costs. Windows show
      // by how much it is, and the cost where there were no such iterations.
      episode.clear_excess();
      episode.clear_message();
      if (it == reasons_.end()) {
        const char* const why =
            host_times ? "not known, because no GPU does the work, and only a GPU's is traced"
                       : "not known, because the ranks were not traced at the same iterations "
                         "meanwhile, or at too few whose lengths were not new";
        episode.set_message(why);
        if (!episode.has_cost()) episode.set_cost_message(why);
        episode.set_reason_message(why);
        continue;
      }
      const SlowReasonState& reason = it->second;
      episode.set_reason(reason.reason());
      episode.set_reason_message(reason.message());
      if (reason.has_excess()) {
        *episode.mutable_excess() = reason.excess();
        if (!episode.has_cost() && reason.has_cost()) {
          // Windows are of iterations whose lengths were not new.
          const double usual = UsualShare(verdicts, rank.rank(), episode.first_iteration());
          const v1::Estimate& cost = reason.cost();
          SetEstimate(Scaled({cost.value(), cost.low(), cost.high()}, usual),
                      episode.mutable_cost());
          episode.clear_cost_message();
        }
      } else {
        const char* const why =
            reason.reason() == v1::SLOW_REASON_UNSPECIFIED
                ? "not known, because the reason is not known"
            : reason.reason() == v1::SLOW_REASON_HOST
                ? "not known, because the others' hosts run ahead while they wait"
                : "not known, because its earlier iterations were the first of their lengths";
        episode.set_message(why);
      }
    }
  }
}

std::vector<SlowSpan> RankDiagnosis::Spans(const ranks::Verdicts& verdicts) const {
  std::vector<SlowSpan> spans;
  for (const ranks::RankVerdict& rank : verdicts.ranks) {
    for (const ranks::Episode& episode : rank.episodes) {
      const auto it = reasons_.find({rank.rank, episode.first});
      const v1::SlowReason why =
          it == reasons_.end() ? v1::SLOW_REASON_UNSPECIFIED : it->second.reason();
      SlowSpan& span = spans.emplace_back();
      span.rank = rank.rank;
      span.first = episode.first;
      if (episode.last >= 0) span.end = episode.last + 1;
      span.maybe_before = episode.maybe_before;
      span.alone = rank.own_baseline;
      const bool known = why != v1::SLOW_REASON_UNSPECIFIED && why != v1::SLOW_REASON_MORE_WORK;
      span.more_work = !known;
      if (!known) continue;
      const bool kernels = why == v1::SLOW_REASON_CLOCKS || why == v1::SLOW_REASON_KERNELS;
      if (!kernels) {
        span.most = 1;
      } else if (it->second.has_factor()) {  // an earlier version stored none
        span.most = std::max(1.0, it->second.factor().high());
        span.all = why == v1::SLOW_REASON_CLOCKS ? std::max(1.0, it->second.factor().value()) : 1;
      }
    }
  }
  return spans;
}

RankDiagnosisState RankDiagnosis::Save() const {
  RankDiagnosisState to;
  for (const auto& [key, reason] : reasons_) {
    SlowReasonState& saved = *to.add_reasons();
    saved = reason;
    saved.set_rank(key.first);
    saved.set_first(key.second);
  }
  to.set_taken(taken_);
  return to;
}

void RankDiagnosis::Load(const RankDiagnosisState& from) {
  for (const SlowReasonState& reason : from.reasons()) {
    reasons_[{reason.rank(), reason.first()}] = reason;
  }
  taken_ = from.taken();
}

}  // namespace seqpoint::jobs
