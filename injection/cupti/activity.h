// Which kinds of CUPTI's activity records are on, and when they are flushed.
//
// A kind is disabled only after the GPU has been waited for and the buffers were flushed, or its
// last records would carry wrong ends. Only the context of the calling thread is waited for:
// kernels of another one may wait for what this thread launches next, as those of a collective do.
// Such kernels are left out where they have no end, and counted.
//
// Threading: SetKinds is called by one thread at a time; Flush and Check by the helper thread, or
// the one that has the SwitchToken; plain questions anywhere.
#ifndef SEQPOINT_INJECTION_CUPTI_ACTIVITY_H_
#define SEQPOINT_INJECTION_CUPTI_ACTIVITY_H_

#include <stddef.h>
#include <stdint.h>

#include <atomic>

#include "injection/base/features.h"
#include "injection/cupti/activity_buffers.h"
#include "injection/cupti/activity_decoder.h"
#include "injection/cupti/call_watch.h"
#include "injection/cupti/captures.h"
#include "injection/cupti/clock.h"
#include "injection/cupti/contexts.h"
#include "injection/cupti/loader.h"
#include "injection/ring/writer.h"

namespace seqpoint::inject {

enum ActivityKinds : uint32_t {
  kKindKernel = 1,
  kKindCopy = 2,
  kKindPeerCopy = 4,
  kKindMemset = 8,
  kKindSync = 16,
  kKindGraph = 32,  // one record per graph launch; its kernels then have none
  kKindApi = 64,    // the watched driver calls only
};
inline constexpr uint32_t kKindsOfLearn = kKindCopy | kKindMemset | kKindGraph;
inline constexpr uint32_t kKindsOfTrace =
    kKindKernel | kKindCopy | kKindPeerCopy | kKindMemset | kKindSync | kKindGraph | kKindApi;

class Activity {
 public:
  struct Parts {  // that outlive it
    const Cupti* cupti;
    const CudaDriver* driver;
    Contexts* contexts;
    const Captures* captures;
    const Clock* clock;
    CallWatch* call_watch;
    ActivityDecoder* decoder;
    injection::RingWriter* ring;
    Features* features;
  };
  explicit Activity(const Parts& parts) : parts_(parts) {}

  // False: records cannot be had; the reason was reported.
  bool Init();
  bool ready() const { return ready_.load(std::memory_order_relaxed); }

  // CUDA graphs may be there already. A graph that was instantiated before the kind was on crashes
  // CUPTI 13.0.1 at its launch (docs/measurements/2026-11-27-h200.md); no other was tried. So the
  // kind stays off for good: such graphs appear as their kernels.
  void ExpectEarlyGraphs() { Forbid(kKindGraph); }
  // The rule's clock is a graph launch: says once that there are no times, where that is so.
  void SayThatGraphsTellNoTimes();
  // CUPTI is ours again, after another tool had it, and may have ended it: the buffers are
  // registered again, and no kind is on. What that tool left is handed to it first.
  // `clock_claimed`: see Clock::Claim.
  void TakeBuffers(bool clock_claimed);
  // Whether trace windows are of any use: not where kernels cannot be recorded, or get no times.
  bool traces() const { return ready() && (allowed() & kKindKernel) != 0; }
  // Whether records of these kinds come, when they are asked for; false: `kinds` is none.
  bool records(uint32_t kinds) const { return ready() && (allowed() & kinds) != 0; }
  ActivityDecoder::Seen seen() const { return parts_.decoder->seen(); }
  // Since `before`, the begin of a trace window that was flushed: nothing came, as another tool has
  // taken the buffers or ended CUPTI, or most kernels have no times.
  bool Lost(const ActivityDecoder::Seen& before) const;

  // Enables and disables until exactly `kinds` are on. `synchronize`: the calling thread is one of
  // the application's and may wait for the GPU before a kind is disabled. True: something changed.
  bool SetKinds(uint32_t kinds, bool synchronize);
  // The border of a trace window: as SetKinds, and waits also where the kinds are on already.
  void SetKindsOfWindow(uint32_t kinds);
  // Hands over what is complete (`forced`: everything). Nanoseconds that it took.
  uint64_t Flush(bool forced);
  // Called every second with the number of events so far whose records are awaited. Notices, and
  // reports, that another user of CUPTI takes our records away or gives them times of another
  // clock: CUPTI tells neither. Where another tool has taken the buffers nothing more is asked of
  // CUPTI: the kinds may be that tool's.
  void Check(uint64_t awaited);
  // CUPTI is gone: nothing is called any more.
  void GiveUp();
  bool any_kind_on() const { return kinds_.load(std::memory_order_relaxed) != 0; }

 private:
  void BeginAnotherSession();
  void FlushNow(uint32_t flag);
  void WaitForGpu();
  void CheckTimes();
  bool IsStarved(uint64_t awaited);
  void Forbid(uint32_t kinds) { allowed_.fetch_and(~kinds, std::memory_order_relaxed); }
  uint32_t allowed() const { return allowed_.load(std::memory_order_relaxed); }
  uint32_t Turn(CUpti_ActivityKind kind, bool on);

  const Parts parts_;
  ActivityBuffers buffers_{parts_.cupti, parts_.call_watch, parts_.ring, parts_.decoder};
  std::atomic<uint32_t> kinds_{0};
  std::atomic<uint32_t> allowed_{~0u};          // kinds
  std::atomic<bool> clock_was_changed_{false};  // by another tool, at some time
  std::atomic<bool> ready_{false};
  bool said_no_graphs_ = false;
  uint32_t sessions_ = 0;  // times that kinds were enabled after none was
  std::atomic<uint64_t> flushes_{0};
  // At the last Check, or the last one after a flush.
  uint64_t checked_flushes_ = 0;
  ActivityDecoder::Seen checked_times_ = {};
  uint64_t checked_records_ = 0;
  uint64_t checked_awaited_ = 0;
  int starved_checks_ = 0;
};

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_CUPTI_ACTIVITY_H_
