// The daemon's wishes for this process, as the control block had them last.
// Threading: wanted() and Update by the thread that has the SwitchToken; SetOrphaned and
// WantedLevel under IterationState's lock; the rest anywhere.
#ifndef SEQPOINT_INJECTION_ITERATIONS_CONTROL_MIRROR_H_
#define SEQPOINT_INJECTION_ITERATIONS_CONTROL_MIRROR_H_

#include <stdint.h>

#include <atomic>

#include "injection/abi/control.h"
#include "injection/base/system.h"
#include "injection/counters/wanted_configs.h"
#include "injection/ring/writer.h"

namespace seqpoint::inject {

class ControlMirror {
 public:
  static constexpr uint32_t kDefaultFlushMs = 100;

  explicit ControlMirror(const injection::RingWriter* ring) : reader_(ring) {
    wanted_.level = static_cast<uint8_t>(abi::Level::kLearn);
  }

  // Is there another control block than the one that was copied last? One relaxed load.
  bool Changed() const { return reader_.Changed(); }
  // Copies it. False: it is the same, or was being written; then what was wanted before still
  // holds.
  bool Update();
  const abi::Control& wanted() const { return wanted_; }
  // The first control of a daemon counts as a change: whether and on what chip counters can be had
  // is asked before any is wanted.
  void CopyConfigs(WantedConfigs* copy);
  uint32_t flush_interval_ms() const { return flush_interval_ms_.load(std::memory_order_relaxed); }

  // The daemon gives no sign of life for 2 s, as of `now_ns`; `start_ns`: when this process began.
  bool LooksOrphaned(uint64_t now_ns, uint64_t start_ns) const;
  bool orphaned() const { return orphaned_; }
  void SetOrphaned(bool orphaned) { orphaned_ = orphaned; }
  // The level that follows from both.
  abi::Level WantedLevel() const;

 private:
  injection::ControlReader reader_;
  abi::Control incoming_ = {};
  SpinLock lock_;  // for what CopyConfigs copies
  abi::Control wanted_ = {};
  uint32_t configs_generation_ = 0;
  bool orphaned_ = false;
  std::atomic<uint32_t> flush_interval_ms_{kDefaultFlushMs};
};

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_ITERATIONS_CONTROL_MIRROR_H_
