// The metric configurations that the daemon wants, as the control block had them last.
// Threading: plain data.
#ifndef SEQPOINT_INJECTION_COUNTERS_WANTED_CONFIGS_H_
#define SEQPOINT_INJECTION_COUNTERS_WANTED_CONFIGS_H_

#include <stdint.h>

#include "injection/abi/control.h"

namespace seqpoint::inject {

struct WantedConfigs {
  abi::MetricConfig configs[abi::kMaxConfigs];
  abi::CounterBackend backend;
  uint32_t generation;  // 0: no control block was seen; raised with each change
};

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_COUNTERS_WANTED_CONFIGS_H_
