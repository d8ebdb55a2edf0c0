#include "injection/iterations/iteration_events.h"

namespace seqpoint::inject {

using abi::Op;

// Another thread's wait may be for what was launched before it began, while the boundaries went on.
bool IterationEvents::WaitedForWork(const Call& call) const {
  return (boundary_thread_ == 0 || boundary_thread_ == ThreadId()) &&
         waits_.Covers(call.op, call.stream, call.event);
}

void IterationEvents::WriteSync(const Call& call) {
  const abi::SyncEvent sync = {
      state_->matcher.iteration(), call.begin_ns, call.end_ns, static_cast<uint8_t>(call.op), {}};
  ring_->WriteEvent(abi::EventType::kSync, &sync, sizeof(sync));
}

void IterationEvents::NoteClock(uint64_t number) {
  abi::ClockStepEvent step;
  if (!clock_->TakeStep(number, &step)) return;
  ring_->WriteEvent(abi::EventType::kClockStep, &step, sizeof(step));
}

void IterationEvents::OnMatched(const Call& call, uint64_t number, uint32_t flags,
                                DeferredActions* actions) {
  const abi::MatchResult& result = state_->matcher.result();
  const uint64_t now_ns = call.begin_ns != 0 ? call.begin_ns : clock_->NowNs();
  if ((flags & abi::kMatchedMicroLengths) != 0) {
    const abi::MicroBatchEvent micro_batch = {result.micro_iteration,
                                              {result.micro_length[0], result.micro_length[1]},
                                              result.micro_valid,
                                              result.micro_index};
    ring_->WriteEvent(abi::EventType::kMicroBatch, &micro_batch, sizeof(micro_batch));
  }
  if ((flags & abi::kMatchedStep) != 0) OnStep(call, now_ns);

  const bool boundary = (flags & abi::kMatchedBoundary) != 0;
  const bool decision = (flags & abi::kMatchedDecision) != 0;
  if (boundary) {
    boundary_thread_ = ThreadId();
    waits_.OnBoundary();
    steps_->OnBoundary();
    window_->OnBoundary(may_switch(), actions);
  }
  const bool ended = actions->close;
  if (boundary || decision) window_->Decide(result, flags, now_ns, may_switch(), actions);
  if (counters_->samples()) TellSampler(boundary, now_ns, ended, *actions);
  if (boundary) {
    NoteClock(number);
    actions->boundary = true;
    WriteBoundary(call, number, flags, now_ns);
    state_->distorted = actions->close || window_->open() || counters_->pm().enabled();
    state_->boundary_monotonic_ns = MonotonicNs();
    state_->iteration_ns =
        state_->boundary_ns != 0 && now_ns > state_->boundary_ns ? now_ns - state_->boundary_ns : 0;
    state_->boundary_ns = now_ns;
    // What else must be watched, or need not be any more, is switched here, too.
    if (may_switch()) {
      actions->apply = control_->Changed() ||
                       watch_->WantedOps() != state_->watched.load(std::memory_order_relaxed);
    }
  }
  const bool measured = window_->Measures(result.iteration);
  if (decision) {
    WriteDecision(result.iteration, now_ns, result.length, result.valid,
                  measured ? window_->config_id() : abi::kConfigNone);
  } else if (actions->open && measured) {  // a rule without lengths
    constexpr int64_t kNone[2] = {0, 0};
    WriteDecision(result.iteration, now_ns, kNone, 0, window_->config_id());
  }
  if ((flags & abi::kMatchedClock) != 0) {
    if (counters_->samples()) counters_->pm().OnClock(call.correlation_id);
    const abi::ClockEvent event = {result.iteration, now_ns, call.correlation_id, 0};
    ring_->WriteEvent(abi::EventType::kClock, &event, sizeof(event));
    if (activity_->records(KindOfClock(state_->matcher.rule()))) {
      timed_events_.fetch_add(1, std::memory_order_relaxed);
    }
  }
}

void IterationEvents::OnStep(const Call& call, uint64_t now_ns) {
  const abi::MatchResult& result = state_->matcher.result();
  steps_->OnStep();
  const Op op = static_cast<Op>(state_->matcher.rule().step.op);
  if (op == Op::kLaunch || op == Op::kGraphLaunch) waits_.OnStep(call.stream);
  if (window_->OnStep(result)) {
    WriteDecision(result.step_iteration, now_ns, result.step_length, result.step_valid,
                  window_->config_id());
  }
  const abi::StepEvent step = {result.step_iteration,
                               now_ns,
                               {result.step_length[0], result.step_length[1]},
                               result.step_valid,
                               result.step_micro_batches};
  ring_->WriteEvent(abi::EventType::kStep, &step, sizeof(step));
}

// PM sampling wants to know when the iteration that is measured begins and ends. `ended`: one is
// over.
void IterationEvents::TellSampler(bool boundary, uint64_t now_ns, bool ended,
                                  const DeferredActions& actions) {
  PmSampler* sampler = &counters_->pm();
  const bool recorded = activity_->records(KindOfClock(state_->matcher.rule()));
  if (boundary) sampler->OnBoundary(now_ns);
  if (ended && window_->closing()->kind == Measurement::Kind::kCounters) {
    sampler->ExpectEnd(recorded);
  }
  if (actions.open && window_->kind() == Measurement::Kind::kCounters) {
    sampler->ExpectBegin(recorded);
  }
}

void IterationEvents::WriteBoundary(const Call& call, uint64_t number, uint32_t flags,
                                    uint64_t now_ns) {
  abi::BoundaryEvent event = {};
  event.iteration = state_->matcher.result().iteration;
  event.api_ns = now_ns;
  event.call_sequence = number;
  event.correlation_id = call.correlation_id;
  event.rule_generation = state_->matcher.rule().generation;
  event.level = static_cast<uint8_t>(state_->level);
  if ((flags & abi::kMatchedConfirmed) != 0) event.flags |= abi::kConfirmed;
  if (state_->distorted) event.flags |= abi::kDistorted;
  if ((call.flags & abi::kCallHostTime) != 0) event.flags |= abi::kHostTime;
  event.stopped_ns =
      state_->held_ns < UINT32_MAX ? static_cast<uint32_t>(state_->held_ns) : UINT32_MAX;
  ring_->WriteEvent(abi::EventType::kBoundary, &event, sizeof(event));
  state_->held_ns = 0;
}

void IterationEvents::WriteDecision(uint64_t iteration, uint64_t now_ns, const int64_t length[2],
                                    uint32_t valid, uint16_t config_id) {
  const abi::DecisionEvent event = {iteration, now_ns, {length[0], length[1]}, valid, config_id, 0};
  ring_->WriteEvent(abi::EventType::kDecision, &event, sizeof(event));
}

}  // namespace seqpoint::inject
