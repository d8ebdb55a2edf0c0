#include "injection/iterations/measurement_window.h"

namespace seqpoint::inject {
namespace {

// An iteration that is traced for its number has any lengths.
constexpr abi::PlanEntry kAnyLengths = {
    {INT64_MIN, INT64_MIN}, {INT64_MAX, INT64_MAX}, abi::kConfigTrace, 0, 1, 0};

}  // namespace

void MeasurementWindow::BeginRule(const abi::Rule& rule) {
  timing_.Begin(rule);
  speculative_.Reset();
}

void MeasurementWindow::ApplyPlan(const abi::Control& control) {
  plan_.Apply(control);
  traced_iteration_ = control.traced_iteration;
  speculative_.SetBudget(control.overhead_permille);
}

bool MeasurementWindow::OnStep(const abi::MatchResult& result) {
  if (!open() || open_.iteration != result.step.iteration) return false;
  const bool chosen_now = !open_.chosen && ChooseSpeculative(result.step.length, result.step.valid);
  open_.stepped = true;
  open_.length[0] = result.step.length[0];
  open_.length[1] = result.step.length[1];
  if (!open_.chosen || !Plan::Holds(open_.entry, result.step.length, result.step.valid)) Spoil();
  return chosen_now;
}

void MeasurementWindow::OnBoundary(bool may_switch, DeferredActions* actions) {
  timing_.OnBoundary();
  if (!open()) return;
  // Where it cannot be closed now it stays open to the next boundary, and is then worth nothing.
  if (may_switch) {
    End(actions);
  } else {
    Spoil();
  }
}

void MeasurementWindow::Decide(const abi::MatchResult& result, uint32_t flags, uint64_t now_ns,
                               bool may_switch, DeferredActions* actions) {
  const bool boundary = (flags & abi::kMatchedBoundary) != 0;
  const bool decision = (flags & abi::kMatchedDecision) != 0;
  const bool first = decision && timing_.OnDecision(boundary);
  const uint32_t length_count = state_->matcher.rule().length_count;
  if (boundary) operators_ = kNotWanted;
  if ((decision || length_count == 0) &&
      plan_.Wants(abi::kConfigOperators, result.length, decision ? result.valid : 0)) {
    operators_ = static_cast<int>(length_count);
    operators_length_[0] = result.length[0];
    operators_length_[1] = result.length[1];
  }
  if (open() && !open_.chosen && decision && !ChooseSpeculative(result.length, result.valid) &&
      may_switch) {
    Spoil();
    End(actions);
    return;
  }
  if (open() || !may_switch) return;

  bool speculative = false;
  const abi::PlanEntry* entry = ChooseEntry(result, boundary, first, now_ns, &speculative);
  if (entry == nullptr) return;
  open_ = {};
  open_.kind = entry->config_id == abi::kConfigTrace ? Kind::kTrace : Kind::kCounters;
  open_.speculative = speculative;
  open_.chosen = !speculative;
  open_.kernels = readiness_->OfKernels(entry->config_id);
  open_.iteration = result.iteration;
  open_.entry = *entry;
  if (!speculative) {
    plan_.Take(entry->entry_id);
    open_.length[0] = result.length[0];
    open_.length[1] = result.length[1];
  }
  state_->distorted = true;
  actions->open = true;
}

// The entry for which a window may open now; null: none.
const abi::PlanEntry* MeasurementWindow::ChooseEntry(const abi::MatchResult& result, bool boundary,
                                                     bool first, uint64_t now_ns,
                                                     bool* speculative) {
  const auto ready = [this](uint16_t config_id) { return readiness_->CanBegin(config_id); };
  if (boundary && traced_iteration_ == result.iteration + 1 && ready(abi::kConfigTrace)) {
    return &kAnyLengths;
  }
  if (first && (boundary || (!timing_.late() && !timing_.worked()))) {
    return plan_.Match(result.length, result.valid, 0, ready);
  }
  if (boundary && state_->matcher.rule().length_count == 0) {
    const int64_t none[2] = {0, 0};
    return plan_.Match(none, 0, 0, ready);
  }
  if (!boundary || !timing_.late() || !speculative_.MayOpen(now_ns)) return nullptr;
  *speculative = true;
  return plan_.Pending(ready, state_->lots.Draw());
}

// The lengths of an iteration whose window opened speculatively: does an entry want them?
bool MeasurementWindow::ChooseSpeculative(const int64_t length[2], uint32_t valid) {
  const abi::PlanEntry* entry =
      plan_.Match(length, valid, config_id(), [](uint16_t) { return true; });
  if (entry == nullptr) {
    speculative_.OnUnwanted(state_->lots.Draw());
    return false;
  }
  open_.entry = *entry;
  open_.chosen = true;
  plan_.Take(entry->entry_id);
  speculative_.OnWanted();
  return true;
}

void MeasurementWindow::End(DeferredActions* actions) {
  Abort();
  state_->distorted = true;
  actions->close = true;
}

void MeasurementWindow::Drop() {
  Abort();
  state_->distorted = true;
  if (closing_.chosen) plan_.GiveBack(closing_.entry.entry_id);
}

void MeasurementWindow::Abort() {
  closing_ = open_;
  open_ = {};
}

void MeasurementWindow::OnOpened(uint64_t begin_ns, uint64_t end_ns,
                                 const ActivityDecoder::Seen& seen) {
  open_.begin_ns = begin_ns;
  open_.stopped_ns = end_ns - begin_ns;
  open_.usual_ns = state_->iteration_ns;
  open_.seen = seen;
}

void MeasurementWindow::OnFailed(uint64_t end_ns) {
  if (closing_.chosen) plan_.GiveBack(closing_.entry.entry_id);
  if (closing_.speculative) speculative_.Charge(end_ns, closing_.stopped_ns);
}

bool MeasurementWindow::WantsCounters() const {
  LockGuard lock(&state_->lock);
  const auto can_count = [this](uint16_t config_id) { return readiness_->CanCount(config_id); };
  return open_.kind == Kind::kCounters || plan_.Pending(can_count, 0) != nullptr;
}

int MeasurementWindow::WantsOperators(int64_t length[2]) const {
  LockGuard lock(&state_->lock);
  length[0] = operators_length_[0];
  length[1] = operators_length_[1];
  return operators_;
}

}  // namespace seqpoint::inject
