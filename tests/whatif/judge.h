// What-if judged by recorded traces: how well a replay without change gives the measured time, and
// a replay with a change that of the changed run. Times are those of the shared collection of
// traces (its README and trace_stats.py define them).
//
// Threading: free functions. Ownership: values.
#ifndef TESTS_WHATIF_JUDGE_H_
#define TESTS_WHATIF_JUDGE_H_

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "daemon/trace/marks.h"
#include "daemon/trace/trace.h"
#include "daemon/whatif/graph.h"

namespace seqpoint::whatif {

// One line of the judgement. NaN, -1, empty: does not apply, null in JSON.
struct Verdict {
  std::string file;
  std::string check;  // boundaries, replay, cut, pair, collective, speed
  int64_t iterations_true = -1, iterations_detected = -1;
  double measured_ms = NAN, predicted_ms = NAN;
  double error = NAN;  // predicted / measured - 1; of collectives the mean, see `worst_us`
  double low_ms = NAN, high_ms = NAN;  // of the prediction, with a confidence of 95 %
  double target = NAN;                 // |error| of this line that is to be reached; NaN: none
  int64_t tasks = -1, edges = -1;
  int64_t left_out = -1;                             // tasks and elements of the file
  double import_mb_s = NAN, import_gzip_mb_s = NAN;  // unpacked text
  double graph_tasks_s = NAN, replay_tasks_s = NAN;
  // By what GPU tasks start, or collectives end, at another time than measured.
  double mean_us = NAN, worst_us = NAN;
  double worst_error = NAN;  // of an iteration's replay, the first one included
  std::string note;

  bool training() const { return iterations_true >= 2; }
  bool reached() const { return !(std::abs(error) > target); }
  bool whole_run() const { return std::isfinite(low_ms); }
  bool covered() const { return low_ms <= measured_ms && measured_ms <= high_ms; }
};

std::string ToJson(absl::Span<const Verdict> verdicts);
std::string ToTables(absl::Span<const Verdict> verdicts);

// Errors of replays that are to be reached over all training traces.
inline constexpr double kReplayMean = 0.01, kReplayWorst = 0.03;
inline constexpr double kPairWorst = 0.05, kCollectiveMean = 0.02;

struct Recorded {
  std::string file;  // as it is shown, the path at first
  Trace trace;
  trace::IterationMarks marks;
  Graph graph;  // marks.iterations() of them, and what comes after
};
// `marker`: see trace::FindMarks.
absl::StatusOr<Recorded> ReadRecorded(const std::string& path, const std::string& marker = "");

// The same as a profiler that started at `at_ns` would have left it: calls and annotations that
// began before are missing, and so is the GPU work that had started. What was launched before and
// starts later has no call.
Recorded CutOff(const Recorded& whole, int64_t at_ns, const std::string& marker = "");
// Where the first third of the iterations ends: in the middle of one, and where the next begins.
std::vector<int64_t> CutsNs(const Recorded& whole);

// Distance of the first GPU starts of consecutive iterations, or of their marks. The last iteration
// has none.
std::vector<double> GpuPeriodsMs(const Recorded& recorded);
std::vector<double> MarkPeriodsMs(const trace::IterationMarks& marks);

// The learner's iterations against the trace's marks. A trace without marks may have its training
// steps in a table beside it: STEM_steps.tsv with columns `kind` and `start_ms`.
Verdict JudgeBoundaries(const std::string& path, const Recorded& recorded);
// By the mean GPU period; a trace of fewer than two iterations by its whole length.
Verdict JudgeReplay(const Recorded& recorded);
// Measured: the median distance of `after`'s marks. Predicted: the median period of `before`, with
// `request` applied.
absl::StatusOr<Verdict> JudgePair(const Recorded& before, const Recorded& after,
                                  const std::string& request);

// Data loading in processes of its own: it is gone from the training process, which is slower for
// it. Neither constant comes from the traces that it is judged by.
struct LoaderModel {
  // By how much each process that runs slows the others. Cores share power: one more that is active
  // costs about one bin of turbo, 100 MHz of some 3.5 GHz (Intel, "Available Bins of Intel Turbo
  // Boost Technology", article 000056901: on a Xeon E5-2667 v2 one bin a core from one to four).
  double slower_per_process = 0.03;
  // How much longer the first reading of a batch from newly mapped shared memory takes than one
  // from memory that is in use (first_read.py: 1.41 to 1.46 while the machine was quiet).
  double first_read = 1.45;
  double receive_ms = 0.7;  // a tensor of the batch from another process
  double free_gb_s = 8;     // the memory of the batch before
  int processes = 4;
};
// The what-if for a trace that loads its data in between.
std::string LoaderRequest(const Recorded& recorded, const LoaderModel& model);

// The kernels of an optimiser's step in place of which one does it all: their time together.
// Published traces have only the side before it.
Verdict JudgeFusedAdam(const Recorded& recorded);

// Traces of several ranks of one job, replayed together. Error: of the ends of collectives,
// relative to the time of an iteration of that rank, the mean over all ranks.
Verdict JudgeCollectives(absl::Span<const Recorded* const> ranks);

// By the processor time of one thread.
Verdict JudgeSpeed(const std::string& path, const Recorded& recorded);

// A launch-bound training step over and over: `tasks` in all, half of them on the GPU.
Graph SyntheticGraph(uint32_t tasks);

}  // namespace seqpoint::whatif

#endif  // TESTS_WHATIF_JUDGE_H_
