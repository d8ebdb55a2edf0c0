// Tells the daemon from when to when CUPTI was left to another profiler of the process.
// Threading: the thread that has the SwitchToken.
#ifndef SEQPOINT_INJECTION_CUPTI_STAND_DOWN_LOG_H_
#define SEQPOINT_INJECTION_CUPTI_STAND_DOWN_LOG_H_

#include <stdint.h>

#include "injection/ring/writer.h"

namespace seqpoint::inject {

class StandDownLog {
 public:
  explicit StandDownLog(injection::RingWriter* ring) : ring_(ring) {}

  // Who has it, before Begin. Null: the tool that asked, or was noticed.
  void SetHolder(const char* holder);
  // CUPTI is another's from `now_ns` on.
  void Begin(uint64_t now_ns, uint64_t iteration);
  void End(uint64_t now_ns, uint64_t iteration);
  bool open() const { return since_ns_ != 0; }
  // Who had CUPTI last; never null.
  const char* holder() const { return holder_; }
  // The tool that CUPTI was left to may keep its subscription: it was, and we have not had it
  // since.
  bool left() const { return left_; }
  void SetLeft(bool left) { left_ = left; }

 private:
  void Write(uint64_t end_ns, uint64_t iteration);

  injection::RingWriter* const ring_;
  uint64_t since_ns_ = 0;  // 0: CUPTI is not left to anybody
  bool left_ = false;
  char holder_[64] = {};
};

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_CUPTI_STAND_DOWN_LOG_H_
