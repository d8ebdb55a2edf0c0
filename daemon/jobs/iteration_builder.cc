#include "daemon/jobs/iteration_builder.h"

#include <algorithm>
#include <utility>

namespace seqpoint::jobs {

void IterationBuilder::OnBoundary(const abi::BoundaryEvent& event) {
  State& s = state_;
  if (s.has_number && event.iteration != s.number) {
    // A step or boundary was lost with a full lane. The numbers still tell how many iterations
    // passed; what lies in the gap has no begin or no end and is left out.
    if (event.iteration > s.number) lost_iterations_ += event.iteration - s.number;
    s.has_begin = s.waited = false;
    s.candidates = 0;
    s.open = {};
    s.early_clock = 0;
    DropUnended();
  }
  s.has_number = true;
  s.number = event.iteration;

  // A clock event between the step and the first candidate stands for that candidate. Where the
  // host does the work itself all of it is done at every boundary.
  const Candidate candidate{
      .api_ns = event.api_ns,
      .call_sequence = event.call_sequence,
      .correlation_id = std::exchange(s.early_clock, 0),
      .waited = std::exchange(s.waited, false) || (event.flags & abi::kHostTime) != 0};
  if (!s.pending.empty() && !s.pending.back().has_end) {
    // The flag speaks of the iteration before the boundary.
    if (event.flags & abi::kDistorted) s.pending.back().iteration.distorted = true;
    Close(candidate);
  }
  s.host_time = (event.flags & abi::kHostTime) != 0;
  if (s.candidates == 0) s.other = candidate;
  ++s.candidates;
  s.begin = candidate;
  s.has_begin = true;
  s.open.iteration.micro_lengths.clear();
  s.open.micro_valid = ~0u;
}

void IterationBuilder::DropUnended() {
  if (state_.pending.empty() || state_.pending.back().has_end) return;
  state_.pending.pop_back();
  ++lost_iterations_;
}

void IterationBuilder::OnDecision(const abi::DecisionEvent& event) {
  State& s = state_;
  if (!s.has_number || event.iteration != s.number) return;
  FinishedIteration& open = s.open.iteration;
  open.length[0] = event.length[0];
  open.length[1] = event.length[1];
  open.valid = event.valid;
  if (event.config_id != 0) open.config_id = event.config_id;
}

void IterationBuilder::OnClock(const abi::ClockEvent& event) {
  State& s = state_;
  if (!s.has_number || event.iteration != s.number) return;
  if (!s.has_begin) {
    s.early_clock = event.correlation_id;
    return;
  }
  if (s.begin.correlation_id != 0) return;
  s.begin.correlation_id = event.correlation_id;
  if (s.candidates == 1) s.other.correlation_id = event.correlation_id;
  if (!s.pending.empty() && s.pending.back().has_end &&
      s.pending.back().end.call_sequence == s.begin.call_sequence &&
      s.pending.back().end.correlation_id == 0) {
    s.pending.back().end.correlation_id = event.correlation_id;
  }
  Resolve(false);
}

void IterationBuilder::OnMicroBatch(const abi::MicroBatchEvent& event) {
  State& s = state_;
  if (!s.has_begin || event.iteration != s.number) return;
  FinishedIteration& open = s.open.iteration;
  // One that is missing leaves the others out, too: OnStep counts them.
  if (event.index != open.micro_lengths.size() || event.index >= kMaxMicroBatches) return;
  open.micro_lengths.push_back({event.length[0], event.length[1]});
  s.open.micro_valid &= event.valid;
}

void IterationBuilder::OnStep(const abi::StepEvent& event) {
  State& s = state_;
  if (!s.has_begin || event.iteration != s.number) {
    if (s.has_number && event.iteration >= s.number) {
      lost_iterations_ += event.iteration - s.number + 1;
      s.number = event.iteration + 1;
    }
    DropUnended();  // the boundary that ended it is lost
    s.early_clock = 0;
    s.has_begin = s.waited = false;
    s.candidates = 0;
    s.open = {};
    return;
  }
  Pending done = std::move(s.open);
  FinishedIteration& iteration = done.iteration;
  iteration.number = event.iteration;
  iteration.length[0] = event.length[0];
  iteration.length[1] = event.length[1];
  iteration.valid = event.valid;
  iteration.micro_batches = event.micro_batches;
  const bool whole = iteration.micro_lengths.size() == event.micro_batches &&
                     (done.micro_valid & event.valid) == event.valid;
  if (!whole) iteration.micro_lengths.clear();
  iteration.call_sequence = s.begin.call_sequence;
  done.begin = s.begin;
  iteration.other_batches = s.candidates - 1;
  if (s.candidates > 1) done.other = s.other;
  done.step_ns = event.api_ns;
  done.host_time = s.host_time;
  s.pending.push_back(std::move(done));
  s.open = {};
  s.has_begin = false;
  s.candidates = 0;
  s.number = event.iteration + 1;
  Resolve(false);
}

void IterationBuilder::OnSync(const abi::SyncEvent&) { state_.waited = true; }

void IterationBuilder::OnClockStep(const abi::ClockStepEvent& event) {
  state_.clock_steps.push_back({event.first_call, event.last_call});
  if (state_.clock_steps.size() > kMaxClockSteps) state_.clock_steps.pop_front();
  for (Pending& pending : state_.pending) pending.clock_set = true;
}

bool IterationBuilder::ClockSetBetween(const Candidate& begin, const Candidate& end) const {
  return std::any_of(
      state_.clock_steps.begin(), state_.clock_steps.end(), [&](const ClockStep& step) {
        return begin.call_sequence <= step.last_call && end.call_sequence >= step.first_call;
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

void IterationBuilder::Finish(bool begun_counts) {
  State& s = state_;
  if (begun_counts && s.has_begin) {
    Pending last = std::move(s.open);
    last.iteration.number = s.number++;
    last.iteration.call_sequence = s.begin.call_sequence;
    last.iteration.micro_lengths.clear();
    last.begin = s.begin;
    s.pending.push_back(std::move(last));
    s.open = {};
    s.has_begin = false;
    s.candidates = 0;
  }
  Resolve(true);
}

void IterationBuilder::Close(const Candidate& end) {
  Pending& last = state_.pending.back();
  last.end = end;
  last.has_end = true;
  if (last.host_time && end.api_ns >= last.step_ns) {
    State& s = state_;
    s.longest_rest_ns = std::max(s.longest_rest_ns, end.api_ns - last.step_ns);
    const uint64_t duration_ns = end.api_ns - last.begin.api_ns;
    if (s.first_ns == 0) {
      s.first_ns = duration_ns;
    } else {
      ++s.others;
      s.others_ns += duration_ns;
    }
  }
  Resolve(false);
}

int64_t IterationBuilder::LongestRest() const {
  const State& s = state_;
  // Work that is done for the first time takes longer: before the first boundary as much as behind
  // it, but no longer than an iteration.
  const uint64_t mean_ns = s.others_ns / s.others;
  const uint64_t slower_ns = s.first_ns > mean_ns ? std::min(s.first_ns - mean_ns, mean_ns) : 0;
  return static_cast<int64_t>(2 * s.longest_rest_ns + slower_ns);
}

int64_t IterationBuilder::StampOf(uint32_t correlation_id) const {
  const auto it = stamps_.find(correlation_id);
  return it == stamps_.end() ? 0 : it->second;
}

void IterationBuilder::Resolve(bool give_up) {
  std::deque<Pending>& pending = state_.pending;
  while (!pending.empty()) {
    Pending& first = pending.front();
    for (Candidate* candidate : {&first.begin, &first.end, &first.other}) {
      if (candidate->gpu_ns == 0) candidate->gpu_ns = StampOf(candidate->correlation_id);
    }
    const bool complete = first.has_end && first.begin.gpu_ns != 0 && first.end.gpu_ns != 0;
    // A stamp is late by a flush of CUPTI's buffers, which may be many short iterations.
    const bool stamps_expected = first.begin.correlation_id != 0 && first.end.correlation_id != 0;
    const bool overdue = pending.back().begin.api_ns > first.begin.api_ns + kPatienceNs;
    const size_t patience = !stamps_expected ? kMaxUnstamped : overdue ? kMinPending : kMaxPending;
    if (!complete && !give_up && pending.size() <= patience) return;

    FinishedIteration& iteration = first.iteration;
    iteration.ended = first.has_end;
    iteration.boundary_ns = static_cast<int64_t>(first.begin.api_ns);
    iteration.start_ns = first.begin.gpu_ns != 0 ? first.begin.gpu_ns : first.begin.api_ns;
    if (complete) {
      iteration.duration_ns = first.end.gpu_ns - first.begin.gpu_ns;
      iteration.gpu_time = true;
      if (first.other.gpu_ns != 0) {
        iteration.other_duration_ns = first.begin.gpu_ns - first.other.gpu_ns;
      }
    } else if (first.has_end && first.begin.waited && first.end.waited) {
      iteration.duration_ns = static_cast<int64_t>(first.end.api_ns - first.begin.api_ns);
      if (first.other.api_ns != 0) {
        iteration.other_duration_ns = static_cast<int64_t>(first.begin.api_ns - first.other.api_ns);
      }
    }
    if (!first.has_end && first.host_time && state_.others > 0) {
      iteration.duration_ns = static_cast<int64_t>(first.step_ns - first.begin.api_ns);
      iteration.rest_ns = LongestRest();
    }
    if (first.clock_set || ClockSetBetween(first.begin, first.has_end ? first.end : first.begin)) {
      iteration.distorted = true;
      iteration.duration_ns = iteration.other_duration_ns = 0;
    }
    if (first.other.api_ns != 0 && ClockSetBetween(first.other, first.begin)) {
      iteration.other_duration_ns = 0;
    }
    if (iteration.duration_ns < 0) iteration.duration_ns = 0;  // reversed stamps: unknown
    NoteStretch(first, iteration);
    finished_.push_back(std::move(iteration));
    pending.pop_front();
  }
}

void IterationBuilder::NoteStretch(const Pending& done, FinishedIteration& iteration) {
  State& s = state_;
  const bool next = iteration.number == s.stretch_next && iteration.other_batches == 0;
  s.stretch_next = iteration.number + 1;
  if (done.begin.waited) {
    s.stretch_begin_ns = done.begin.api_ns;
    s.stretch = 0;
  } else if (!next) {
    s.stretch_begin_ns = 0;
  }
  const bool usable = iteration.duration_ns == 0 && !iteration.distorted &&
                      iteration.config_id == 0 && done.has_end && s.stretch < kMaxStretch;
  if (!usable) s.stretch_begin_ns = 0;
  if (s.stretch_begin_ns == 0) return;
  ++s.stretch;
  if (!done.end.waited || done.end.api_ns <= s.stretch_begin_ns) return;
  iteration.stretch = s.stretch;
  iteration.stretch_ns = static_cast<int64_t>(done.end.api_ns - s.stretch_begin_ns);
  s.stretch_begin_ns = 0;
}

std::vector<FinishedIteration> IterationBuilder::TakeFinished() {
  return std::exchange(finished_, {});
}

IterationBuilder::State IterationBuilder::SaveState() const {
  State copy = state_;
  copy.lost_iterations = lost_iterations_;
  // Stamps that arrived are folded into the candidates, so that they need not be stored.
  for (Pending& pending : copy.pending) {
    for (Candidate* candidate : {&pending.begin, &pending.end, &pending.other}) {
      if (candidate->gpu_ns == 0) candidate->gpu_ns = StampOf(candidate->correlation_id);
    }
  }
  for (Candidate* candidate : {&copy.begin, &copy.other}) {
    if (candidate->gpu_ns == 0) candidate->gpu_ns = StampOf(candidate->correlation_id);
  }
  return copy;
}

void IterationBuilder::LoadState(State state) {
  lost_iterations_ = state.lost_iterations;
  state_ = std::move(state);
}

}  // namespace seqpoint::jobs
