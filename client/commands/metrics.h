// `seqpoint metrics`: the metric sets that there are, as the daemon knows them; and files of own
// sets, for `seqpoint run`, too.
// Threading: one thread.
#ifndef CLIENT_COMMANDS_METRICS_H_
#define CLIENT_COMMANDS_METRICS_H_

#include <CLI/CLI.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::client {

// --metrics-file, wherever sets of the user's own can be given.
void AddMetricsFile(CLI::App* command, std::string* file);

// The file as the daemon takes it, which says what is wrong with it. InvalidArgument: it cannot be
// read, or is too long.
absl::StatusOr<v1::MetricFile> ReadMetricFile(const std::string& path);

// A table of the sets, or all about one that was asked for.
std::string MetricSetsText(const v1::ListMetricSetsReply& reply);
std::string MetricSetText(const v1::OfferedMetricSet& set, const std::string& chip);

}  // namespace seqpoint::client

#endif  // CLIENT_COMMANDS_METRICS_H_
