#include "injection/iterations/watch_switch.h"

namespace seqpoint::inject {

using abi::Level;
using Share = CuptiOwnership::Share;

uint32_t WatchSwitch::WantedOps() const {
  const bool calls = ownership_->has_calls();
  if (state_->level == Level::kLearn) return calls ? kAllOps : kHostOps;
  const abi::Rule& rule = state_->matcher.rule();
  const bool traces = state_->level == Level::kTrace;
  if ((state_->level != Level::kMark && !traces) || rule.generation == 0) return 0;
  // Half a rule would find other iterations.
  if (!calls) return NeedsDriver(rule) ? 0 : rule.watched_ops & kHostOps;
  // Until it is known whether work comes before the lengths, work is watched, too; the matcher
  // looks only at what the rule names.
  const bool works = window_->probing() || window_->of_kernels();
  const bool names = (traces || window_->kind() == Measurement::Kind::kTrace) && NamesLaunches();
  return ((rule.watched_ops & ~steps_->spared_ops()) | (rule.clock.op == 0 ? kWaitOps : 0) |
          (works ? kWorkOps : 0) | (names ? OpBit(abi::Op::kLaunch) : 0)) &
         kAllOps;
}

// Of a graph that was instantiated while graphs were not recorded there is no record as long as
// they are (CUPTI user guide 2.3.7.2), but there are those of its kernels when they are not.
uint32_t WatchSwitch::TraceKinds() const {
  const uint32_t kinds = kKindsOfTrace | KindOfClock(state_->matcher.rule());
  return early_graphs_ ? kinds & ~kKindGraph : kinds;
}

bool WatchSwitch::HidesGraphs() const {
  return early_graphs_ && KindOfClock(state_->matcher.rule()) == kKindGraph;
}

// Activity kinds outside of windows.
uint32_t WatchSwitch::WantedKinds() const {
  const Share share = ownership_->share();
  if (share == Share::kNothing) return 0;
  if (state_->level == Level::kTrace) return TraceKinds();
  // Without calls nothing joins the records of single events with them.
  return share == Share::kRecords ? 0 : KindsOfLevel(state_->level, state_->matcher.rule());
}

void WatchSwitch::Apply(bool may_wait) {
  abi::WindowEvent window = {};
  window.begin_ns = clock_->NowNs();
  uint32_t kinds = 0;
  {
    LockGuard lock(&state_->lock);
    applied_kinds_ = WantedKinds();
    kinds = window_->kind() == Measurement::Kind::kTrace ? TraceKinds() : applied_kinds_;
    window.iteration = state_->matcher.iteration();
    window.level = static_cast<uint8_t>(state_->level);
    early_graphs_ = early_graphs_ || ((kinds & kKindGraph) == 0 && contexts_->any());
  }
  callbacks_->EnableOps(state_->watched.load(std::memory_order_relaxed));
  // Waiting for the GPU would break a capture that is under way.
  if (!activity_->SetKinds(kinds, may_wait && !captures_->MayBeUnderWay())) return;
  window.end_ns = clock_->NowNs();
  window.stopped_ns = may_wait ? window.end_ns - window.begin_ns : 0;
  ring_->WriteEvent(abi::EventType::kWindow, &window, sizeof(window));
  LockGuard lock(&state_->lock);
  state_->held_ns += window.stopped_ns;
}

void WatchSwitch::WatchLaunches() {
  {
    LockGuard lock(&state_->lock);
    Update();
  }
  callbacks_->EnableOps(state_->watched.load(std::memory_order_relaxed));
}

}  // namespace seqpoint::inject
