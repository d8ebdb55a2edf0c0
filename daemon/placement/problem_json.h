// The published form of a placement problem: JSON (docs/formats/placement-files.md, "The problem
// file").
//
// Source: github.com/msr-fiddle/dnn-partitioning, throughput-dp/dp.cpp (from_json). Threading: free
// functions. Ownership: values only.
#ifndef SEQPOINT_DAEMON_PLACEMENT_PROBLEM_JSON_H_
#define SEQPOINT_DAEMON_PLACEMENT_PROBLEM_JSON_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/placement/problem.h"

namespace seqpoint::placement {

inline constexpr int kMostDevices = 4096;  // of a kind: more than any pipeline has stages
// More than any machine has, and a count of bytes still fits into 64 bits.
inline constexpr double kMostBytes = 0x1p63;

// `file` is the name for messages. InvalidArgument: one sentence with the file, and the operator or
// the line. A problem without any device is read: they may be said elsewhere.
absl::StatusOr<Problem> ReadProblem(std::string_view text, const std::string& file);

// The checks that ReadProblem makes of the graph, whose times and sizes are finite and not
// negative: ids, edges, sums and largest sizes, and that no edges lead in a circle. Also takes out
// edges that are there twice.
absl::Status CheckProblem(const std::string& file, Problem* problem);

}  // namespace seqpoint::placement

#endif  // SEQPOINT_DAEMON_PLACEMENT_PROBLEM_JSON_H_
