// The measurements of a job's single kernels, for the roofline: those of each length and
// configuration.
//
// Threading: none of its own. Ownership: values.
#ifndef DAEMON_JOBS_ROOFLINE_H_
#define DAEMON_JOBS_ROOFLINE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "daemon/jobs/state.pb.h"
#include "daemon/seqpoint/engine.h"
#include "injection/abi/records.h"

namespace seqpoint::jobs {

// The kernels of an iteration while they arrive, one event each.
class ArrivingKernels {
 public:
  void Add(const abi::KernelCountersEvent& event, const std::string& name,
           absl::Span<const double> values);
  // The iteration's own event came: all its kernels, or nothing when some did not come. Nothing is
  // arriving any more.
  std::optional<KernelMeasurementState> Take(const abi::CountersEvent& event);

 private:
  uint64_t iteration_ = 0;
  uint32_t announced_ = 0;
  uint32_t arrived_ = 0;
  KernelMeasurementState measurement_;
};

class RooflineMeasurements {
 public:
  static constexpr size_t kMaxLengths = 4;

  // A configuration of kernels was measured, or failed to be.
  void CountAttempt() { state_.set_attempts(state_.attempts() + 1); }
  // A second one of the same length and configuration is not used.
  void Add(KernelMeasurementState measurement);
  // Lengths are others from now on.
  void Clear() { state_.Clear(); }

  // The measurements that are missing, each once: of the lengths that have some already, then of
  // those SeqPoints that stand for most iterations. `configs`: those that can be collected.
  std::vector<PlanEntry> Plan(const std::vector<uint32_t>& configs,
                              std::vector<SeqPointInfo> points) const;
  int measurements() const { return state_.measurements_size(); }
  int attempts() const { return state_.attempts(); }

  // Null when there is none.
  const KernelMeasurementState* Find(const Key& length, uint32_t config_id) const;
  std::vector<Key> Lengths() const;  // in the order they were measured

  const RooflineState& state() const { return state_; }
  void Load(RooflineState state) { state_ = std::move(state); }

 private:
  RooflineState state_;
};

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_ROOFLINE_H_
