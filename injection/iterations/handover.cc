#include "injection/iterations/handover.h"

namespace seqpoint::inject {

using Kind = Measurement::Kind;

void Handover::Begin() {
  if (reads_records_ && activity_->Init() && activity_->traces()) {
    features_->Report(abi::Feature::kActivity, abi::FeatureState::kReady, 0,
                      "GPU work can be recorded");
  }
  counters_->Start();
}

void Handover::Renew() {
  watch_->ExpectEarlyGraphs();
  launch_names_->SetNeeded(cupti_->Has(kKeepsNamesOfUnloadedModules));
  counters_->Renew();
}

void Handover::OnChange(bool hole) {
  state_->distorted = true;
  state_->after_hole = state_->after_hole || hole;
  steps_->OnHole();
  watch_->Update();
}

bool Handover::Leave() {
  DeferredActions actions = {};
  bool dropped = false;
  {
    LockGuard lock(&state_->lock);
    if (window_->open() && captures_->count() == 0) {
      window_->Spoil();
      window_->End(&actions);
    } else if (window_->kind() == Kind::kTrace) {
      // Nobody may wait now; and the window must not be closed within the other tool's session.
      window_->Drop();
      dropped = true;
    }
  }
  if (actions.close) borders_->Close(nullptr);
  if (dropped) borders_->ReportAborted();
  // In a capture a range cannot be closed; and what the helper thread decodes is waited for.
  return window_->kind() != Kind::kCounters && counters_->Rest();
}

uint64_t Handover::Abandon() {
  window_->Drop();
  return state_->boundary_ns;
}

void Handover::ReportAbandoned() {
  counters_->Renew();
  if (window_->closing()->kind != Kind::kNone) borders_->ReportAborted();
}

uint64_t Handover::Iteration() {
  LockGuard lock(&state_->lock);
  return state_->matcher.iteration();
}

}  // namespace seqpoint::inject
