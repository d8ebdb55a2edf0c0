// The buffers that CUPTI fills with activity records.
//
//   * There is a fixed number of them, most of them small ones whose records are counted as
//   dropped.
//     When CUPTI holds them all it gets none, and counts what it drops itself; a version that
//     crashes then (before 12.9) gets one and the same again, which it can ask for only once at a
//     time: its buffers are those of contexts, not of threads.
//   * Buffers are from the program's heap, and one that CUPTI did not return is never touched:
//     where another tool registers its callbacks, CUPTI returns ours to it, and it frees what it
//     gets.
//
// Threading: CUPTI asks for buffers and returns them on its own threads or on the one that flushes.
// Register and ExpectLoss by one thread at a time.
#ifndef SEQPOINT_INJECTION_CUPTI_ACTIVITY_BUFFERS_H_
#define SEQPOINT_INJECTION_CUPTI_ACTIVITY_BUFFERS_H_

#include <cupti.h>
#include <stddef.h>
#include <stdint.h>

#include <atomic>

#include "injection/cupti/activity_decoder.h"
#include "injection/cupti/call_watch.h"
#include "injection/cupti/loader.h"
#include "injection/ring/writer.h"

namespace seqpoint::inject {

class ActivityBuffers {
 public:
  static constexpr uint32_t kBuffers = 16;
  static constexpr size_t kBufferBytes = 1 << 20;
  static constexpr uint32_t kSmallBuffers = 496;
  static constexpr size_t kSmallBufferBytes = 32 << 10;
  static constexpr size_t kAlignment = 64;  // bytes: a line of the cache

  ActivityBuffers(const Cupti* cupti, CallWatch* call_watch, injection::RingWriter* ring,
                  ActivityDecoder* decoder)
      : cupti_(cupti), call_watch_(call_watch), ring_(ring), decoder_(decoder) {}

  // Has CUPTI ask here for buffers. One object of a process can do that. The CUptiResult.
  uint32_t Register();
  // CUPTI was another tool's: what it was lent before may be that tool's now.
  void ExpectLoss();
  // CUPTI is of no use in a forked child.
  static void ForgetInChild();

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

  const Cupti* const cupti_;
  CallWatch* const call_watch_;
  injection::RingWriter* const ring_;
  ActivityDecoder* const decoder_;
  Buffer buffers_[kBuffers + kSmallBuffers] = {};  // allocated when they are needed first
  alignas(kAlignment) uint8_t last_resort_[kSmallBufferBytes];
};

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_CUPTI_ACTIVITY_BUFFERS_H_
