#include "injection/iterations/watch_switch.h"

namespace seqpoint::inject {

using abi::Level;
using Share = CuptiOwnership::Share;

uint32_t WatchSwitch::WantedOps() const {
  const bool calls = parts_.ownership->has_calls();
  if (parts_.state->level == Level::kLearn) return calls ? kAllOps : kHostOps;
  const abi::Rule& rule = parts_.state->matcher.rule();
  const bool traces = parts_.state->level == Level::kTrace;
  if ((parts_.state->level != Level::kMark && !traces) || rule.generation == 0) return 0;
  // Half a rule would find other iterations.
  if (!calls) return NeedsDriver(rule) ? 0 : rule.watched_ops & kHostOps;
  // Until it is known whether work comes before the lengths, work is watched, too; the matcher
  // looks only at what the rule names.
  const bool works = parts_.window->probing() || parts_.window->of_kernels();
  const bool names =
      (traces || parts_.window->kind() == Measurement::Kind::kTrace) && NamesLaunches();
  return ((rule.watched_ops & ~parts_.steps->spared_ops()) | (rule.clock.op == 0 ? kWaitOps : 0) |
          (works ? kWorkOps : 0) | (names ? OpBit(abi::Op::kLaunch) : 0)) &
         kAllOps;
}

uint32_t WatchSwitch::TraceKinds() const {
  return kKindsOfTrace | KindOfClock(parts_.state->matcher.rule());
}

// Activity kinds outside of windows. At *mark* the kind of the rule's clock event, if that is a
// rare one: its GPU start is the time of the iteration.
uint32_t WatchSwitch::WantedKinds() const {
  const Share share = parts_.ownership->share();
  if (share == Share::kNothing) return 0;
  if (parts_.state->level == Level::kTrace) return TraceKinds();
  // Without calls nothing joins the records of single events with them.
  if (share == Share::kRecords) return 0;
  if (parts_.state->level == Level::kLearn) return kKindsOfLearn;
  if (parts_.state->level != Level::kMark) return 0;
  // A graph that is instantiated while the kind is off leaves no record in any trace window after
  // (CUPTI user guide 2.3.7.5), so the kind is never off.
  return kKindGraph | KindOfClock(parts_.state->matcher.rule());
}

void WatchSwitch::Apply(bool may_wait) {
  abi::WindowEvent window = {};
  window.begin_ns = parts_.clock->NowNs();
  uint32_t kinds = 0;
  bool timed_by_graphs = false;
  {
    LockGuard lock(&parts_.state->lock);
    applied_kinds_ = WantedKinds();
    kinds = parts_.window->kind() == Measurement::Kind::kTrace ? TraceKinds() : applied_kinds_;
    window.iteration = parts_.state->matcher.iteration();
    window.level = static_cast<uint8_t>(parts_.state->level);
    timed_by_graphs = applied_kinds_ != 0 && parts_.state->has_rule() &&
                      KindOfClock(parts_.state->matcher.rule()) == kKindGraph;
  }
  parts_.callbacks->EnableOps(parts_.state->watched.load(std::memory_order_relaxed));
  // Waiting for the GPU would break a capture that is under way.
  const bool changed =
      parts_.activity->SetKinds(kinds, may_wait && !parts_.captures->MayBeUnderWay());
  if (timed_by_graphs) parts_.activity->SayThatGraphsTellNoTimes();
  if (!changed) return;
  window.end_ns = parts_.clock->NowNs();
  window.stopped_ns = may_wait ? window.end_ns - window.begin_ns : 0;
  parts_.ring->WriteEvent(abi::EventType::kWindow, &window, sizeof(window));
  LockGuard lock(&parts_.state->lock);
  parts_.state->held_ns += window.stopped_ns;
}

void WatchSwitch::WatchLaunches() {
  {
    LockGuard lock(&parts_.state->lock);
    Update();
  }
  parts_.callbacks->EnableOps(parts_.state->watched.load(std::memory_order_relaxed));
}

}  // namespace seqpoint::inject
