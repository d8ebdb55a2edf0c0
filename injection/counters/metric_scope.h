// Whether CUPTI counts a metric for a context or for the whole device (links).
// Threading: pure functions.
#ifndef SEQPOINT_INJECTION_COUNTERS_METRIC_SCOPE_H_
#define SEQPOINT_INJECTION_COUNTERS_METRIC_SCOPE_H_

#include <string.h>

namespace seqpoint::inject {

enum class MetricScope { kContext, kDevice, kEither };

// NVLink, C2C and PCIe are counted for the device, other units for the context (CUPTI user guide
// 2.8.2, "Configuration"), and the time with either. CUPTI itself says it of a metric only from
// 13.1 on. softgpu_real_library_test asks the host library of 13.0 about each unit of its chips.
// `name`: as "nvlrx__bytes.sum"; some begin with a group, as "PCI.TriageCompute.pcie__...".
inline MetricScope ScopeOf(const char* name) {
  if (strncmp(name, "gpu__time_duration", 18) == 0) return MetricScope::kEither;
  const char* unit = strstr(name, "__");
  if (unit == nullptr) return MetricScope::kContext;
  while (unit != name && unit[-1] != '.') --unit;
  for (const char* of_device : {"nvl", "ctc", "c2c", "pcie"}) {
    if (strncmp(unit, of_device, strlen(of_device)) == 0) return MetricScope::kDevice;
  }
  return MetricScope::kContext;
}

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_COUNTERS_METRIC_SCOPE_H_
