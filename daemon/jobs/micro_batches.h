// MicroBatches: the number of micro-batches in an iteration, where lengths are sums over them
// (gradient accumulation).
//
// Threading: one thread at a time. Ownership: values only.
#ifndef DAEMON_JOBS_MICRO_BATCHES_H_
#define DAEMON_JOBS_MICRO_BATCHES_H_

#include <cstdint>

#include "daemon/jobs/state.pb.h"

namespace seqpoint::jobs {

class MicroBatches {
 public:
  // An iteration had `count`; the rule has `usual`.
  void Add(uint32_t count, uint32_t usual) {
    state_.set_iterations(state_.iterations() + 1);
    state_.set_micro_batches(state_.micro_batches() + count);
    if (count != usual) state_.set_unusual_iterations(state_.unusual_iterations() + 1);
  }
  void Clear() { state_.Clear(); }

  // Their number changes within an epoch.
  bool vary() const {
    constexpr int64_t kLeastIterations = 16;
    constexpr double kUnusualShare = 0.1;  // the last iteration of each epoch may have fewer
    return iterations() >= kLeastIterations &&
           static_cast<double>(unusual()) > kUnusualShare * static_cast<double>(iterations());
  }
  double mean() const {
    return static_cast<double>(state_.micro_batches()) / static_cast<double>(iterations());
  }
  int64_t iterations() const { return state_.iterations(); }
  int64_t unusual() const { return state_.unusual_iterations(); }

  const MicroBatchesState& state() const { return state_; }
  void Load(const MicroBatchesState& state) { state_ = state; }

 private:
  MicroBatchesState state_;
};

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_MICRO_BATCHES_H_
