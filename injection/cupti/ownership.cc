#include "injection/cupti/ownership.h"

#include "injection/cupti/stand_down_requests.h"

namespace seqpoint::inject {

bool CuptiOwnership::wants_more() const {
  return has_library() && share() != Share::kAll && !StandsDown() && !release_wanted();
}

bool CuptiOwnership::Take(bool may_wait) {
  const Switching switching(token_);
  if (!switching) return false;
  NoteStandDown();
  if (wants_more()) TakeNow(may_wait);
  return true;
}

void CuptiOwnership::TakeNow(bool may_wait) {
  const Share before = share();
  const bool first = !begun_;
  // A tool that stopped recording leaves its records to us, whether its subscription has ended or
  // not.
  const bool records = before == Share::kRecords || (log_->left() && !first);
  const uint32_t result = callbacks_->Subscribe(!records);
  const bool held = result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  may_be_had_.store(held || result == CUPTI_SUCCESS, std::memory_order_relaxed);
  if (held) refused_ = true;
  if (result != CUPTI_SUCCESS && (!records || before == Share::kRecords)) return;
  const bool clock_claimed = clock_->Claim();
  begun_ = true;
  if (first) user_->Begin();
  if (!first || refused_ || log_->left() || clock_claimed) {
    user_->Renew();
    activity_->TakeBuffers(clock_claimed);
    captures_->OnHole();
  }
  if (result == CUPTI_SUCCESS) {
    log_->SetLeft(false);
    contexts_->Forget();
  } else if (before == Share::kNothing) {
    features_->Report(
        abi::Feature::kCallbacks, abi::FeatureState::kIgnored, result,
        "%s has stopped recording but still holds CUPTI's callbacks: the program's calls are not "
        "seen, iterations are found by NVTX ranges and program marks, and only their GPU work is "
        "measured; CUPTI is asked for again every few seconds",
        log_->holder());
  }
  {
    LockGuard lock(token_->lock());
    Change(result == CUPTI_SUCCESS ? Share::kAll : Share::kRecords, true);
  }
  user_->Switch(may_wait);
}

bool CuptiOwnership::Release(bool may_wait) {
  const Switching switching(token_);
  if (!switching) return false;
  if (share() != Share::kNothing) {
    if (!user_->Leave()) return false;
    {
      LockGuard lock(token_->lock());
      Change(Share::kNothing, false);
    }
    user_->Switch(may_wait);
    // A buffer of ours that stayed would take records of the next tool with it.
    activity_->Flush(true);
    callbacks_->Unsubscribe();
  }
  NoteStandDown();
  return true;
}

bool CuptiOwnership::StillOurs() {
  if (!has_calls()) return true;
  const Switching switching(token_);
  if (!switching || callbacks_->StillOurs()) return true;
  uint64_t since_ns = 0;
  {
    LockGuard lock(token_->lock());
    since_ns = user_->Abandon();
    Change(Share::kNothing, true);
  }
  user_->ReportAbandoned();
  log_->SetHolder("a tool in this process that ended CUPTI");
  log_->Begin(since_ns, user_->Iteration());
  log_->SetLeft(false);  // who has CUPTI now has not stopped recording
  return false;
}

// Holds the lock.
void CuptiOwnership::Change(Share share, bool hole) {
  share_.store(share);
  captures_->SetUnseen(share == Share::kRecords);
  user_->OnChange(hole);
}

// Tells the daemon where a stand-down begins or ends.
void CuptiOwnership::NoteStandDown() {
  const bool down = StandsDown();
  if (down == log_->open() || (down && has_nothing_to_leave())) return;
  const uint64_t now_ns = clock_->NowNs();
  if (!down) {
    log_->End(now_ns, user_->Iteration());
    return;
  }
  log_->SetHolder(nullptr);
  features_->Report(abi::Feature::kCallbacks, abi::FeatureState::kIgnored, 0,
                    "standing down for %s, which has CUPTI to itself: until it ends, "
                    "iterations are found by NVTX ranges and program marks only, and nothing "
                    "is measured",
                    log_->holder());
  log_->Begin(now_ns, user_->Iteration());
}

}  // namespace seqpoint::inject
