#include "injection/process/helper.h"

#include <errno.h>
#include <signal.h>

#include <algorithm>

#include "injection/cupti/stand_down_requests.h"
#include "injection/nccl/plugin_chain.h"
#include "injection/process/guest.h"

namespace seqpoint::inject {
namespace {

constexpr uint64_t kConnectEveryNs = 200'000'000;
constexpr uint64_t kRefusedEveryNs = 2'000'000'000;
constexpr uint64_t kClockEveryNs = 1'000'000'000;
// How often CUPTI is asked for while another tool has it: one refused call.
constexpr uint64_t kTakeEveryNs = 2'000'000'000;
// Flushes take a twentieth of a core at most: they become slower over hours (CUPTI's release notes
// of 13.4 Update 1: "unbounded CPU utilization growth during long-running activity tracing").
constexpr uint64_t kLeastFlushPause = 20;
constexpr uint64_t kNoticedFlushPauseNs = 1'000'000'000;
// PM sampling waits 5 s for the records of its iteration.
constexpr uint64_t kLongestFlushPauseNs = 4'000'000'000;
constexpr uint64_t kTickNs = 100'000'000;
constexpr int kWelcomeTimeoutMs = 500;
constexpr size_t kStackBytes = 1 << 20;  // the counter host library builds configurations on it

}  // namespace

void Helper::Start() {
  if (started_.exchange(true)) return;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_t thread;
  running_.store(true);
  const int error = pthread_create(&thread, &attributes, Run, this);
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error == 0) return;
  running_.store(false);
  g_guest->features.Report(abi::Feature::kRing, abi::FeatureState::kFailed,
                           static_cast<uint32_t>(error),
                           "the helper thread could not be started (error %d): nothing reaches the "
                           "daemon; raise the limit on processes (ulimit -u)",
                           error);
}

void* Helper::Run(void* self) {
  Helper* helper = static_cast<Helper*>(self);
  pthread_setname_np(pthread_self(), "seqpoint");
  // Whatever this thread asks of CUDA is not the application's.
  ++Thread()->inside;
  Thread()->helper = true;
  helper->Loop();
  helper->running_.store(false);
  helper->done_.Wake();
  return nullptr;
}

void Helper::Loop() {
  Guest* guest = g_guest;
  uint32_t seen = 0;
  while (!finish_.load(std::memory_order_acquire)) {
    const uint64_t now_ns = MonotonicNs();
    TalkToDaemon(now_ns);
    guest->levels.Tick();
    guest->call_watch.Look();
    if (g_plugin_chain.loaded()) g_plugin_chain.UpdateMask();
    TakeOrRelease(now_ns);
    if (guest->contexts.has_new()) {
      guest->ownership.AskDriver([guest] { guest->contexts.ReportNewDevices(); });
    }
    RelaxCaptures();
    ServeCounters(guest->contexts.Any());
    if (now_ns >= next_flush_ns_ && guest->activity.any_kind_on()) {
      next_flush_ns_ = now_ns + FlushPauseNs(guest->activity.Flush(false));
    }
    if (now_ns >= next_clock_ns_) {
      guest->clock.Check();
      guest->router.CheckClock();
      // Where calls cost a virtual time, what they cost really says nothing.
      if (callback_ns_ == 0 && guest->contexts.any() && !guest->clock.foreign()) {
        guest->ownership.AskDriver([&] {
          callback_ns_ = guest->callbacks.MeasurePriceNs(guest->driver.DriverGetVersion);
        });
      }
      guest->router.ReportCost(callback_ns_);
      guest->steps.Report();
      guest->communicators.WriteOld();
      if (!guest->ownership.StillOurs()) next_take_ns_ = 0;
      guest->activity.Check(guest->events.timed_events());
      if (guest->names.overflows() != 0) {
        guest->features.Report(abi::Feature::kMatcher, abi::FeatureState::kFailed, 0,
                               "more than %u different names: later ones are recorded without a "
                               "name; are there NVTX ranges with a number in each name?",
                               Names::kCapacity / 2);
      }
      next_clock_ns_ = now_ns + kClockEveryNs;
    }
    const uint64_t flush_ns = uint64_t{guest->control.flush_interval_ms()} * 1'000'000;
    seen = wake_->Wait(seen, std::min(flush_ns, kTickNs));
  }
  // A program that ends within the first moments has perhaps not been introduced yet.
  if (next_connect_ns_ == 0) TalkToDaemon(1);
  guest->router.ReportCost(callback_ns_);
  guest->steps.Report();
  if (guest->contexts.Any() != nullptr) {
    // Samples wait for records that tell their iteration's time.
    if (guest->counters.samples() && guest->activity.any_kind_on()) guest->activity.Flush(true);
    ServeCounters(nullptr);
    if (guest->activity.any_kind_on()) guest->activity.Flush(true);
  }
  guest->ring.CloseThreadChunk();
}

// `context`: any; null: there is none, or the process ends.
void Helper::ServeCounters(CUcontext context) {
  Guest* guest = g_guest;
  if (!guest->counters.DecodeClosed(context == nullptr) || context == nullptr) return;
  // Nobody else can have the GPU's performance monitors while we hold them.
  if (!guest->window.WantsCounters()) guest->counters.Rest();
  WantedConfigs wanted;
  guest->control.CopyConfigs(&wanted);
  guest->counters.Prepare(context, wanted, guest->ownership.has_calls());
}

// Until the next flush. One slow flush says nothing (a machine that was busy, or stopped).
uint64_t Helper::FlushPauseNs(uint64_t flush_ns) {
  const uint64_t wanted_ns = uint64_t{g_guest->control.flush_interval_ms()} * 1'000'000;
  const uint64_t steady_ns = std::min(flush_ns, last_flush_ns_);
  last_flush_ns_ = flush_ns;
  const uint64_t least_ns = std::min(steady_ns * kLeastFlushPause, kLongestFlushPauseNs);
  if (least_ns > kNoticedFlushPauseNs) {
    g_guest->features.Report(
        abi::Feature::kActivity, abi::FeatureState::kReady, 0,
        "a flush of CUPTI's records takes more than %u ms by now, and is done less often: what an "
        "iteration took is known later (CUPTI before 13.4 Update 1 becomes slow in long runs)",
        static_cast<unsigned>(kNoticedFlushPauseNs / kLeastFlushPause / 1'000'000));
  }
  return std::max(wanted_ns, least_ns);
}

void Helper::TalkToDaemon(uint64_t now_ns) {
  if (now_ns < next_connect_ns_) return;
  next_connect_ns_ = now_ns + kConnectEveryNs;
  if (connection_.Alive()) return;
  Guest* guest = g_guest;
  if (hello_text_.size() == 0) {
    // Not earlier: inside cuInit the driver must not be called.
    int driver_version = 0;
    const auto ask = [&] { guest->driver.DriverGetVersion(&driver_version); };
    if (guest->ownership.has_library()) {
      guest->ownership.AskDriver(ask);
    } else {
      ask();
    }
    BuildHelloText(guest->cupti.version, driver_version, &hello_text_);
  }
  const injection::Status status = connection_.Connect(
      guest->socket_path, guest->ring, hello_text_.c_str(), hello_text_.size(), kWelcomeTimeoutMs);
  if (status.ok()) {
    reported_refusal_ = false;
    Log("connected to the daemon at %s", guest->socket_path);
    return;
  }
  // No daemon yet is no news; a refusal is, and it is not asked again at once.
  const bool absent =
      status.error == ENOENT || status.error == ECONNREFUSED || status.error == EINTR;
  if (!absent) next_connect_ns_ = MonotonicNs() + kRefusedEveryNs;
  if (reported_refusal_) return;
  reported_refusal_ = true;
  if (absent) {
    Log("%s: no daemon is there; training goes on, and what the ring holds waits for one (start "
        "seqpointd, or train under `seqpoint run`)",
        status.message);
  } else {
    guest->features.Report(
        abi::Feature::kRing, abi::FeatureState::kFailed, static_cast<uint32_t>(status.error),
        status.error == EBADF ? "%s; training goes on"
                              : "%s; training goes on, and nothing reaches a daemon",
        status.message);
  }
}

// Gives CUPTI back to the process, at the daemon's or the program's wish (where the program's own
// thread could not do it), and takes it when it can be had.
void Helper::TakeOrRelease(uint64_t now_ns) {
  CuptiOwnership* ownership = &g_guest->ownership;
  const bool released = ownership->release_wanted();
  if (released || StandsDown()) {
    next_take_ns_ = 0;
    if (ownership->share() == CuptiOwnership::Share::kNothing || !ownership->Release(false)) return;
    if (!released || StandsDown()) return;
    g_guest->features.Report(abi::Feature::kCallbacks, abi::FeatureState::kIgnored, 0,
                             "CUPTI was released as asked; set another level to take it again");
  } else if (now_ns >= next_take_ns_ && ownership->may_be_had() && !ownership->has_calls()) {
    ownership->Take(false);
    next_take_ns_ = now_ns + kTakeEveryNs;
  }
}

// CUPTI's allocations on this thread must not break a capture of another one
// (cuThreadExchangeStreamCaptureMode). The driver must be up, so there must be a context.
void Helper::RelaxCaptures() {
  Guest* guest = g_guest;
  if (relaxed_ || !guest->contexts.any()) return;
  relaxed_ = guest->ownership.AskDriver([guest] {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    guest->driver.ThreadExchangeStreamCaptureMode(&mode);
  });
}

bool Helper::Finish(uint64_t timeout_ns) {
  finish_.store(true, std::memory_order_release);
  wake_->Wake();
  const uint64_t deadline_ns = MonotonicNs() + timeout_ns;
  uint32_t seen = 0;
  while (running_.load(std::memory_order_acquire)) {
    const uint64_t now_ns = MonotonicNs();
    if (now_ns >= deadline_ns) return false;
    seen = done_.Wait(seen, deadline_ns - now_ns);
  }
  return true;
}

}  // namespace seqpoint::inject
