#include "daemon/jobs/step_clock.h"

#include <algorithm>
#include <cstdint>

namespace seqpoint::jobs {

int64_t StepClock::Advance(const std::map<int32_t, int64_t>& durations_ns) {
  const bool same_ranks =
      std::equal(durations_ns.begin(), durations_ns.end(), behind_ns_.begin(), behind_ns_.end(),
                 [](const auto& a, const auto& b) { return a.first == b.first; });
  if (!same_ranks) {
    behind_ns_.clear();
    for (const auto& [rank, duration_ns] : durations_ns) behind_ns_[rank] = 0;
  }
  int64_t step_ns = 0;
  for (const auto& [rank, duration_ns] : durations_ns) {
    step_ns = std::max(step_ns, duration_ns - behind_ns_[rank]);
  }
  for (const auto& [rank, duration_ns] : durations_ns) {
    behind_ns_[rank] += step_ns - duration_ns;
  }
  return step_ns;
}

}  // namespace seqpoint::jobs
