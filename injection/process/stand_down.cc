#include "injection/process/stand_down.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>

#include <atomic>

#include "injection/process/guest.h"

namespace seqpoint::inject {
namespace {

constexpr uint64_t kPatienceNs = 1'000'000'000;

std::atomic<int> g_asked{0};         // stand-downs that nobody took back
std::atomic<bool> g_noticed{false};  // there is one that nobody asked for
SpinLock g_holder_lock;
char g_holder[64];

// Tries until `done`, for a second. What stands in the way is another thread at the border of a
// window, or the helper thread at a decode.
template <typename Done>
bool Try(Guest* guest, const Done& done) {
  // Inside a call of ours this very thread may be what stands in the way.
  if (Thread()->inside == 0) {
    const uint64_t deadline_ns = MonotonicNs() + kPatienceNs;
    while (!guest->stream.stopped()) {
      if (done()) return true;
      if (MonotonicNs() >= deadline_ns) break;
      const timespec pause = {0, 200'000};
      nanosleep(&pause, nullptr);
    }
  }
  guest->helper.Wake();
  return false;
}

void SetHolder(const char* holder) {
  LockGuard guard(&g_holder_lock);
  snprintf(g_holder, sizeof(g_holder), "%s", holder != nullptr ? holder : "another profiler");
}

int LeaveCupti(Guest* guest) {
  const int saved_errno = errno;
  bool free = true;
  if (guest != nullptr && guest->ring.active()) {
    free = Try(guest, [guest] { return !StandsDown() || guest->stream.ReleaseCupti(true); });
  }
  errno = saved_errno;
  return free ? 0 : 1;
}

}  // namespace

int StandDown(const char* holder) {
  Guest* guest = g_guest;
  if (guest != nullptr && guest->host_only.load()) return 0;  // there is nothing to leave
  if (!StandsDown()) SetHolder(holder);
  g_asked.fetch_add(1);
  return LeaveCupti(guest);
}

void StandDownForNoticed(const char* holder) {
  if (!StandsDown()) SetHolder(holder);
  if (!g_noticed.exchange(true)) LeaveCupti(g_guest);
}

void NoticedLeft() {
  if (g_noticed.exchange(false)) g_guest->helper.Wake();
}

int ComeBack() {
  int asked = g_asked.load();
  while (asked > 0 && !g_asked.compare_exchange_weak(asked, asked - 1)) {
  }
  const bool last = asked > 0 ? asked == 1 && !g_noticed.load() : g_noticed.exchange(false);
  Guest* guest = g_guest;
  if (!last || guest == nullptr || !guest->ring.active()) return 0;
  const int saved_errno = errno;
  CallStream* stream = &guest->stream;
  const bool tried = Try(guest, [stream] { return stream->TakeCupti(true); });
  errno = saved_errno;
  const bool wanted = guest->has_cupti && !StandsDown() && !stream->release_wanted();
  return tried && (!wanted || stream->hold() == CallStream::Hold::kAll) ? 0 : 1;
}

bool StandsDown() { return StandsDownAsAsked() || g_noticed.load(); }
bool StandsDownAsAsked() { return g_asked.load() > 0; }

void CopyHolder(char* text, size_t bytes) {
  LockGuard guard(&g_holder_lock);
  snprintf(text, bytes, "%s", g_holder);
}

void ForgetStandDownInChild() {
  g_asked.store(0);
  g_noticed.store(false);
  g_holder_lock.Unlock();
}

}  // namespace seqpoint::inject
