// What a job knows of its single kernels, for the roofline: the measurements of each length and
// configuration, and the answer made of them. Values of several configurations come from different
// iterations; they are joined by the kernel's name, between iterations of exactly the same length
// that launched it equally often.
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
#include "daemon/counters/roofline.h"
#include "daemon/jobs/state.pb.h"
#include "daemon/seqpoint/engine.h"
#include "injection/abi/records.h"
#include "seqpoint/v1/profiler.pb.h"

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

  // What is still to be measured, each once: of the lengths that have measurements already, then of
  // those SeqPoints that stand for most iterations. `configs`: those that can be collected.
  std::vector<PlanEntry> Plan(const std::vector<uint32_t>& configs,
                              std::vector<SeqPointInfo> points) const;
  int measurements() const { return state_.measurements_size(); }
  int attempts() const { return state_.attempts(); }

  // Kernels by their share of time. Lengths are in feature units.
  v1::GetRooflineReply Answer(const counters::Roofline& roofline) const;

  const RooflineState& state() const { return state_; }
  void Load(RooflineState state) { state_ = std::move(state); }

 private:
  const KernelMeasurementState* Find(const Key& length, uint32_t config_id) const;
  std::vector<Key> Lengths() const;  // in the order they were measured

  RooflineState state_;
};

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_ROOFLINE_H_
