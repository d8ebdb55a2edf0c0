// The library's one thread: talks to the daemon, flushes activity buffers, builds counter
// configurations and decodes. It starts with the first context (or at once when CUPTI cannot be
// had and only the reason must reach the daemon), with every signal blocked, and touches nothing of
// the application's.
// Threading: Start and Finish from any thread; `wake` wakes it.
#ifndef SEQPOINT_INJECTION_PROCESS_HELPER_H_
#define SEQPOINT_INJECTION_PROCESS_HELPER_H_

#include <cuda.h>
#include <pthread.h>
#include <stdint.h>

#include <atomic>

#include "injection/base/identity.h"
#include "injection/base/system.h"
#include "injection/ring/connection.h"

namespace seqpoint::inject {

class Helper {
 public:
  explicit Helper(WakeWord* wake) : wake_(wake) {}

  // Starts the thread, the first time.
  void Start();
  // Orderly exit: the last flush and decode, then the thread ends. Waits at most `timeout_ns`;
  // false: it did not come back (a driver that is already gone may hold it for ever).
  bool Finish(uint64_t timeout_ns);
  // In a forked child, where the thread does not exist: gives up the daemon's socket.
  void ForgetInChild() { connection_.Close(); }

 private:
  static void* Run(void* self);
  void Loop();
  void TalkToDaemon(uint64_t now_ns);
  void TakeOrRelease(uint64_t now_ns);
  void ServeCounters(CUcontext context);
  void RelaxCaptures();
  uint64_t FlushPauseNs(uint64_t flush_ns);

  WakeWord* const wake_;
  WakeWord done_;
  std::atomic<bool> started_{false};
  std::atomic<bool> running_{false};
  std::atomic<bool> finish_{false};
  injection::Connection connection_;
  uint64_t next_connect_ns_ = 0;
  uint64_t next_flush_ns_ = 0;
  uint64_t next_clock_ns_ = 0;
  uint64_t next_take_ns_ = 0;
  uint64_t last_flush_ns_ = 0;     // how long it took
  uint32_t callback_ns_ = 0;       // what CUPTI takes for a watched call
  bool reported_refusal_ = false;  // since the last connection
  bool relaxed_ = false;           // RelaxCaptures was done
  HelloText hello_text_;
};

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_PROCESS_HELPER_H_
