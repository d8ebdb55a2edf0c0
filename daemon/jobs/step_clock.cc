#include "daemon/jobs/step_clock.h"

#include <algorithm>

namespace seqpoint::jobs {

int64_t AdvanceClock(const google::protobuf::Map<int32_t, int64_t>& durations_ns,
                     google::protobuf::Map<int32_t, int64_t>& behind_ns) {
  const bool same_ranks =
      durations_ns.size() == behind_ns.size() &&
      std::all_of(durations_ns.begin(), durations_ns.end(),
                  [&](const auto& entry) { return behind_ns.contains(entry.first); });
  if (!same_ranks) behind_ns.clear();
  int64_t step_ns = 0;
  for (const auto& [rank, duration_ns] : durations_ns) {
    step_ns = std::max(step_ns, duration_ns - behind_ns[rank]);
  }
  for (const auto& [rank, duration_ns] : durations_ns) {
    behind_ns[rank] += step_ns - duration_ns;
  }
  return step_ns;
}

}  // namespace seqpoint::jobs
