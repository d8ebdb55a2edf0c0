// `seqpoint place --trace`: reads recordings of a model, and says what they hold
// (docs/formats/operator-costs.md).
// Threading: none. Ownership: values only.
#ifndef CLIENT_PLACE_RECORDINGS_H_
#define CLIENT_PLACE_RECORDINGS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/placement/measured_problem.h"

namespace seqpoint::client {

// One "--trace": ET,TIMES or ET,TIMES@LENGTH.
struct TraceArgument {
  std::string graph;
  std::string times;
  std::optional<int64_t> length;
  // Said otherwise than by the argument: for tables, and the share of the run, in any scale.
  std::string name;
  std::optional<double> weight;
  std::optional<double> usual_ms;  // iterations of this length that were not recorded
};

// A sentence about recorded iterations that took much longer or shorter than others of their
// length, whose costs the placement then rests on; empty: there is none.
std::string UnusualRecordings(const std::vector<TraceArgument>& traces,
                              const placement::MeasuredRun& run);
absl::StatusOr<TraceArgument> ParseTraceArgument(const std::string& argument);

struct RecordingsAsked {
  std::vector<TraceArgument> traces;
  // CSV whose rows are the iterations of the run: each counts for the recorded length that is
  // nearest to its own. Empty: all recordings count the same.
  std::string lengths;
  placement::DevicesAsked devices;
  bool memory_said = false;  // else each accelerator holds the whole model
};
absl::StatusOr<placement::MeasuredRun> ReadRecordings(const RecordingsAsked& asked);

enum class Pipeline { kDecoupled, kLockStep };

// The time of a placement over all lengths.
double PipelineTime(const placement::MeasuredRun& run, const placement::Placement& placement,
                    Pipeline pipeline);

// A table of the recordings with the largest load that `placement` has at each, and notes; `note`:
// one more, or empty.
std::string RecordingsText(const placement::MeasuredRun& run, const placement::Placement& placement,
                           const std::string& note = "");
// Fields of a JSON object, without its braces: "recordings", "pipelines", ...
std::string RecordingsJson(const placement::MeasuredRun& run,
                           const placement::Placement& placement);

}  // namespace seqpoint::client

#endif  // CLIENT_PLACE_RECORDINGS_H_
