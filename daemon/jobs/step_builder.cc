#include "daemon/jobs/step_builder.h"

#include <algorithm>
#include <utility>

namespace seqpoint::jobs {
namespace {

void Widen(const Step& part, Step* whole) {
  whole->key.first = std::max(whole->key.first, part.key.first);
  whole->key.second = std::max(whole->key.second, part.key.second);
  whole->key_known &= part.key_known;
  whole->duration_ns = std::max(whole->duration_ns, part.duration_ns);
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
  Progress& progress = progress_[rank];
  progress.next = std::max(progress.next, iteration.number + 1);
  progress.boundary_ns = iteration.boundary_ns;
  if (iteration.number < next_) {
    ++late_;
    return;
  }
  left_behind_.erase(rank);
  const auto [it, added] = open_.try_emplace(iteration.number);
  Open& open = it->second;
  ++open.ranks;
  if (added) {
    open.step = iteration;
    open.first_rank = rank;
    return;
  }
  open.differed |= open.step.key_known && iteration.key_known && open.step.key != iteration.key;
  Widen(iteration, &open.step);
}

bool StepBuilder::Finished(const Open& open, const std::set<int32_t>& live_ranks) {
  const Progress& ahead = progress_.at(open.first_rank);
  const bool patient =
      open_.size() < kMaxOpen && (ahead.next - open.step.number <= kPatienceSteps ||
                                  ahead.boundary_ns - open.step.boundary_ns <= kPatienceNs);
  for (const int32_t rank : live_ranks) {
    const auto it = progress_.find(rank);
    const int64_t next = it == progress_.end() ? 0 : it->second.next;
    if (next > open.step.number || left_behind_.contains(rank)) continue;
    if (patient) return false;
    left_behind_.insert(rank);
  }
  return true;
}

void StepBuilder::Compare(const Open& open) {
  if (open.ranks < 2 || !open.step.key_known) return;
  differed_ |= open.differed;
  changes_ += std::exchange(last_key_, open.step.key) != open.step.key ? 1 : 0;
}

std::vector<Step> StepBuilder::TakeSteps(const std::set<int32_t>& live_ranks) {
  std::vector<Step> steps;
  while (!open_.empty()) {
    const auto first = open_.begin();
    // Steps before it that no rank reported are as old as it is.
    if (!Finished(first->second, live_ranks)) break;
    next_ = next_ < 0 ? first->first : std::max(next_, first->first - kMostLost);
    for (; next_ < first->first; ++next_) steps.push_back({.number = next_});
    Compare(first->second);
    Step& step = first->second.step;
    if (!step.key_known) step.key = {};
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
  for (const auto& [number, open] : open_) {
    StepState& to = *state.add_open();
    to.set_number(number);
    to.set_first(open.step.key.first);
    to.set_second(open.step.key.second);
    to.set_known(open.step.key_known);
    to.set_duration_ns(open.step.duration_ns);
    to.set_distorted(open.step.distorted);
    to.set_measured(open.step.measured);
    to.set_boundary_ns(open.step.boundary_ns);
    to.set_ranks(open.ranks);
    to.set_first_rank(open.first_rank);
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
  for (const StepState& from : state.open()) {
    if (!progress_.contains(from.first_rank())) continue;
    open_[from.number()] = {.step = {.number = from.number(),
                                     .key = {from.first(), from.second()},
                                     .key_known = from.known(),
                                     .duration_ns = from.duration_ns(),
                                     .distorted = from.distorted(),
                                     .measured = from.measured(),
                                     .first = from.first_occurrence(),
                                     .boundary_ns = from.boundary_ns()},
                            .ranks = from.ranks(),
                            .first_rank = from.first_rank(),
                            .differed = from.differed()};
  }
  next_ = state.next();
  late_ = state.late();
  last_key_ = {state.last_first(), state.last_second()};
  differed_ = state.differed();
  changes_ = state.changes();
}

}  // namespace seqpoint::jobs
