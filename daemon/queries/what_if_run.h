// One run of a what-if: changes are applied to all traces of a job, and projected onto its run.
//
// Threading: free functions. Ownership: values.
#ifndef DAEMON_QUERIES_WHAT_IF_RUN_H_
#define DAEMON_QUERIES_WHAT_IF_RUN_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "daemon/jobs/snapshot.h"
#include "daemon/queries/changed_run.h"
#include "daemon/queries/recorded_run.h"
#include "daemon/whatif/preset.h"
#include "daemon/whatif/recording.h"
#include "daemon/whatif/report.h"
#include "daemon/whatif/transform/transform.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::queries {

// A change, and the preset that it comes from.
struct NamedChange {
  whatif::Change change;
  std::optional<whatif::Preset> preset;
  std::string name;  // "amp,compute=4"
};

// The replays of what was not changed.
struct Unchanged {
  std::vector<whatif::Outcome> outcomes;                 // of Stretch::recording
  std::vector<std::vector<std::vector<double>>> others;  // of Stretch::other, times alone
};
absl::StatusOr<Unchanged> ReplayUnchanged(const RecordedRun& run, Cancelled cancelled);

struct WhatIfOptions {
  double confidence = 0.95;
  double replay_error = 0;  // of what was not changed, relative
  bool whole = true;        // with kernels and critical paths
};
// Also sets what all answers to one question share: iterations, whole_run, basis.
absl::StatusOr<v1::WhatIfAnswer> RunWhatIf(const std::vector<NamedChange>& changes,
                                           const RecordedRun& run, const Unchanged& before,
                                           const whatif::Bounds& bounds,
                                           const jobs::Snapshot& snapshot,
                                           const WhatIfOptions& options, Cancelled cancelled,
                                           v1::WhatIfReply* reply);

}  // namespace seqpoint::queries

#endif  // DAEMON_QUERIES_WHAT_IF_RUN_H_
