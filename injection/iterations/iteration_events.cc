#include "injection/iterations/iteration_events.h"

namespace seqpoint::inject {

using abi::Op;

// Another thread's wait may be for what was launched before it began, while the boundaries went on.
bool IterationEvents::WaitedForWork(const Call& call) const {
  return (boundary_thread_ == 0 || boundary_thread_ == ThreadId()) &&
         waits_.Covers(call.op, call.stream, call.event);
}

void IterationEvents::WriteSync(const Call& call) {
  const abi::SyncEvent sync = {parts_.state->matcher.iteration(),
                               call.begin_ns,
                               call.end_ns,
                               static_cast<uint8_t>(call.op),
                               {}};
  parts_.ring->WriteEvent(abi::EventType::kSync, &sync, sizeof(sync));
}

void IterationEvents::NoteClock(uint64_t number) {
  abi::ClockStepEvent step;
  if (!parts_.clock->TakeStep(number, &step)) return;
  parts_.ring->WriteEvent(abi::EventType::kClockStep, &step, sizeof(step));
}

void IterationEvents::OnMatched(const Call& call, uint64_t number, uint32_t flags,
                                DeferredActions* actions) {
  IterationState* const state = parts_.state;
  const abi::MatchResult& result = state->matcher.result();
  const uint64_t now_ns = call.begin_ns != 0 ? call.begin_ns : parts_.clock->NowNs();
  if ((flags & abi::kMatchedMicroLengths) != 0) {
    parts_.ring->WriteEvent(abi::EventType::kMicroBatch, &result.micro_batch,
                            sizeof(result.micro_batch));
  }
  if ((flags & abi::kMatchedStep) != 0) OnStep(call, now_ns);

  const bool boundary = (flags & abi::kMatchedBoundary) != 0;
  const bool decision = (flags & abi::kMatchedDecision) != 0;
  if (boundary) {
    boundary_thread_ = ThreadId();
    waits_.OnBoundary();
    parts_.steps->OnBoundary();
    parts_.masks->OnBoundary(result.iteration);
    parts_.window->OnBoundary(may_switch(), actions);
  }
  const bool ended = actions->close;
  if (boundary || decision) parts_.window->Decide(result, flags, now_ns, may_switch(), actions);
  if (parts_.counters->samples()) TellSampler(boundary, now_ns, ended, *actions);
  if (boundary) {
    NoteClock(number);
    actions->boundary = true;
    WriteBoundary(call, number, flags, now_ns);
    state->distorted = actions->close || parts_.window->open() || parts_.counters->pm().enabled();
    state->boundary_monotonic_ns = MonotonicNs();
    const bool known = state->boundary_ns != 0 && now_ns > state->boundary_ns;
    state->iteration_ns = known ? now_ns - state->boundary_ns : 0;
    state->boundary_ns = now_ns;
    // Operations that must be watched, or need not be any more, are switched here, too.
    if (may_switch()) {
      actions->apply = parts_.control->Changed() ||
                       parts_.watch->WantedOps() != state->watched.load(std::memory_order_relaxed);
    }
  }
  const bool measured = parts_.window->Measures(result.iteration);
  if (decision) {
    WriteDecision(result.iteration, now_ns, result.length, result.valid,
                  measured ? parts_.window->config_id() : abi::kConfigNone);
  } else if (actions->open && measured) {  // a rule without lengths
    constexpr int64_t kNone[2] = {0, 0};
    WriteDecision(result.iteration, now_ns, kNone, 0, parts_.window->config_id());
  }
  if ((flags & abi::kMatchedClock) != 0) {
    if (parts_.counters->samples()) parts_.counters->pm().OnClock(call.correlation_id);
    const abi::ClockEvent event = {result.iteration, now_ns, call.correlation_id, 0};
    parts_.ring->WriteEvent(abi::EventType::kClock, &event, sizeof(event));
    if (parts_.activity->records(KindOfClock(state->matcher.rule()))) {
      timed_events_.fetch_add(1, std::memory_order_relaxed);
    }
  }
}

void IterationEvents::OnStep(const Call& call, uint64_t now_ns) {
  const abi::MatchResult& result = parts_.state->matcher.result();
  parts_.steps->OnStep();
  const Op op = static_cast<Op>(parts_.state->matcher.rule().step.op);
  if (op == Op::kLaunch || op == Op::kGraphLaunch) waits_.OnStep(call.stream);
  if (parts_.window->OnStep(result)) {
    WriteDecision(result.step.iteration, now_ns, result.step.length, result.step.valid,
                  parts_.window->config_id());
  }
  abi::StepEvent step = result.step;
  step.api_ns = now_ns;
  parts_.ring->WriteEvent(abi::EventType::kStep, &step, sizeof(step));
}

// PM sampling wants to know when the iteration that is measured begins and ends. `ended`: one is
// over.
void IterationEvents::TellSampler(bool boundary, uint64_t now_ns, bool ended,
                                  const DeferredActions& actions) {
  PmSampler* sampler = &parts_.counters->pm();
  const bool recorded = parts_.activity->records(KindOfClock(parts_.state->matcher.rule()));
  if (boundary) sampler->OnBoundary(now_ns);
  if (ended && parts_.window->closing()->kind == Measurement::Kind::kCounters) {
    sampler->ExpectEnd(recorded);
  }
  if (actions.open && parts_.window->kind() == Measurement::Kind::kCounters) {
    sampler->ExpectBegin(recorded);
  }
}

void IterationEvents::WriteBoundary(const Call& call, uint64_t number, uint32_t flags,
                                    uint64_t now_ns) {
  abi::BoundaryEvent event = {};
  event.iteration = parts_.state->matcher.result().iteration;
  event.api_ns = now_ns;
  event.call_sequence = number;
  event.correlation_id = call.correlation_id;
  event.rule_generation = parts_.state->matcher.rule().generation;
  event.level = static_cast<uint8_t>(parts_.state->level);
  if ((flags & abi::kMatchedConfirmed) != 0) event.flags |= abi::kConfirmed;
  if (parts_.state->distorted) event.flags |= abi::kDistorted;
  if ((call.flags & abi::kCallHostTime) != 0) event.flags |= abi::kHostTime;
  event.stopped_ns = parts_.state->held_ns < UINT32_MAX
                         ? static_cast<uint32_t>(parts_.state->held_ns)
                         : UINT32_MAX;
  parts_.ring->WriteEvent(abi::EventType::kBoundary, &event, sizeof(event));
  parts_.state->held_ns = 0;
}

void IterationEvents::WriteDecision(uint64_t iteration, uint64_t now_ns, const int64_t length[2],
                                    uint32_t valid, uint16_t config_id) {
  const abi::DecisionEvent event = {iteration, now_ns, {length[0], length[1]}, valid, config_id, 0};
  parts_.ring->WriteEvent(abi::EventType::kDecision, &event, sizeof(event));
}

}  // namespace seqpoint::inject
