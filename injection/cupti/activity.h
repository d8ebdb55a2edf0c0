// CUPTI activity records: buffers, decoding into ring records, and which kinds are on.
//
//   * There is a fixed number of buffers, the most of them small ones whose records are counted as
//     dropped. When CUPTI holds them all it gets none, and counts what it drops itself; a version
//     that crashes then (before 12.9) gets one and the same again, which it can ask for only once
//     at a time: its buffers are those of contexts, not of threads.
//   * Buffers are from the program's heap, and one that CUPTI did not return is never touched:
//     where another tool registers its callbacks, CUPTI returns ours to it, and it frees what it
//     gets.
//   * A record is read up to the fields that every supported generation has (CUPTI 12.0 to 13.x):
//     what was appended later is never touched, and cuptiActivityGetNextRecord knows the sizes.
//   * A kind is disabled only after the GPU has been waited for and the buffers were flushed, or
//     its last records would carry wrong ends. Only the context of the calling thread is waited
//     for: kernels of another one may wait for what this thread launches next, as those of a
//     collective do. Such kernels are left out where they have no end, and counted.
//
// Threading: CUPTI calls back from its own threads or from the one that flushes. SetKinds is called
// by one thread at a time.
#ifndef SEQPOINT_INJECTION_CUPTI_ACTIVITY_H_
#define SEQPOINT_INJECTION_CUPTI_ACTIVITY_H_

#include <stddef.h>
#include <stdint.h>

#include <atomic>

#include "injection/base/features.h"
#include "injection/base/names.h"
#include "injection/base/pool.h"
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
  static constexpr uint32_t kBuffers = 16;
  static constexpr size_t kBufferBytes = 1 << 20;
  static constexpr uint32_t kSmallBuffers = 496;
  static constexpr size_t kSmallBufferBytes = 32 << 10;

  // False: records cannot be had; the reason was reported.
  bool Init(const Cupti* cupti, const CudaDriver* driver, Pool* pool, Names* names,
            injection::RingWriter* ring, Features* features);
  bool ready() const { return ready_.load(std::memory_order_relaxed); }

  // CUPTI is ours again, after another tool had it, and may have ended it: the buffers are
  // registered anew, and no kind is on. What that tool left is handed to it first. `clock_claimed`:
  // see Clock::Claim.
  void TakeBuffers(bool clock_claimed);
  // Whether trace windows are of any use: not where kernels cannot be recorded, or get no times.
  bool traces() const { return ready() && (allowed() & kKindKernel) != 0; }
  // Whether records of these kinds come, when they are asked for; false: `kinds` is none.
  bool records(uint32_t kinds) const { return ready() && (allowed() & kinds) != 0; }
  // Records that came so far.
  struct Seen {
    uint64_t records, kernels, untimed_kernels;
  };
  Seen seen() const;
  // Since `before`, the begin of a trace window that was flushed: nothing came, as another tool has
  // taken the buffers or ended CUPTI, or most kernels have no times.
  bool Lost(const Seen& before) const;

  // Enables and disables until exactly `kinds` are on. `synchronize`: the calling thread is one of
  // the application's and may wait for the GPU before a kind is disabled. True: something changed.
  bool SetKinds(uint32_t kinds, bool synchronize);
  // The border of a trace window: as SetKinds, and waits also where the kinds are on already.
  void SetKindsOfWindow(uint32_t kinds);
  // Hands over what is complete (`forced`: everything). Nanoseconds that it took.
  uint64_t Flush(bool forced);
  // Called every second with the number of events so far whose records are awaited. When such
  // events keep coming and records do not, another tool has registered its own buffers (the last
  // one wins), and nothing more is asked of it: the kinds may be that tool's. When most kernels
  // have no times, or records have times outside of this process' life, another tool has set
  // CUPTI's clock. All is reported.
  void Check(uint64_t awaited);
  // CUPTI is gone: nothing is called any more.
  void GiveUp();
  bool any_kind_on() const { return kinds_.load(std::memory_order_relaxed) != 0; }

 private:
  struct Buffer {
    std::atomic<bool> lent;  // to CUPTI
    // Lent since before another tool had CUPTI, and perhaps the tool's now.
    std::atomic<bool> stale;
    std::atomic<uint8_t*> bytes;
  };

  static void OnRequest(uint8_t** buffer, size_t* size, size_t* max_records);
  static void OnComplete(CUcontext context, uint32_t stream, uint8_t* buffer, size_t size,
                         size_t valid_bytes);
  void Request(uint8_t** buffer, size_t* size);
  void Complete(uint8_t* buffer, size_t valid_bytes);
  void Decode(const CUpti_Activity* record);
  bool Valid(uint64_t start_ns, uint64_t end_ns);
  void ReadClock();
  uint32_t Register();
  void BeginAnotherSession();
  void FlushNow(uint32_t flag);
  void WaitForGpu();
  void Forbid(uint32_t kinds) { allowed_.fetch_and(~kinds, std::memory_order_relaxed); }
  uint32_t allowed() const { return allowed_.load(std::memory_order_relaxed); }
  uint32_t KernelName(const char* recorded, uint32_t correlation_id);
  uint32_t Enable(uint32_t kind);
  void Disable(uint32_t kind);

  const Cupti* cupti_ = nullptr;
  const CudaDriver* driver_ = nullptr;
  Names* names_ = nullptr;
  injection::RingWriter* ring_ = nullptr;
  Features* features_ = nullptr;
  Buffer buffers_[kBuffers + kSmallBuffers] = {};  // allocated when they are needed first
  uint8_t* last_resort_ = nullptr;
  std::atomic<uint32_t> kinds_{0};
  std::atomic<uint32_t> allowed_{~0u};          // kinds
  std::atomic<bool> graph_ids_wrong_{false};    // kMixesUpGraphLaunches, from the second session on
  std::atomic<bool> clock_was_changed_{false};  // by another tool, at some time
  std::atomic<bool> ready_{false};
  std::atomic<uint64_t> decoded_{0};  // records
  std::atomic<uint64_t> kernels_{0};
  std::atomic<uint64_t> untimed_kernels_{0};
  std::atomic<uint64_t> foreign_{0};  // records with times that CUPTI's clock never showed
  // What CUPTI's clock has shown. The system's may be set back, that of another tool is no reason.
  std::atomic<uint64_t> earliest_ns_{UINT64_MAX};
  std::atomic<uint64_t> latest_ns_{0};
  uint32_t sessions_ = 0;  // times that kinds were enabled after none was
  std::atomic<uint64_t> flushes_{0};
  uint64_t checked_flushes_ = 0;
  uint64_t checked_decoded_ = 0;
  uint64_t checked_kernels_ = 0;
  uint64_t checked_untimed_ = 0;
  uint64_t checked_awaited_ = 0;
  int starved_checks_ = 0;
};

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_CUPTI_ACTIVITY_H_
