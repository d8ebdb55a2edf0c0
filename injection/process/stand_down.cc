#include "injection/process/stand_down.h"

#include <errno.h>
#include <time.h>

#include "injection/cupti/stand_down_requests.h"
#include "injection/process/guest.h"

namespace seqpoint::inject {
namespace {

constexpr uint64_t kPatienceNs = 1'000'000'000;

// Tries until `done`, for a second. Another thread at the border of a window may stand in the way,
// or the helper thread at a decode.
template <typename Done>
bool Try(Guest* guest, const Done& done) {
  // Inside a call of ours this very thread may be what stands in the way.
  if (Thread()->inside == 0) {
    const uint64_t deadline_ns = MonotonicNs() + kPatienceNs;
    while (!guest->token.Stopped()) {
      if (done()) return true;
      if (MonotonicNs() >= deadline_ns) break;
      const timespec pause = {0, 200'000};
      nanosleep(&pause, nullptr);
    }
  }
  guest->helper_wake.Wake();
  return false;
}

int LeaveCupti(Guest* guest) {
  const int saved_errno = errno;
  bool free = true;
  if (guest != nullptr && guest->ring.active()) {
    free = Try(guest, [guest] { return !StandsDown() || guest->ownership.Release(true); });
  }
  errno = saved_errno;
  return free ? 0 : 1;
}

}  // namespace

int StandDown(const char* holder) {
  Guest* guest = g_guest;
  if (guest != nullptr && guest->ownership.has_nothing_to_leave()) return 0;
  AskToStandDown(holder);
  return LeaveCupti(guest);
}

void StandDownForNoticed(const char* holder) {
  if (NoticeTool(holder)) LeaveCupti(g_guest);
}

void NoticedLeft() {
  if (ForgetNoticedTool()) g_guest->helper_wake.Wake();
}

int ComeBack() {
  const bool last = TakeBackStandDown();
  Guest* guest = g_guest;
  if (!last || guest == nullptr || !guest->ring.active()) return 0;
  const int saved_errno = errno;
  CuptiOwnership* ownership = &guest->ownership;
  const bool tried = Try(guest, [ownership] { return ownership->Take(true); });
  errno = saved_errno;
  return tried && (!ownership->wants_more()) ? 0 : 1;
}

}  // namespace seqpoint::inject
