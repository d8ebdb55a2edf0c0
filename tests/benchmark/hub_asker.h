// Asker: asks a hub ten times a second, as a few people with `seqpoint top` do.
//
//   Asker asker(hub, [](Api& api) { return AskForProjection(api, "load"); });
//   ... asker.End(); asker.Quantile(0.99)
//
// Threading: one of its own; the answers are there after End. Ownership: a pointer to the hub.
#ifndef SEQPOINT_TESTS_BENCHMARK_HUB_ASKER_H_
#define SEQPOINT_TESTS_BENCHMARK_HUB_ASKER_H_

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/benchmark/hub_parts.h"

namespace seqpoint {

class Asker {
 public:
  // `ask`: false where the hub gave no answer.
  Asker(const HubProcess& hub, std::function<bool(Api&)> ask)
      : hub_(hub), ask_(std::move(ask)), thread_([this] { Run(); }) {}
  ~Asker() { End(); }
  void End() {
    ending_ = true;
    if (thread_.joinable()) thread_.join();
  }
  // In ms, after End; NAN: nobody answered.
  double Quantile(double share) {
    if (times_ms_.empty()) return NAN;
    std::sort(times_ms_.begin(), times_ms_.end());
    const double rank = std::ceil(share * static_cast<double>(times_ms_.size()));
    return times_ms_[static_cast<size_t>(std::max(rank - 1, 0.0))];
  }
  int64_t answers() const { return static_cast<int64_t>(times_ms_.size()); }
  int64_t refusals() const { return refusals_; }

 private:
  void Run() {
    Api api = hub_.NewApi();
    absl::Time next = absl::Now();
    while (!ending_) {
      const absl::Time asked = absl::Now();
      if (ask_(api)) {
        times_ms_.push_back(absl::ToDoubleMilliseconds(absl::Now() - asked));
      } else {
        ++refusals_;
      }
      next = std::max(next + absl::Milliseconds(100), absl::Now());
      absl::SleepFor(next - absl::Now());
    }
  }

  const HubProcess& hub_;
  const std::function<bool(Api&)> ask_;
  std::atomic<bool> ending_ = false;
  std::vector<double> times_ms_;
  int64_t refusals_ = 0;
  std::thread thread_;
};

inline bool AskForProjection(Api& api, const std::string& job) {
  v1::ProjectRequest request;
  request.set_job(job);
  return api.Call(&v1::Profiler::Stub::Project, request).has_value();
}

}  // namespace seqpoint

#endif  // SEQPOINT_TESTS_BENCHMARK_HUB_ASKER_H_
