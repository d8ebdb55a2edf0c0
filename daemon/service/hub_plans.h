// HubPlans: what the hub of this node wants of its processes, on the way to their jobs.
//
//   uplink:         plans.Offer(plan); plans.Heard(now_ns);
//   ingest thread:  for (const v1::Plan& plan : plans.Take()) ...; plans.heard_ns()
//
// Threading: thread-safe. Memory: one plan of each process, at most kMostProcesses.
#ifndef DAEMON_SERVICE_HUB_PLANS_H_
#define DAEMON_SERVICE_HUB_PLANS_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "seqpoint/v1/ingest.pb.h"

namespace seqpoint::service {

class HubPlans {
 public:
  // Plans of a hub that is not heard of hold for so long.
  static constexpr int64_t kFreshNs = 60'000'000'000;
  static constexpr size_t kMostProcesses = 4096;

  void Offer(v1::Plan plan) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    const int64_t process = plan.process();
    if (plans_.size() < kMostProcesses || plans_.contains(process)) {
      plans_[process] = std::move(plan);
    }
  }
  // The latest of each process since the last call.
  std::map<int64_t, v1::Plan> Take() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return std::exchange(plans_, {});
  }

  // The stream to the hub stands, at this monotonic time.
  void Heard(int64_t monotonic_ns) { heard_ns_.store(monotonic_ns, std::memory_order_relaxed); }
  int64_t heard_ns() const { return heard_ns_.load(std::memory_order_relaxed); }

 private:
  absl::Mutex mutex_;
  std::map<int64_t, v1::Plan> plans_ ABSL_GUARDED_BY(mutex_);
  std::atomic<int64_t> heard_ns_ = 0;
};

}  // namespace seqpoint::service

#endif  // DAEMON_SERVICE_HUB_PLANS_H_
