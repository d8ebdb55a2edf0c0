// Which call of a trace launched what: calls and work are joined by correlation.
//
// Threading: plain values. Ownership: refers to nothing.
#ifndef DAEMON_TRACE_CORRELATIONS_H_
#define DAEMON_TRACE_CORRELATIONS_H_

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "daemon/trace/trace.h"

namespace seqpoint::trace {

class Correlations {
 public:
  explicit Correlations(const Trace& trace);

  // Index in Trace::calls. Of several calls with one correlation it is the last that launches, else
  // the first. kNone: no call has it, or it is 0.
  uint32_t CallOf(uint64_t correlation) const {
    if (correlation - low_ < by_id_.size()) return by_id_[correlation - low_];
    const auto it = by_hash_.find(correlation);
    return it == by_hash_.end() ? kNone : it->second;
  }

 private:
  uint64_t low_ = 1;
  std::vector<uint32_t> by_id_;  // from low_ on, where they are dense
  absl::flat_hash_map<uint64_t, uint32_t> by_hash_;
};

bool Launches(CallKind kind);

}  // namespace seqpoint::trace

#endif  // DAEMON_TRACE_CORRELATIONS_H_
