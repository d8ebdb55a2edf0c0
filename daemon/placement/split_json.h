// The published form of a placement: JSON (docs/formats/placement-files.md, "The split file").
//
// Source: github.com/msr-fiddle/dnn-partitioning, throughput-dp/dp.cpp (Result,
// augmentHumanExpertToTrainingWithColocations). Threading: free functions. Ownership: values only.
#ifndef SEQPOINT_DAEMON_PLACEMENT_SPLIT_JSON_H_
#define SEQPOINT_DAEMON_PLACEMENT_SPLIT_JSON_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "daemon/placement/judge.h"
#include "daemon/placement/problem.h"

namespace seqpoint::placement {

// Backward operators that are in no list sit with the forward operators of their color; others are
// nowhere (-1), which the judge reports. `file` is the name for messages. InvalidArgument: one
// sentence with the file and the operator.
absl::StatusOr<Placement> ReadSplit(std::string_view text, const std::string& file,
                                    const Problem& problem);

// `judgement`: of this placement.
std::string WriteSplit(const Problem& problem, const Placement& placement,
                       const Judgement& judgement);

}  // namespace seqpoint::placement

#endif  // SEQPOINT_DAEMON_PLACEMENT_SPLIT_JSON_H_
