#include "daemon/jobs/step_builder.h"

#include <algorithm>
#include <utility>

namespace seqpoint::jobs {
namespace {

void Widen(const Step& part, Step* whole) {
  whole->key.first = std::max(whole->key.first, part.key.first);
  whole->key.second = std::max(whole->key.second, part.key.second);
  whole->key_known &= part.key_known;
  // 0 where one is not known, which may be the slowest.
  whole->duration_ns = std::min(whole->duration_ns, part.duration_ns);
  whole->rest_ns = std::max(whole->rest_ns, part.rest_ns);
  whole->distorted |= part.distorted;
  whole->measured |= part.measured;
  whole->first |= part.first;
}

}  // namespace

StepBuilder::StepBuilder(const std::map<int32_t, int64_t>& next_numbers) {
  for (const auto& [rank, next] : next_numbers) {
    progress_[rank].next = next;
    next_ = std::max(next_, next);
  }
}

void StepBuilder::Add(int32_t rank, const Step& iteration) {
  constexpr int64_t kMostSteps = int64_t{1} << 50;
  if (iteration.number < 0 || iteration.number > kMostSteps) return;
  Progress& progress = progress_[rank];
  progress.next = std::max(progress.next, iteration.number + 1);
  progress.boundary_ns = iteration.boundary_ns;
  if (IsLate(iteration.number)) {
    ++late_;
    return;
  }
  left_behind_.erase(rank);
  const auto [it, added] = open_.try_emplace(iteration.number);
  Open& open = it->second;
  open.starts_ns[rank] = iteration.boundary_ns;
  open.durations_ns[rank] = iteration.duration_ns;
  if (added) {
    open.step = iteration;
    return;
  }
  open.differed |= open.step.key_known && iteration.key_known && open.step.key != iteration.key;
  Widen(iteration, &open.step);
}

bool StepBuilder::Finished(Open& open, const std::set<int32_t>& live_ranks, bool all_heard) {
  const int64_t number = open.step.number;
  const bool patient =
      open_.size() < kMaxOpen &&
      (!all_heard ||
       std::none_of(open.starts_ns.begin(), open.starts_ns.end(), [&](const auto& entry) {
         const Progress& ahead = progress_.at(entry.first);
         return live_ranks.contains(entry.first) && ahead.next - number > kPatienceSteps &&
                ahead.boundary_ns - entry.second > kPatienceNs;
       }));
  for (const int32_t rank : live_ranks) {
    const auto it = progress_.find(rank);
    if (open.starts_ns.contains(rank)) continue;
    const bool further = it != progress_.end() && it->second.next > number;
    if (!further && !left_behind_.contains(rank)) {
      if (patient) return false;
      left_behind_.insert(rank);
    }
    if (it == progress_.end()) continue;  // it never trained
    // It is behind, or its record was lost.
    open.step.key_known = false;
    open.step.duration_ns = 0;
  }
  return true;
}

void StepBuilder::Compare(const Open& open) {
  if (open.starts_ns.size() < 2 || !open.step.key_known) return;
  differed_ |= open.differed;
  changes_ += std::exchange(last_key_, open.step.key) != open.step.key ? 1 : 0;
}

int64_t StepBuilder::DurationOf(const Open& open) {
  if (open.step.duration_ns > 0) return clock_.Advance(open.durations_ns);
  clock_.Lose();
  return 0;
}

std::vector<Step> StepBuilder::TakeSteps(const std::set<int32_t>& live_ranks, bool all_heard) {
  std::vector<Step> steps;
  while (!open_.empty()) {
    const auto first = open_.begin();
    // Steps before it that no rank reported are as old as it is.
    if (!Finished(first->second, live_ranks, all_heard)) break;
    next_ = next_ < 0 ? first->first : std::max(next_, first->first - kMostLost);
    for (; next_ < first->first; ++next_) {
      steps.push_back({.number = next_});
      clock_.Lose();
    }
    Compare(first->second);
    Step& step = first->second.step;
    if (!step.key_known) step.key = {};
    step.duration_ns = DurationOf(first->second);
    steps.push_back(step);
    ++next_;
    open_.erase(first);
  }
  return steps;
}

StepsState StepBuilder::Save() const {
  StepsState state;
  for (const auto& [rank, progress] : progress_) {
    RankState& to = *state.add_ranks();
    to.set_rank(rank);
    to.set_next(progress.next);
    to.set_boundary_ns(progress.boundary_ns);
  }
  for (const int32_t rank : left_behind_) state.add_left_behind(rank);
  for (const auto& [rank, behind_ns] : clock_.behind_ns()) {
    state.add_clock_ranks(rank);
    state.add_behind_ns(behind_ns);
  }
  for (const auto& [number, open] : open_) {
    StepState& to = *state.add_open();
    to.set_number(number);
    to.set_first(open.step.key.first);
    to.set_second(open.step.key.second);
    to.set_known(open.step.key_known);
    to.set_duration_ns(open.step.duration_ns);
    to.set_rest_ns(open.step.rest_ns);
    to.set_distorted(open.step.distorted);
    to.set_measured(open.step.measured);
    for (const auto& [rank, begin_ns] : open.starts_ns) {
      to.add_rank(rank);
      to.add_begin_ns(begin_ns);
      to.add_rank_duration_ns(open.durations_ns.at(rank));
    }
    to.set_differed(open.differed);
    to.set_first_occurrence(open.step.first);
  }
  state.set_next(next_);
  state.set_late(late_);
  state.set_last_first(last_key_.first);
  state.set_last_second(last_key_.second);
  state.set_differed(differed_);
  state.set_changes(changes_);
  return state;
}

void StepBuilder::Load(const StepsState& state) {
  *this = {};
  for (const RankState& rank : state.ranks()) {
    progress_[rank.rank()] = {.next = rank.next(), .boundary_ns = rank.boundary_ns()};
  }
  left_behind_.insert(state.left_behind().begin(), state.left_behind().end());
  std::map<int32_t, int64_t> behind_ns;
  for (int i = 0; i < std::min(state.clock_ranks_size(), state.behind_ns_size()); ++i) {
    behind_ns[state.clock_ranks(i)] = state.behind_ns(i);
  }
  clock_.Restore(std::move(behind_ns));
  for (const StepState& from : state.open()) {
    Open& open = open_[from.number()];
    open.step = {.number = from.number(),
                 .key = {from.first(), from.second()},
                 .key_known = from.known(),
                 .duration_ns = from.duration_ns(),
                 .rest_ns = from.rest_ns(),
                 .distorted = from.distorted(),
                 .measured = from.measured(),
                 .first = from.first_occurrence()};
    open.differed = from.differed();
    const int ranks =
        std::min({from.rank_size(), from.begin_ns_size(), from.rank_duration_ns_size()});
    for (int i = 0; i < ranks; ++i) {
      if (!progress_.contains(from.rank(i))) continue;
      open.starts_ns[from.rank(i)] = from.begin_ns(i);
      open.durations_ns[from.rank(i)] = from.rank_duration_ns(i);
    }
  }
  next_ = state.next();
  late_ = state.late();
  last_key_ = {state.last_first(), state.last_second()};
  differed_ = state.differed();
  changes_ = state.changes();
}

}  // namespace seqpoint::jobs
