#include "daemon/trace/correlations.h"

#include <algorithm>

namespace seqpoint::trace {

bool Launches(CallKind kind) {
  return kind == CallKind::kLaunch || kind == CallKind::kGraphLaunch || kind == CallKind::kCopy ||
         kind == CallKind::kMemset;
}

Correlations::Correlations(const Trace& trace) {
  uint64_t low = UINT64_MAX, high = 0;
  for (const Call& call : trace.calls) {
    if (call.correlation == 0) continue;
    low = std::min(low, call.correlation);
    high = std::max(high, call.correlation);
  }
  // The correlations of one process are.
  const bool dense = high >= low && high - low < 16 * trace.calls.size() + 1024;
  if (dense) {
    low_ = low;
    by_id_.assign(high - low + 1, kNone);
  }
  for (uint32_t i = 0; i < trace.calls.size(); ++i) {
    const Call& call = trace.calls[i];
    if (call.correlation == 0) continue;
    uint32_t& known = dense ? by_id_[call.correlation - low_]
                            : by_hash_.try_emplace(call.correlation, kNone).first->second;
    if (known == kNone || Launches(call.kind)) known = i;
  }
}

}  // namespace seqpoint::trace
