#include "injection/iterations/level_switch.h"

#include <unistd.h>

namespace seqpoint::inject {
namespace {

// Without a boundary for so long, the helper thread applies what the daemon wants.
constexpr uint64_t kIdleNs = 1'000'000'000;

}  // namespace

using abi::Level;

void LevelSwitch::Start() {
  start_ns_ = MonotonicNs();
  LockGuard guard(&state_->lock);
  state_->boundary_monotonic_ns = start_ns_;
  // Processes draw other lots, and those of the next run are others again.
  state_->lots.Seed(start_ns_ ^ static_cast<uint64_t>(getpid()) << 32);
  state_->level = Level::kLearn;
  state_->learning.store(true, std::memory_order_relaxed);
  watch_->Update();
  WriteRule(0, 0);
}

void LevelSwitch::Perform(CUcontext known, const DeferredActions& actions) {
  if (actions.close) borders_->Close(known);
  if (actions.open) borders_->Open(known);
  if (actions.apply) Apply(true, actions.boundary);
  token_->GiveBack();
}

void LevelSwitch::Tick() {
  const uint64_t now_ns = MonotonicNs();
  const bool orphaned = control_->LooksOrphaned(now_ns, start_ns_);
  {
    LockGuard lock(&state_->lock);
    if (token_->stopped() || token_->taken()) return;
    // Without a rule every call counts as progress, else only a boundary: a rule that does not fit
    // any more must not keep its successor out.
    if (!state_->has_rule() && state_->calls != ticked_calls_) {
      ticked_calls_ = state_->calls;
      state_->boundary_monotonic_ns = now_ns;
    }
    const bool watching = state_->watched.load(std::memory_order_relaxed) != 0;
    const bool loop_runs = watching && now_ns - state_->boundary_monotonic_ns < kIdleNs;
    // A range that could not be closed when the watching ended.
    const bool left_open = !watching && window_->open() && captures_->count() == 0;
    if (orphaned == control_->orphaned() && !left_open && (loop_runs || !control_->Changed())) {
      return;
    }
    control_->SetOrphaned(orphaned);
    token_->Take();
  }
  Apply(false, false);
  token_->GiveBack();
}

void LevelSwitch::Apply(bool on_application_thread, bool at_boundary) {
  const bool news = control_->Update();
  const abi::Control& wanted = control_->wanted();
  DeferredActions actions = {};
  bool same_iteration = at_boundary;
  {
    LockGuard lock(&state_->lock);
    if (token_->stopped()) return;
    const Level level = control_->WantedLevel();
    const bool new_rule = wanted.rule.generation != state_->matcher.rule().generation;
    const bool watching = IsWatching(level);
    if (window_->open() && (new_rule || !watching)) {
      window_->Spoil();
      if (captures_->count() == 0) window_->End(&actions);  // else at the next boundary, or by Tick
    }
    if (new_rule) {  // in the middle of a running loop
      state_->matcher.SetRule(wanted.rule, state_->matcher.iteration(), true);
      steps_->BeginRule(wanted.rule);
      window_->BeginRule(wanted.rule);
    }
    window_->ApplyPlan(wanted);
    if (new_rule || level != state_->level) {
      // Without a GPU nothing is switched that could take time; but while nothing was watched,
      // iterations passed.
      const bool watched = IsWatching(state_->level);
      state_->distorted =
          state_->distorted || !watching || !watched || !ownership_->has_nothing_to_leave();
      state_->after_hole = state_->after_hole || !watched;
      steps_->OnHole();
      same_iteration = false;
      state_->level = level;
      WriteRule(wanted.rule.generation, ring_->header()->call_sequence);
    }
    state_->learning.store(level == Level::kLearn, std::memory_order_relaxed);
    state_->matching.store(wanted.rule.generation != 0, std::memory_order_relaxed);
    watch_->Update();
    ownership_->SetReleaseWanted(level == Level::kReleased);
  }
  if (actions.close) borders_->Close(nullptr);
  watch_->Apply(on_application_thread);
  if (same_iteration) {
    // The thread that begins the iteration is still at its begin: nothing of it has passed unseen.
    LockGuard lock(&state_->lock);
    steps_->OnSwitched();
  }
  if (news) helper_->Wake();
}

// Holds the lock.
void LevelSwitch::WriteRule(uint32_t generation, uint64_t call_sequence) {
  abi::RuleEvent event = {};
  event.api_ns = clock_->NowNs();
  event.call_sequence = call_sequence;
  event.next_iteration = state_->matcher.iteration();
  event.rule_generation = generation;
  event.level = static_cast<uint8_t>(state_->level);
  ring_->WriteEvent(abi::EventType::kRule, &event, sizeof(event));
}

}  // namespace seqpoint::inject
