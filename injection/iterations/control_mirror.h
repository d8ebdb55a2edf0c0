// The daemon's wishes for this process, as the control block had them last.
// Threading: wanted() and Update by the thread that has the SwitchToken; SetOrphaned and
// WantedLevel under IterationState's lock; the rest anywhere.
#ifndef SEQPOINT_INJECTION_ITERATIONS_CONTROL_MIRROR_H_
#define SEQPOINT_INJECTION_ITERATIONS_CONTROL_MIRROR_H_

#include <stdint.h>

#include <atomic>

#include "injection/abi/control.h"
#include "injection/counters/wanted_configs.h"
#include "injection/ring/writer.h"

namespace seqpoint::inject {

class ControlMirror {
 public:
  static constexpr uint32_t kDefaultFlushMs = 100;

  ControlMirror(const injection::RingWriter* ring, WantedConfigs* configs)
      : reader_(ring), configs_(configs) {
    wanted_.level = static_cast<uint8_t>(abi::Level::kLearn);
  }

  // Is there another control block than the one that was copied last? One relaxed load.
  bool Changed() const { return reader_.Changed(); }
  // Copies it. False: it is the same, or was being written; then what was wanted before still
  // holds.
  bool Update();
  const abi::Control& wanted() const { return wanted_; }
  uint32_t flush_interval_ms() const { return flush_interval_ms_.load(std::memory_order_relaxed); }

  // The daemon gives no sign of life for 2 s, as of `now_ns`; `start_ns`: when this process began.
  bool LooksOrphaned(uint64_t now_ns, uint64_t start_ns) const;
  bool orphaned() const { return orphaned_; }
  void SetOrphaned(bool orphaned) { orphaned_ = orphaned; }
  // The level that follows from both.
  abi::Level WantedLevel() const;

 private:
  injection::ControlReader reader_;
  WantedConfigs* const configs_;
  abi::Control incoming_ = {};
  abi::Control wanted_ = {};
  bool orphaned_ = false;
  std::atomic<uint32_t> flush_interval_ms_{kDefaultFlushMs};
};

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_ITERATIONS_CONTROL_MIRROR_H_
