#include "daemon/jobs/iteration_builder.h"

#include <algorithm>
#include <utility>

namespace seqpoint::jobs {

void IterationBuilder::DropOpen() {
  state_.clear_start();
  state_.set_waited(false);
  state_.set_candidates(0);
  state_.clear_open();
  state_.set_early_clock(0);
}

void IterationBuilder::DropUnended() {
  if (pending_.empty() || pending_.back().has_end()) return;
  pending_.pop_back();
  state_.set_lost_iterations(state_.lost_iterations() + 1);
}

void IterationBuilder::OnBoundary(const abi::BoundaryEvent& event) {
  BuilderState& s = state_;
  if (s.counts() && event.iteration != s.number()) {
    // A step or boundary was lost with a full lane. The numbers still say how many iterations
    // passed. Those in the gap have no start or no end and are left out.
    if (event.iteration > s.number()) {
      s.set_lost_iterations(s.lost_iterations() + event.iteration - s.number());
    }
    DropOpen();
    DropUnended();
  }
  s.set_counts(true);
  s.set_number(event.iteration);

  const bool host_time = (event.flags & abi::kHostTime) != 0;
  BoundaryCandidate candidate;
  candidate.set_api_ns(event.api_ns);
  candidate.set_call_sequence(event.call_sequence);
  // A clock event between the step and the first candidate belongs to that candidate.
  candidate.set_correlation_id(s.early_clock());
  // Where the host does the work itself, the work is done at every boundary.
  candidate.set_waited(s.waited() || host_time);
  s.set_early_clock(0);
  s.set_waited(false);
  if (!pending_.empty() && !pending_.back().has_end()) {
    // The flag belongs to the iteration before the boundary.
    if (event.flags & abi::kDistorted) pending_.back().mutable_iteration()->set_distorted(true);
    Close(candidate);
  }
  s.set_host_time(host_time);
  if (s.candidates() == 0) *s.mutable_other() = candidate;
  s.set_candidates(s.candidates() + 1);
  *s.mutable_start() = std::move(candidate);
  s.mutable_open()->mutable_iteration()->clear_micro_lengths();
  s.mutable_open()->set_invalid_micro(0);
}

void IterationBuilder::OnDecision(const abi::DecisionEvent& event) {
  if (!state_.counts() || event.iteration != state_.number()) return;
  FinishedIteration& open = *state_.mutable_open()->mutable_iteration();
  open.set_first_length(event.length[0]);
  open.set_second_length(event.length[1]);
  open.set_valid(event.valid);
  if (event.config_id != 0) open.set_config_id(event.config_id);
}

void IterationBuilder::OnClock(const abi::ClockEvent& event) {
  BuilderState& s = state_;
  if (!s.counts()) {
    s.set_counts(true);
    s.set_number(event.iteration);
  }
  if (event.iteration != s.number()) return;
  if (!s.has_start()) {
    s.set_early_clock(event.correlation_id);
    return;
  }
  if (s.start().correlation_id() != 0) return;
  s.mutable_start()->set_correlation_id(event.correlation_id);
  if (s.candidates() == 1) s.mutable_other()->set_correlation_id(event.correlation_id);
  if (!pending_.empty() && pending_.back().has_end()) {
    BoundaryCandidate& end = *pending_.back().mutable_end();
    if (end.call_sequence() == s.start().call_sequence() && end.correlation_id() == 0) {
      end.set_correlation_id(event.correlation_id);
    }
  }
  Resolve(false);
}

void IterationBuilder::OnMicroBatch(const abi::MicroBatchEvent& event) {
  if (!state_.has_start() || event.iteration != state_.number()) return;
  PendingIteration& open = *state_.mutable_open();
  auto& micro_lengths = *open.mutable_iteration()->mutable_micro_lengths();
  // Where one is missing, OnStep leaves all of them out.
  if (event.index != static_cast<uint32_t>(micro_lengths.size()) ||
      event.index >= kMaxMicroBatchs) {
    return;
  }
  LengthPair& lengths = *micro_lengths.Add();
  lengths.set_first(event.length[0]);
  lengths.set_second(event.length[1]);
  open.set_invalid_micro(open.invalid_micro() | ~static_cast<uint32_t>(event.valid));
}

void IterationBuilder::OnStep(const abi::StepEvent& event) {
  BuilderState& s = state_;
  if (!s.has_start() || event.iteration != s.number()) {
    if (s.counts() && event.iteration >= s.number()) {
      s.set_lost_iterations(s.lost_iterations() + event.iteration - s.number() + 1);
      s.set_number(event.iteration + 1);
    }
    DropUnended();  // its end is lost
    DropOpen();
    return;
  }
  PendingIteration& done = pending_.emplace_back();
  done.Swap(s.mutable_open());
  FinishedIteration& iteration = *done.mutable_iteration();
  iteration.set_number(event.iteration);
  iteration.set_first_length(event.length[0]);
  iteration.set_second_length(event.length[1]);
  iteration.set_valid(event.valid);
  iteration.set_micro_batches(event.micro_batches);
  const bool whole = static_cast<uint32_t>(iteration.micro_lengths_size()) == event.micro_batches &&
                     (done.invalid_micro() & event.valid) == 0;
  if (!whole) iteration.clear_micro_lengths();
  iteration.set_other_batches(s.candidates() - 1);
  if (s.candidates() > 1) *done.mutable_other() = s.other();
  *done.mutable_start() = s.start();
  done.set_step_ns(event.api_ns);
  done.set_host_time(s.host_time());
  s.clear_start();
  s.set_candidates(0);
  s.set_number(event.iteration + 1);
  Resolve(false);
}

void IterationBuilder::OnSync(const abi::SyncEvent&) { state_.set_waited(true); }

void IterationBuilder::OnClockStep(const abi::ClockStepEvent& event) {
  ClockStepCalls& step = *state_.add_clock_steps();
  step.set_first(event.first_call);
  step.set_last(event.last_call);
  if (state_.clock_steps_size() > kMaxClockSteps) {
    state_.mutable_clock_steps()->DeleteSubrange(0, 1);
  }
  for (PendingIteration& pending : pending_) pending.set_clock_set(true);
}

bool IterationBuilder::ClockSetBetween(const BoundaryCandidate& start,
                                       const BoundaryCandidate& end) const {
  return std::any_of(
      state_.clock_steps().begin(), state_.clock_steps().end(), [&](const ClockStepCalls& step) {
        return start.call_sequence() <= step.last() && end.call_sequence() >= step.first();
      });
}

void IterationBuilder::OnGpuStart(uint32_t correlation_id, uint64_t start_ns) {
  if (correlation_id == 0 || start_ns == 0) return;
  const auto [it, added] = stamps_.insert_or_assign(correlation_id, static_cast<int64_t>(start_ns));
  if (!added) return;
  stamp_order_.push_back(correlation_id);
  if (stamp_order_.size() > kMaxStamps) {
    stamps_.erase(stamp_order_.front());
    stamp_order_.pop_front();
  }
  Resolve(false);
}

void IterationBuilder::Finish(bool open_counts) {
  BuilderState& s = state_;
  if (open_counts && s.has_start()) {
    PendingIteration& last = pending_.emplace_back();
    last.Swap(s.mutable_open());
    last.mutable_iteration()->set_number(s.number());
    last.mutable_iteration()->set_micro_batches(1);
    last.mutable_iteration()->clear_micro_lengths();
    *last.mutable_start() = s.start();
    s.set_number(s.number() + 1);
    s.clear_start();
    s.set_candidates(0);
  }
  Resolve(true);
}

void IterationBuilder::Reset() {
  BuilderState next;
  next.set_lost_iterations(state_.lost_iterations());
  *next.mutable_clock_steps() = std::move(*state_.mutable_clock_steps());
  state_ = std::move(next);
  pending_.clear();
}

void IterationBuilder::Close(const BoundaryCandidate& end) {
  BuilderState& s = state_;
  PendingIteration& last = pending_.back();
  *last.mutable_end() = end;
  if (last.host_time() && end.api_ns() >= last.step_ns()) {
    s.set_longest_rest_ns(std::max(s.longest_rest_ns(), end.api_ns() - last.step_ns()));
    const uint64_t duration_ns = end.api_ns() - last.start().api_ns();
    if (s.first_ns() == 0) {
      s.set_first_ns(duration_ns);
    } else {
      s.set_others(s.others() + 1);
      s.set_others_ns(s.others_ns() + duration_ns);
    }
  }
  Resolve(false);
}

int64_t IterationBuilder::LongestRest() const {
  const BuilderState& s = state_;
  // Work takes longer the first time: before the first boundary as much as after it, but no longer
  // than an iteration.
  const uint64_t mean_ns = s.others_ns() / s.others();
  const uint64_t slower_ns = s.first_ns() > mean_ns ? std::min(s.first_ns() - mean_ns, mean_ns) : 0;
  return static_cast<int64_t>(2 * s.longest_rest_ns() + slower_ns);
}

void IterationBuilder::Stamp(BoundaryCandidate* candidate) const {
  if (candidate->gpu_ns() != 0) return;
  const auto it = stamps_.find(candidate->correlation_id());
  if (it != stamps_.end()) candidate->set_gpu_ns(it->second);
}

void IterationBuilder::Stamp(PendingIteration& pending) const {
  Stamp(pending.mutable_start());
  if (pending.has_end()) Stamp(pending.mutable_end());
  if (pending.has_other()) Stamp(pending.mutable_other());
}

void IterationBuilder::Resolve(bool give_up) {
  while (!pending_.empty()) {
    PendingIteration& first = pending_.front();
    Stamp(first);
    const bool complete = first.start().gpu_ns() != 0 && first.end().gpu_ns() != 0;
    // CUPTI flushes its buffers late: by many iterations, where these are short.
    const bool stamps_expected =
        first.start().correlation_id() != 0 && first.end().correlation_id() != 0;
    const bool overdue = pending_.back().start().api_ns() > first.start().api_ns() + kPatienceNs;
    const size_t patience = !stamps_expected ? kMaxUnstamped : overdue ? kMinPending : kMaxPending;
    if (!complete && !give_up && pending_.size() <= patience) return;

    FinishedIteration& iteration = finished_.emplace_back();
    iteration.Swap(first.mutable_iteration());
    SetTimes(first, complete, iteration);
    NoteStretch(first, iteration);
    pending_.pop_front();
  }
}

void IterationBuilder::SetTimes(const PendingIteration& done, bool complete,
                                FinishedIteration& iteration) const {
  const BoundaryCandidate &start = done.start(), &end = done.end(), &other = done.other();
  const bool has_end = done.has_end();
  const auto between = [](auto from_ns, auto to_ns) {
    return static_cast<int64_t>(static_cast<uint64_t>(to_ns) - static_cast<uint64_t>(from_ns));
  };
  iteration.set_ended(has_end);
  iteration.set_boundary_ns(static_cast<int64_t>(start.api_ns()));
  iteration.set_start_ns(start.gpu_ns() != 0 ? start.gpu_ns() : iteration.boundary_ns());
  int64_t duration_ns = 0, other_ns = 0;
  if (complete) {
    duration_ns = between(start.gpu_ns(), end.gpu_ns());
    iteration.set_gpu_time(true);
    if (other.gpu_ns() != 0) other_ns = between(other.gpu_ns(), start.gpu_ns());
  } else if (has_end && start.waited() && end.waited()) {
    duration_ns = between(start.api_ns(), end.api_ns());
    if (other.api_ns() != 0) other_ns = between(other.api_ns(), start.api_ns());
  }
  if (!has_end && done.host_time() && state_.others() > 0) {
    duration_ns = between(start.api_ns(), done.step_ns());
    iteration.set_rest_ns(LongestRest());
  }
  if (done.clock_set() || ClockSetBetween(start, has_end ? end : start)) {
    iteration.set_distorted(true);
    duration_ns = other_ns = 0;
  }
  if (other.api_ns() != 0 && ClockSetBetween(other, start)) other_ns = 0;
  iteration.set_duration_ns(std::max<int64_t>(duration_ns, 0));  // reversed stamps: unknown
  iteration.set_other_duration_ns(other_ns);
}

void IterationBuilder::NoteStretch(const PendingIteration& done, FinishedIteration& iteration) {
  BuilderState& s = state_;
  const bool next = iteration.number() == s.stretch_next() && iteration.other_batches() == 0;
  s.set_stretch_next(iteration.number() + 1);
  if (done.start().waited()) {
    s.set_stretch_start_ns(done.start().api_ns());
    s.set_stretch(0);
  } else if (!next) {
    s.set_stretch_start_ns(0);
  }
  const bool usable = iteration.duration_ns() == 0 && !iteration.distorted() &&
                      iteration.config_id() == 0 && done.has_end() && s.stretch() < kMaxStretch;
  if (!usable) s.set_stretch_start_ns(0);
  if (s.stretch_start_ns() == 0) return;
  s.set_stretch(s.stretch() + 1);
  if (!done.end().waited() || done.end().api_ns() <= s.stretch_start_ns()) return;
  iteration.set_stretch(s.stretch());
  iteration.set_stretch_ns(static_cast<int64_t>(done.end().api_ns() - s.stretch_start_ns()));
  s.set_stretch_start_ns(0);
}

void IterationBuilder::Add(FinishedIteration iteration) {
  state_.set_number(iteration.number() + 1);
  finished_.push_back(std::move(iteration));
}

std::vector<FinishedIteration> IterationBuilder::TakeFinished() {
  return std::exchange(finished_, {});
}

BuilderState IterationBuilder::Save() const {
  BuilderState copy = state_;
  if (copy.has_start()) Stamp(copy.mutable_start());
  if (copy.has_other()) Stamp(copy.mutable_other());
  for (const PendingIteration& pending : pending_) {
    PendingIteration& saved = *copy.add_pending();
    saved = pending;
    Stamp(saved);
  }
  return copy;
}

void IterationBuilder::Load(const BuilderState& state) {
  state_ = state;
  state_.clear_pending();
  pending_.assign(state.pending().begin(), state.pending().end());
}

}  // namespace seqpoint::jobs
