// The metric configurations that the daemon wants, as the control block had them last.
// Threading: any thread.
#ifndef SEQPOINT_INJECTION_COUNTERS_WANTED_CONFIGS_H_
#define SEQPOINT_INJECTION_COUNTERS_WANTED_CONFIGS_H_

#include <stdint.h>
#include <string.h>

#include "injection/abi/control.h"
#include "injection/base/system.h"

namespace seqpoint::inject {

class WantedConfigs {
 public:
  struct Copy {
    abi::MetricConfig configs[abi::kMaxConfigs];
    abi::CounterBackend backend;
    uint32_t generation;  // 0: no control block was seen; raised with each change
  };

  // The first control of a daemon counts as a change: whether and on what chip counters can be had
  // is asked before any is wanted.
  void Set(const abi::Control& control) {
    const auto backend = static_cast<abi::CounterBackend>(control.counter_backend);
    LockGuard guard(&lock_);
    if (now_.generation != 0 && backend == now_.backend &&
        memcmp(now_.configs, control.config, sizeof(now_.configs)) == 0) {
      return;
    }
    memcpy(now_.configs, control.config, sizeof(now_.configs));
    now_.backend = backend;
    ++now_.generation;
  }
  void CopyTo(Copy* copy) {
    LockGuard guard(&lock_);
    memcpy(copy, &now_, sizeof(now_));
  }

 private:
  SpinLock lock_;
  Copy now_ = {};
};

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_COUNTERS_WANTED_CONFIGS_H_
