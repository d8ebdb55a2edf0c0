#include "injection/cupti/ownership.h"

#include <stdio.h>
#include <string.h>

#include "injection/cupti/stand_down_requests.h"

namespace seqpoint::inject {

bool CuptiOwnership::wants_more() const {
  return has_library() && share() != Share::kAll && !StandsDown() && !release_wanted();
}

bool CuptiOwnership::Take(bool may_wait) {
  const Switching switching(parts_.token);
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
  const bool records = before == Share::kRecords || (left_ && !first);
  const uint32_t result = parts_.callbacks->Subscribe(!records);
  const bool held = result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  may_be_had_.store(held || result == CUPTI_SUCCESS, std::memory_order_relaxed);
  if (held) refused_ = true;
  if (result != CUPTI_SUCCESS && (!records || before == Share::kRecords)) return;
  const bool clock_claimed = parts_.clock->Claim();
  begun_ = true;
  if (first) parts_.user->Begin();
  if (!first || refused_ || left_ || clock_claimed) {
    parts_.user->Renew();
    parts_.activity->TakeBuffers(clock_claimed);
    parts_.captures->OnHole();
  }
  if (result == CUPTI_SUCCESS) {
    left_ = false;
    parts_.contexts->Forget();
  } else if (before == Share::kNothing) {
    parts_.features->Report(
        abi::Feature::kCallbacks, abi::FeatureState::kIgnored, result,
        "%s has stopped recording but still holds CUPTI's callbacks: the program's calls are not "
        "seen, iterations are found by NVTX ranges and program marks, and only their GPU work is "
        "measured; CUPTI is asked for again every few seconds",
        holder_);
  }
  {
    LockGuard lock(parts_.token->lock());
    Change(result == CUPTI_SUCCESS ? Share::kAll : Share::kRecords, true);
  }
  parts_.user->Switch(may_wait);
}

bool CuptiOwnership::Release(bool may_wait) {
  const Switching switching(parts_.token);
  if (!switching) return false;
  if (share() != Share::kNothing) {
    if (!parts_.user->Leave()) return false;
    {
      LockGuard lock(parts_.token->lock());
      Change(Share::kNothing, false);
    }
    parts_.user->Switch(may_wait);
    // A buffer of ours that stayed would take records of the next tool with it.
    parts_.activity->Flush(true);
    parts_.callbacks->Unsubscribe();
  }
  NoteStandDown();
  return true;
}

bool CuptiOwnership::StillOurs() {
  if (!has_calls()) return true;
  const Switching switching(parts_.token);
  if (!switching || parts_.callbacks->StillOurs()) return true;
  uint64_t since_ns = 0;
  {
    LockGuard lock(parts_.token->lock());
    since_ns = parts_.user->Abandon();
    Change(Share::kNothing, true);
  }
  parts_.user->ReportAbandoned();
  snprintf(holder_, sizeof(holder_), "a tool in this process that ended CUPTI");
  BeginStandDown(since_ns);
  left_ = false;  // who has CUPTI now has not stopped recording
  return false;
}

// Holds the lock.
void CuptiOwnership::Change(Share share, bool hole) {
  share_.store(share);
  parts_.captures->SetUnseen(share == Share::kRecords);
  parts_.user->OnChange(hole);
}

// Tells the daemon where a stand-down begins or ends.
void CuptiOwnership::NoteStandDown() {
  const bool down = StandsDown();
  if (down == (left_since_ns_ != 0) || (down && has_nothing_to_leave())) return;
  const uint64_t now_ns = parts_.clock->NowNs();
  if (!down) {
    WriteStandDown(now_ns);
    left_since_ns_ = 0;
    return;
  }
  CopyHolder(holder_, sizeof(holder_));
  parts_.features->Report(abi::Feature::kCallbacks, abi::FeatureState::kIgnored, 0,
                          "standing down for %s, which has CUPTI to itself: until it ends, "
                          "iterations are found by NVTX ranges and program marks only, and nothing "
                          "is measured",
                          holder_);
  BeginStandDown(now_ns);
}

void CuptiOwnership::BeginStandDown(uint64_t since_ns) {
  left_since_ns_ = since_ns != 0 ? since_ns : 1;
  left_ = true;
  WriteStandDown(0);
}

void CuptiOwnership::WriteStandDown(uint64_t end_ns) {
  const abi::StandDownEvent event = {left_since_ns_, end_ns, parts_.user->Iteration(),
                                     static_cast<uint32_t>(strlen(holder_)), 0};
  parts_.ring->WriteEvent(abi::EventType::kStandDown, &event, sizeof(event), holder_, event.length);
}

}  // namespace seqpoint::inject
