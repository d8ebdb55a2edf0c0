// SeenLengths: the lengths that a process had. The first iteration of a length is cold: it takes
// longer, and is no sample of the others.
//
// Threading: one thread at a time. Ownership: values only.
#ifndef DAEMON_JOBS_SEEN_LENGTHS_H_
#define DAEMON_JOBS_SEEN_LENGTHS_H_

#include <cstdint>

#include "absl/container/flat_hash_set.h"
#include "daemon/seqpoint/engine.h"

namespace seqpoint::jobs {

class SeenLengths {
 public:
  // True when one of its lengths is new at its place in an iteration.
  bool Add(const MicroBatch& part, int dimensions) {
    auto* const seen = seen_[static_cast<size_t>(part.kind)];
    bool first = false;
    if (dimensions > 0) first |= seen[0].insert(part.key.first).second;
    if (dimensions > 1) first |= seen[1].insert(part.key.second).second;
    return first;
  }
  // `length`: the first dimension of a whole iteration.
  bool Contains(int64_t length) const { return seen_[0][0].contains(length); }
  void Clear() {
    for (auto& seen : seen_) seen[0].clear(), seen[1].clear();
  }
  // Adds the lengths that the engine saw of the job's processes.
  void Load(const OnlineEngine& engine) {
    for (int kind = 0; kind < kKinds; ++kind) {
      for (int i = 0; i < 2; ++i) {
        for (const int64_t length : engine.SeenLengths(i, static_cast<MicroBatch::Kind>(kind))) {
          seen_[kind][i].insert(length);
        }
      }
    }
  }

 private:
  static constexpr int kKinds = 3;  // MicroBatch::Kind

  absl::flat_hash_set<int64_t> seen_[kKinds][2];
};

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_SEEN_LENGTHS_H_
