// A job's traces, from the store, as stretches of its run that can be run again: our own windows,
// and traces that were imported.
//
// Threading: free functions and plain values. Ownership: a run outlives the store and the
// snapshot that it was read from.
#ifndef DAEMON_QUERIES_RECORDED_RUN_H_
#define DAEMON_QUERIES_RECORDED_RUN_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/jobs/snapshot.h"
#include "daemon/seqpoint/key.h"
#include "daemon/store/store.h"
#include "daemon/traces/window_reader.h"
#include "daemon/whatif/recording.h"

namespace seqpoint::queries {

// A window is replayed so many times in a row; the iteration before the last one counts, as the one
// before it may still show that the window began with an idle GPU, and the last one has no next.
inline constexpr int kTurns = 4;
inline constexpr size_t kCountedTurn = kTurns - 2;

using Pieces = std::vector<std::pair<int32_t, int64_t>>;  // of the store: rank and number

// A stretch, and which of its iterations count.
struct Stretch {
  struct Step {
    size_t index = 0;  // in Outcome::duration_ns
    int64_t number = 0;
    Key key;
    double measured_ns = 0;  // 0: not known
  };
  whatif::Recording recording;
  // For a window: `recording` has the cost of recording taken off the calls, this one has it taken
  // off the program's work between them. The truth is in between. Where the times do not tell the
  // cost, nothing is taken off in `recording`, and the usual price in this one.
  whatif::Recording other;
  size_t calls = 0, works = 0;        // of a window, in its trace
  std::vector<int64_t> first_number;  // by rank, of an imported one
  std::vector<Step> steps;
  Pieces pieces;                                       // in the store, by rank
  std::optional<traces::WindowReader::Window> window;  // on the CPU; replayed kTurns times in a row
};

struct RecordedRun {
  int64_t job_id = 0;
  Pieces pieces;  // as the store lists them
  std::vector<Stretch> stretches;
  std::vector<std::string> left_out;
  int64_t tasks = 0;
};

// Whether nobody waits for the answer any more.
using Cancelled = absl::FunctionRef<bool()>;
absl::Status CheckAsked(Cancelled cancelled);

// `pieces`: all traces of the job, as the store lists them. FailedPrecondition, and why, where none
// can be run again.
absl::StatusOr<RecordedRun> ReadRecordedRun(Store& store, const jobs::Snapshot& snapshot,
                                            const Pieces& pieces, Cancelled cancelled);

// Times of the stretch's steps, each as long as its slowest rank, from Outcome::duration_ns.
std::vector<double> StepTimes(const Stretch& stretch,
                              const std::vector<std::vector<double>>& duration_ns);

}  // namespace seqpoint::queries

#endif  // DAEMON_QUERIES_RECORDED_RUN_H_
