// The what-if presets that there are, as the API shows them. docs/using/whatif.md
// Threading: pure functions. Ownership: values.
#ifndef DAEMON_QUERIES_PRESETS_H_
#define DAEMON_QUERIES_PRESETS_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::queries {

// InvalidArgument: there is no preset of the name, with those that there are.
absl::StatusOr<v1::ListPresetsReply> ListPresets(const v1::ListPresetsRequest& request);

// The presets that are named exist, and have the parameters that are given. InvalidArgument names
// the first that does not.
absl::Status CheckPresets(const v1::WhatIfRequest& request);

}  // namespace seqpoint::queries

#endif  // DAEMON_QUERIES_PRESETS_H_
