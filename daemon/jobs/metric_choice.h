// What a job counts: the sets it was asked for, the backend, and, once a process has told which
// chip its GPU has, the configurations for that chip. They never change afterwards: what is stored
// belongs to them.
//
// Threading: none of its own. Ownership: values.
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

  // What the request does not name stays as in `current`. Errors: NotFound and InvalidArgument, as
  // CombineMetricSets; a wrong own set.
  static absl::StatusOr<MetricChoice> From(const v1::PrepareJobRequest& request,
                                           const MetricChoice& current = MetricChoice());

  // False: nothing changed, the chip was known. An error: the sets are too many on this chip; then
  // nothing is counted.
  absl::StatusOr<bool> SetChip(std::string_view chip);
  // Has `chip` the same configurations as the one they were made for?
  bool Fits(std::string_view chip) const;

  // No configurations while the chip is not known.
  const counters::MetricSet& set() const { return set_; }
  const std::string& chip() const { return chip_; }
  counters::Backend backend() const { return backend_; }
  // Single kernels are measured, too.
  bool wants_roofline() const { return wants_roofline_; }
  // Without configurations while the chip is not known, when it is not wanted or cannot be had:
  // then why, in a sentence.
  const counters::Roofline& roofline() const { return roofline_; }
  const std::string& no_roofline() const { return no_roofline_; }
  // Why nothing is counted on this chip, in a sentence; else empty.
  const std::string& no_counters() const { return no_counters_; }
  // Is it one of the roofline's?
  // "cache", "trace", "" for none.
  std::string NameOf(uint32_t config_id) const;
  static bool OfKernels(uint32_t config_id) {
    return config_id >= counters::kFirstRooflineConfigId && config_id < counters::kFirstOwnConfigId;
  }
  // "utilisation,cache (pm)": what to say of it.
  std::string InWords() const;
  // Asked for the same.
  bool SameAs(const MetricChoice& other) const;

  MetricChoiceState Save() const;
  // Configurations are those that were saved, whatever newer tables say.
  static absl::StatusOr<MetricChoice> Restore(const MetricChoiceState& state);

 private:
  absl::StatusOr<counters::MetricSet> Resolve(std::string_view chip) const;
  void ChooseRoofline();
  void SetNothing(const absl::Status& why);

  std::vector<std::string> names_;
  std::vector<v1::MetricSet> own_;
  counters::Backend backend_ = counters::Backend::kRange;
  std::string chip_;
  counters::MetricSet set_;
  bool wants_roofline_ = false;
  counters::Roofline roofline_;
  std::string no_roofline_, no_counters_;
};

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_METRIC_CHOICE_H_
