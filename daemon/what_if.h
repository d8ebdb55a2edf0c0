// One what-if: changes, understood, applied to all traces of a job, and what they do to its run.
//
// Threading: free functions. Ownership: values.
#ifndef DAEMON_WHAT_IF_H_
#define DAEMON_WHAT_IF_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "daemon/jobs/answers.h"
#include "daemon/recorded_run.h"
#include "daemon/whatif/preset.h"
#include "daemon/whatif/recording.h"
#include "daemon/whatif/report.h"
#include "daemon/whatif/transform/transform.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint {

// A change, and the preset that it comes from.
struct NamedChange {
  whatif::Change change;
  std::optional<whatif::Preset> preset;
  std::string name;  // "amp,compute=4"
};

// InvalidArgument: a change that is not understood, with its place.
absl::StatusOr<NamedChange> Understand(const v1::WhatIfChange& asked);

// The kernels whose position on the roofline was measured.
whatif::Bounds BoundsOf(const v1::GetRooflineReply& roofline);

// The replays of what was not changed, by stretch.
absl::StatusOr<std::vector<whatif::Outcome>> RunAll(const RecordedRun& run, Cancelled cancelled);

struct Unchanged {
  std::vector<whatif::Outcome> outcomes;                 // of Stretch::recording
  std::vector<std::vector<std::vector<double>>> others;  // of Stretch::other, times alone
};
absl::StatusOr<Unchanged> RunUnchanged(const RecordedRun& run, Cancelled cancelled);

struct WhatIfOptions {
  double confidence = 0.95;
  double replay_error = 0;  // of what was not changed, relative
  bool whole = true;        // with kernels and critical paths
};
// Also sets what all answers to one question share: iterations, whole_run, basis.
absl::StatusOr<v1::WhatIfAnswer> Answer(const std::vector<NamedChange>& changes,
                                        const RecordedRun& run, const Unchanged& before,
                                        const whatif::Bounds& bounds, const jobs::Answers& answers,
                                        const WhatIfOptions& options, Cancelled cancelled,
                                        v1::WhatIfReply* reply);

// Of a mean iteration, longest first: `shares_ns` of `iterations`, whose time is `time_ns`.
// `calls_ns`: of calls that launch nothing, by name.
inline constexpr size_t kShares = static_cast<size_t>(whatif::Share::kCount);
void SetShares(const double* shares_ns, double iterations, double time_ns,
               const absl::flat_hash_map<std::string, double>& calls_ns,
               google::protobuf::RepeatedPtrField<v1::TimeShare>* to);

// What the steps of all stretches take, one after the other.
struct Spent {
  std::vector<double> times_ns;
  std::vector<const whatif::Shares*> paths, idle;
  std::vector<const absl::flat_hash_map<std::string, double>*> kernels_ns;

  void Add(const Stretch& stretch, const whatif::Outcome& outcome);
};

}  // namespace seqpoint

#endif  // DAEMON_WHAT_IF_H_
