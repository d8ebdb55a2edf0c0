#include "daemon/jobs/step_builder.h"

#include <algorithm>
#include <utility>

namespace seqpoint::jobs {
namespace {

bool SameLengths(const Step& a, const Step& b) {
  return a.first_length() == b.first_length() && a.second_length() == b.second_length();
}

void Join(const Step& part, Step& whole) {
  whole.set_first_length(std::max(whole.first_length(), part.first_length()));
  whole.set_second_length(std::max(whole.second_length(), part.second_length()));
  whole.set_valid(std::min(whole.valid(), part.valid()));
  // 0 where the time of one rank is not known: it may be the slowest.
  whole.set_duration_ns(std::min(whole.duration_ns(), part.duration_ns()));
  whole.set_rest_ns(std::max(whole.rest_ns(), part.rest_ns()));
  whole.set_distorted(whole.distorted() || part.distorted());
  whole.set_config_id(std::max(whole.config_id(), part.config_id()));
  whole.set_cold(whole.cold() || part.cold());
}

bool CanBe(int64_t number) { return number >= 0 && number <= StepBuilder::kMostSteps; }

}  // namespace

StepBuilder::StepBuilder(const std::map<int32_t, int64_t>& next_numbers) : StepBuilder() {
  for (const auto& [rank, next] : next_numbers) {
    (*state_.mutable_ranks())[rank].set_next(next);
    state_.set_next(std::max(state_.next(), next));
  }
}

void StepBuilder::Add(int32_t rank, const Step& iteration) {
  const auto number = static_cast<int64_t>(iteration.number());
  if (!CanBe(number)) return;
  RankProgress& progress = (*state_.mutable_ranks())[rank];
  progress.set_next(std::max(progress.next(), number + 1));
  progress.set_boundary_ns(iteration.boundary_ns());
  if (IsLate(number)) {
    state_.set_late(state_.late() + 1);
    return;
  }
  state_.mutable_left_behind()->erase(rank);
  const auto [it, added] = open_.try_emplace(number);
  OpenStep& open = it->second;
  (*open.mutable_boundaries_ns())[rank] = iteration.boundary_ns();
  (*open.mutable_durations_ns())[rank] = iteration.duration_ns();
  if (added) {
    *open.mutable_step() = iteration;
    return;
  }
  const Step& others = open.step();
  open.set_differed(open.differed() || (others.valid() != 0 && iteration.valid() != 0 &&
                                        !SameLengths(others, iteration)));
  Join(iteration, *open.mutable_step());
}

bool StepBuilder::IsFarBehind(const OpenStep& open, const std::set<int32_t>& live_ranks) const {
  const auto number = static_cast<int64_t>(open.step().number());
  const auto& boundaries_ns = open.boundaries_ns();
  return std::any_of(boundaries_ns.begin(), boundaries_ns.end(), [&](const auto& entry) {
    const RankProgress& first = state_.ranks().at(entry.first);
    return live_ranks.contains(entry.first) && first.next() - number > kPatienceSteps &&
           first.boundary_ns() - entry.second > kPatienceNs;
  });
}

int64_t StepBuilder::DelayedStep(const std::set<int32_t>& live_ranks) const {
  if (open_.empty() || !IsFarBehind(open_.begin()->second, live_ranks)) return -1;
  return open_.begin()->first;
}

bool StepBuilder::Finished(OpenStep& open, const std::set<int32_t>& live_ranks, bool all_heard) {
  const auto number = static_cast<int64_t>(open.step().number());
  const auto& boundaries_ns = open.boundaries_ns();
  const bool patient = open_.size() < kMaxOpen && (!all_heard || !IsFarBehind(open, live_ranks));
  for (const int32_t rank : live_ranks) {
    if (boundaries_ns.contains(rank)) continue;
    const auto it = state_.ranks().find(rank);
    const bool trained = it != state_.ranks().end();
    const bool further = trained && it->second.next() > number;
    if (!further && !state_.left_behind().contains(rank)) {
      if (patient) return false;
      (*state_.mutable_left_behind())[rank] = true;
    }
    if (!trained) continue;
    open.mutable_step()->set_valid(0);
    open.mutable_step()->set_duration_ns(0);
  }
  return true;
}

void StepBuilder::Compare(const OpenStep& open) {
  const Step& step = open.step();
  if (open.boundaries_ns_size() < 2 || step.valid() == 0) return;
  state_.set_differed(state_.differed() || open.differed());
  if (step.first_length() != state_.last_first_length() ||
      step.second_length() != state_.last_second_length()) {
    state_.set_changes(state_.changes() + 1);
  }
  state_.set_last_first_length(step.first_length());
  state_.set_last_second_length(step.second_length());
}

std::vector<Step> StepBuilder::TakeSteps(const std::set<int32_t>& live_ranks, bool all_heard) {
  std::vector<Step> steps;
  while (!open_.empty()) {
    const auto first = open_.begin();
    const int64_t number = first->first;
    // Steps before it that no rank reported are as old as it is.
    if (!Finished(first->second, live_ranks, all_heard)) break;
    int64_t next = state_.next() < 0 ? number : std::max(state_.next(), number - kMostLost);
    for (; next < number; ++next) {
      steps.emplace_back().set_number(static_cast<uint64_t>(next));
      state_.clear_behind_ns();
    }
    Compare(first->second);
    Step& step = steps.emplace_back(std::move(*first->second.mutable_step()));
    if (step.duration_ns() > 0) {
      step.set_duration_ns(AdvanceClock(first->second.durations_ns(), *state_.mutable_behind_ns()));
    } else {
      state_.clear_behind_ns();
    }
    if (step.valid() == 0) {
      step.clear_first_length();
      step.clear_second_length();
    }
    state_.set_next(number + 1);
    open_.erase(first);
  }
  return steps;
}

void StepBuilder::Save(StepsState* to) const {
  *to = state_;
  for (const auto& [number, open] : open_) *to->add_open() = open;
}

void StepBuilder::Load(const StepsState& state) {
  *this = {};
  state_ = state;
  state_.clear_open();
  state_.set_next(std::clamp<int64_t>(state.next(), -1, kMostSteps));
  for (auto& [rank, progress] : *state_.mutable_ranks()) {
    if (!CanBe(progress.next())) progress.set_next(0);
  }
  for (const OpenStep& open : state.open()) {
    const auto& boundaries_ns = open.boundaries_ns();
    const bool known =
        std::all_of(boundaries_ns.begin(), boundaries_ns.end(),
                    [&](const auto& entry) { return state.ranks().contains(entry.first); });
    const auto number = static_cast<int64_t>(open.step().number());
    if (known && CanBe(number)) open_[number] = open;
  }
}

}  // namespace seqpoint::jobs
