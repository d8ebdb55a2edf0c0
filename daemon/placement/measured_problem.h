// Placement problems from recordings: the operator graph of an execution trace with the times of
// the same operators, for one sequence length or for several. docs/formats/operator-costs.md.
//
// Pure functions; values. Any thread.
#ifndef SEQPOINT_DAEMON_PLACEMENT_MEASURED_PROBLEM_H_
#define SEQPOINT_DAEMON_PLACEMENT_MEASURED_PROBLEM_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "daemon/placement/whole_run.h"
#include "daemon/trace/trace.h"
#include "daemon/traces/execution_trace.h"

namespace seqpoint::placement {

// PCI Express 3.0 x16, one direction: PCI-SIG, "PCI Express Base Specification 3.0".
inline constexpr double kDefaultBytesPerSecond = 15.75e9;

struct Recording {
  std::string name;   // "length 25", or the file
  double weight = 1;  // share of the run, any scale, above 0
  traces::ExecutionTrace graph;
  trace::Trace times;
};

struct DevicesAsked {
  int accelerators = 1;
  int cpus = 0;
  double memory_bytes = 0;  // of each accelerator
  // Between an accelerator and host memory; without it as the recorded copies show, or
  // kDefaultBytesPerSecond.
  std::optional<double> bytes_per_second;
};

// One recording, in figures for people. Times in ms.
struct RecordingFacts {
  std::string name;
  double iteration = 0;  // from the first begin to the last end
  double loads = 0;      // the sum over the operators of the problem
  double update = 0;     // the optimizer's step, a part of `loads`
  double between = 0;    // on the CPU between operators, a part of `loads` (CPU times)
  // GPU work that no operator launched; not in `loads` (GPU times).
  double without_operator = 0;
  int operators = 0;
  int without_time = 0;  // operators that the time line does not have
  bool joined_by_id = false;
};

struct MeasuredRun {
  // One for each recording, in their order: the same operators and edges.
  std::vector<WeightedProblem> problems;
  std::vector<RecordingFacts> recordings;
  // In words, by the ids of the problem's operators: the trace's ids of the first recording that
  // the operator stands for, ascending.
  std::vector<std::vector<uint64_t>> trace_ids;
  bool gpu_times = false;  // else the times are those of the CPU, on every device
  // The recordings differ in their numbers of operators: operators between the same parameters are
  // one, so that the graph is the same at each length.
  bool folded = false;
  double bytes_per_second = 0;
  bool bandwidth_measured = false;
};

// InvalidArgument or FailedPrecondition with a sentence: no recording, a graph or times that cannot
// be used, GPU times in some recordings only, CPU cores asked for with GPU times, recordings of
// different models.
absl::StatusOr<MeasuredRun> MakeMeasuredRun(absl::Span<const Recording> recordings,
                                            const DevicesAsked& devices);

}  // namespace seqpoint::placement

#endif  // SEQPOINT_DAEMON_PLACEMENT_MEASURED_PROBLEM_H_
