#include "injection/iterations/handover.h"

namespace seqpoint::inject {

using Kind = Measurement::Kind;

void Handover::Begin() {
  const bool may_record = !records_forbidden_ && !parts_.cupti->Has(kHasUnknownRecords);
  if (may_record && parts_.activity->Init() && parts_.activity->traces()) {
    parts_.features->Report(abi::Feature::kActivity, abi::FeatureState::kReady, 0,
                            "GPU work can be recorded");
  }
  parts_.counters->Start();
}

void Handover::Renew() {
  parts_.launch_names->SetNeeded(parts_.cupti->Has(kKeepsNamesOfUnloadedModules));
  parts_.counters->Renew();
}

void Handover::OnChange(bool hole) {
  parts_.state->distorted = true;
  parts_.state->after_hole = parts_.state->after_hole || hole;
  parts_.steps->OnHole();
  parts_.watch->Update();
}

bool Handover::Leave() {
  DeferredActions actions = {};
  bool dropped = false;
  {
    LockGuard lock(&parts_.state->lock);
    if (parts_.window->open() && parts_.captures->count() == 0) {
      parts_.window->Spoil();
      parts_.window->End(&actions);
    } else if (parts_.window->kind() == Kind::kTrace) {
      // Nobody may wait now; and the window must not be closed within the other tool's session.
      parts_.window->Drop();
      dropped = true;
    }
  }
  if (actions.close) parts_.borders->Close(nullptr);
  if (dropped) parts_.borders->ReportAborted();
  // In a capture a range cannot be closed; and what the helper thread decodes is waited for.
  return parts_.window->kind() != Kind::kCounters && parts_.counters->Rest();
}

uint64_t Handover::Abandon() {
  parts_.window->Drop();
  return parts_.state->boundary_ns;
}

void Handover::ReportAbandoned() {
  parts_.counters->Renew();
  if (parts_.window->closing()->kind != Kind::kNone) parts_.borders->ReportAborted();
}

uint64_t Handover::Iteration() {
  LockGuard lock(&parts_.state->lock);
  return parts_.state->matcher.iteration();
}

}  // namespace seqpoint::inject
