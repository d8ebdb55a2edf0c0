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
  LockGuard guard(&parts_.state->lock);
  parts_.state->boundary_monotonic_ns = start_ns_;
  // Processes draw other lots, and those of the next run are others again.
  parts_.state->lots.Seed(start_ns_ ^ static_cast<uint64_t>(getpid()) << 32);
  parts_.state->level = Level::kLearn;
  parts_.state->learning.store(true, std::memory_order_relaxed);
  parts_.masks->SetWish(true, 0, 0);
  parts_.watch->Update();
  WriteRule(0, 0);
}

void LevelSwitch::Perform(CUcontext known, const DeferredActions& actions) {
  if (actions.close) parts_.borders->Close(known);
  if (actions.open) parts_.borders->Open(known);
  if (actions.apply) Apply(true, actions.boundary);
  parts_.token->GiveBack();
}

void LevelSwitch::Tick() {
  IterationState* const state = parts_.state;
  const uint64_t now_ns = MonotonicNs();
  const bool orphaned = parts_.control->LooksOrphaned(now_ns, start_ns_);
  {
    LockGuard lock(&state->lock);
    if (parts_.token->stopped() || parts_.token->taken()) return;
    // Without a rule every call counts as progress, else only a boundary: a rule that does not fit
    // any more must not keep its successor out.
    if (!state->has_rule() && state->calls != ticked_calls_) {
      ticked_calls_ = state->calls;
      state->boundary_monotonic_ns = now_ns;
    }
    const bool watching = state->watched.load(std::memory_order_relaxed) != 0;
    const bool loop_runs = watching && now_ns - state->boundary_monotonic_ns < kIdleNs;
    // A range that could not be closed when the watching ended.
    const bool left_open = !watching && parts_.window->open() && parts_.captures->count() == 0;
    if (orphaned == parts_.control->orphaned() && !left_open &&
        (loop_runs || !parts_.control->Changed())) {
      return;
    }
    parts_.control->SetOrphaned(orphaned);
    parts_.token->Take();
  }
  Apply(false, false);
  parts_.token->GiveBack();
}

void LevelSwitch::Apply(bool on_application_thread, bool at_boundary) {
  IterationState* const state = parts_.state;
  const bool news = parts_.control->Update();
  const abi::Control& wanted = parts_.control->wanted();
  DeferredActions actions = {};
  bool same_iteration = at_boundary;
  {
    LockGuard lock(&state->lock);
    if (parts_.token->stopped()) return;
    const Level level = parts_.control->WantedLevel();
    const bool new_rule = wanted.rule.generation != state->matcher.rule().generation;
    const bool watching = IsWatching(level);
    if (parts_.window->open() && (new_rule || !watching)) {
      parts_.window->Spoil();
      if (parts_.captures->count() == 0)
        parts_.window->End(&actions);  // else at the next boundary, or by Tick
    }
    if (new_rule) {  // in the middle of a running loop
      state->matcher.SetRule(wanted.rule, state->matcher.iteration(), true);
      parts_.steps->BeginRule(wanted.rule);
      parts_.window->BeginRule(wanted.rule);
    }
    parts_.window->ApplyPlan(wanted);
    if (new_rule || level != state->level) {
      // Without a GPU nothing is switched that could take time; but while nothing was watched,
      // iterations passed.
      const bool watched = IsWatching(state->level);
      state->distorted =
          state->distorted || !watching || !watched || !parts_.ownership->has_nothing_to_leave();
      state->after_hole = state->after_hole || !watched;
      parts_.steps->OnHole();
      same_iteration = false;
      state->level = level;
      WriteRule(wanted.rule.generation, parts_.ring->header()->call_sequence);
    }
    state->learning.store(level == Level::kLearn, std::memory_order_relaxed);
    state->matching.store(wanted.rule.generation != 0, std::memory_order_relaxed);
    parts_.watch->Update();
    parts_.masks->SetWish(watching, wanted.channel_period, wanted.channel_phase);
    parts_.ownership->SetReleaseWanted(level == Level::kReleased);
  }
  if (actions.close) parts_.borders->Close(nullptr);
  parts_.watch->Apply(on_application_thread);
  if (same_iteration) {
    // The thread that begins the iteration is still at its begin: nothing of it has passed unseen.
    LockGuard lock(&state->lock);
    parts_.steps->OnSwitched();
  }
  if (news) parts_.helper->Wake();
}

// Holds the lock.
void LevelSwitch::WriteRule(uint32_t generation, uint64_t call_sequence) {
  const IterationState& state = *parts_.state;
  const abi::RuleEvent event = {.api_ns = parts_.clock->NowNs(),
                                .call_sequence = call_sequence,
                                .next_iteration = state.matcher.iteration(),
                                .rule_generation = generation,
                                .level = static_cast<uint8_t>(state.level)};
  parts_.ring->WriteEvent(abi::EventType::kRule, &event, sizeof(event));
}

}  // namespace seqpoint::inject
