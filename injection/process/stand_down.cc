#include "injection/process/stand_down.h"

#include <errno.h>

#include "injection/cupti/stand_down_requests.h"
#include "injection/process/guest.h"

namespace seqpoint::inject {
namespace {

constexpr uint64_t kPatienceNs = 1'000'000'000;

// Tries until `done`, for a second. Another thread at the border of a window may stand in the way,
// or the helper thread at a decode.
template <typename Done>
bool Try(Guest* guest, const Done& done) {
  const int saved_errno = errno;
  bool did = false;
  // Inside a call of ours this very thread may be what stands in the way.
  if (Thread()->inside == 0) {
    const uint64_t deadline_ns = MonotonicNs() + kPatienceNs;
    while (!guest->token.Stopped() && !(did = done()) && MonotonicNs() < deadline_ns) {
      SleepNs(200'000);
    }
  }
  if (!did) guest->helper_wake.Wake();
  errno = saved_errno;
  return did;
}

int LeaveCupti(Guest* guest) {
  if (guest == nullptr || !guest->ring.active()) return 0;
  const auto leave = [guest] { return !StandsDown() || guest->ownership.Release(true); };
  return Try(guest, leave) ? 0 : 1;
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
  CuptiOwnership* ownership = &guest->ownership;
  const bool tried = Try(guest, [ownership] { return ownership->Take(true); });
  return tried && !ownership->wants_more() ? 0 : 1;
}

}  // namespace seqpoint::inject
