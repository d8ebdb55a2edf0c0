// MetricChoice: the metric sets that were asked for, the backend, and, once the chip of a process
// is known, the configurations for that chip. They never change afterwards: stored values belong to
// them.
//
// Threading: one thread at a time. Ownership: values only.
#ifndef DAEMON_JOBS_METRIC_CHOICE_H_
#define DAEMON_JOBS_METRIC_CHOICE_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/counters/metric_sets.h"
#include "daemon/counters/roofline.h"
#include "daemon/jobs/state.pb.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::jobs {

class MetricChoice {
 public:
  MetricChoice();  // the default set, with the range profiler

  // A field that the request does not set is taken from `current`. Errors: NotFound and
  // InvalidArgument, as CombineMetricSets; a wrong own set.
  static absl::StatusOr<MetricChoice> From(const v1::PrepareJobRequest& request,
                                           const MetricChoice& current = MetricChoice());

  // False: the chip was known before. An error: the sets are too many for this chip; then nothing
  // is counted.
  absl::StatusOr<bool> SetChip(std::string_view chip);
  // Whether `chip` has the same configurations as the chip that they were made for.
  bool Fits(std::string_view chip) const;

  // No configurations while the chip is not known.
  const counters::MetricSet& set() const { return set_; }
  const std::string& chip() const { return state_.chip(); }
  counters::Backend backend() const {
    return state_.backend() == static_cast<uint32_t>(counters::Backend::kPm)
               ? counters::Backend::kPm
               : counters::Backend::kRange;
  }
  // Single kernels are measured, too.
  bool wants_roofline() const { return state_.roofline(); }
  // Has no configurations while the chip is not known, and when the roofline is not wanted or
  // cannot be measured: no_roofline() has the reason.
  const counters::Roofline& roofline() const { return roofline_; }
  const std::string& no_roofline() const { return no_roofline_; }
  // Why nothing is counted on this chip; empty when something is.
  const std::string& no_counters() const { return no_counters_; }
  // "cache", "trace", "" for none.
  std::string NameOf(uint32_t config_id) const;
  // Whether it is a configuration of the roofline.
  static bool OfKernels(uint32_t config_id) {
    return config_id >= counters::kFirstRooflineConfigId && config_id < counters::kFirstOwnConfigId;
  }
  // "utilisation,cache (pm)"
  std::string InWords() const;
  // Whether the same sets and backend were asked for.
  bool SameAs(const MetricChoice& other) const;

  const MetricChoiceState& state() const { return state_; }
  // The configurations are the stored ones, also when the tables of this release have others.
  static absl::StatusOr<MetricChoice> Restore(const MetricChoiceState& state);

 private:
  absl::StatusOr<counters::MetricSet> Resolve(std::string_view chip) const;
  void ChooseRoofline();
  void SetNothing(const absl::Status& why);

  MetricChoiceState state_;
  counters::MetricSet set_;
  counters::Roofline roofline_;
  std::string no_roofline_, no_counters_;
};

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_METRIC_CHOICE_H_
