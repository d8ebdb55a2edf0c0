// Metric sets: what `seqpoint metrics` prints, and own sets from a file for `seqpoint run`.
// Threading: one thread at a time (the CUPTI host library asks for it).
#ifndef CLIENT_COMMANDS_METRICS_H_
#define CLIENT_COMMANDS_METRICS_H_

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/counters/metric_sets.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::client {

// --metrics-file, wherever sets of the user's own can be given.
void AddMetricsFile(CLI::App* command, std::string* file);

struct MetricsOptions {
  std::string set;   // empty: all
  std::string chip;  // "GH100"
  std::string file;  // own sets
};

// Sets of a file (docs/counters.md). Errors: the path, or line, value and way out.
absl::StatusOr<std::vector<counters::OwnSet>> ReadMetricFile(const std::string& path);

// An error names the first metric that no chip offers to the backend; OK where CUPTI's host library
// is not here to be asked.
absl::Status CheckOffered(const std::vector<counters::OwnSet>& sets, counters::Backend backend,
                          const std::string& path);

// An error names the first that is neither of `own` nor shipped.
absl::Status CheckNames(const std::vector<std::string>& names,
                        const std::vector<counters::OwnSet>& own);

v1::MetricSet ToProto(const counters::OwnSet& set);

// Errors: as ReadMetricFile; InvalidArgument, naming the sets or chips there are.
absl::StatusOr<std::string> DescribeMetrics(const MetricsOptions& options, bool json);

}  // namespace seqpoint::client

#endif  // CLIENT_COMMANDS_METRICS_H_
