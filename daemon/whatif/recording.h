// A stretch of a run as it was recorded on all of its ranks, which can be run again, as it was and
// changed: what each of its iterations takes, and what the time is spent on.
//
//   absl::StatusOr<Recording> recording = MakeRecording(std::move(ranks));
//   Outcome before = RunAgain(*recording, recording->graphs);
//   std::vector<Graph> changed = recording->graphs;  Apply(..., &changed[0]);
//   Outcome after = RunAgain(*recording, changed);
//
// Threading: free functions. Ownership: values; a recording does not need the traces any more.
#ifndef DAEMON_WHATIF_RECORDING_H_
#define DAEMON_WHATIF_RECORDING_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "daemon/trace/trace.h"
#include "daemon/whatif/graph.h"
#include "daemon/whatif/report.h"

namespace seqpoint::whatif {

struct RecordedRank {
  Trace trace;
  std::vector<int64_t> iteration_begins_ns;  // on the CPU, ascending
  size_t iterations = 0;                     // of these; what comes behind belongs to none
};

struct Recording {
  std::vector<int32_t> ranks;
  std::vector<Graph> graphs;  // by rank, collectives matched
  // Of each rank; an iteration without one behind it may be cut off, and is not among them, unless
  // it is the only one.
  std::vector<std::vector<double>> measured_ns;
  std::string left_out;  // in words; empty: nothing

  size_t iterations() const;  // most of a rank
  int64_t tasks() const;
};

Recording MakeRecording(std::vector<RecordedRank> ranks);

struct Outcome {
  std::vector<std::vector<double>> duration_ns;  // as Recording::measured_ns
  // By iteration: of its slowest rank, whose time the critical path's parts sum to.
  std::vector<Shares> critical_path, idle;
  // By iteration: what each kernel takes, by name, on all ranks.
  std::vector<absl::flat_hash_map<std::string, double>> kernels_ns;
  // What the critical paths owe to calls that launch nothing, by name.
  absl::flat_hash_map<std::string, double> calls_ns;
  uint64_t not_run = 0;  // tasks never reached
};
Outcome RunAgain(const Recording& recording, const std::vector<Graph>& graphs);
// Outcome::duration_ns alone.
std::vector<std::vector<double>> Durations(const Recording& recording,
                                           const std::vector<Graph>& graphs);

// Recording costs the program time: CUPTI's share in each call, or behind it.
enum class PriceIn : uint8_t {
  kCalls,
  kGaps,  // behind each call
};
struct Untraced {
  Recording* recording = nullptr;
  size_t iteration = 0;  // of rank 0
  double usual_ns = 0;   // when nothing is recorded
};
// Takes so much off for every call that the replays last as long as the iterations do when nothing
// is recorded, all of them together, and says how much; 0 where the calls' time does not matter, or
// the replays are shorter already. ns.
double TakeTracingOff(const std::vector<Untraced>& windows, PriceIn where);
void TakeOff(double by_ns, PriceIn where, Recording* recording);

// The step, which is as long as its slowest rank, of each iteration.
std::vector<double> Steps(const std::vector<std::vector<double>>& by_rank);

// The trace of one iteration, `times` in a row, `period_ns` apart: what it takes in a run, where
// the CPU may be far ahead of the GPU, shows from the second on.
Trace Repeat(const Trace& trace, int times, int64_t period_ns);

}  // namespace seqpoint::whatif

#endif  // DAEMON_WHATIF_RECORDING_H_
