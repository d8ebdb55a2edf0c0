// A part of a run that was recorded on all of its ranks. It can be replayed as it was and changed,
// and says how long each iteration takes and what the time is spent on.
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
  std::vector<int64_t> iteration_starts_ns;  // on the CPU, ascending
  size_t iterations = 0;  // number of these; the time behind them belongs to none
};

struct Recording {
  std::vector<int32_t> ranks;
  std::vector<Graph> graphs;  // by rank, collectives matched
  // By rank. An iteration that no other one follows may be cut off, and is left out unless it is
  // the only one.
  std::vector<std::vector<double>> measured_ns;
  std::string left_out;  // in words; empty: nothing

  size_t iterations() const;  // the most that a rank has
  int64_t tasks() const;
};

// Collectives are matched by their ends, or, where `known` is there, as it says.
struct KnownCollectives {
  std::vector<std::vector<uint32_t>> numbers;  // see SetCollectives
  std::vector<int64_t> clock_behind_ns;        // by rank, of the first rank's
  uint64_t alone = 0;
};
Recording MakeRecording(std::vector<RecordedRank> ranks, const KnownCollectives* known = nullptr);

struct Outcome {
  std::vector<std::vector<double>> duration_ns;  // as Recording::measured_ns
  // By iteration, for its slowest rank; the parts of the critical path sum to that rank's time.
  std::vector<Shares> critical_path, idle;
  // By iteration: the time of each kernel on all ranks, by name.
  std::vector<absl::flat_hash_map<std::string, double>> kernels_ns;
  // The time of calls that launch nothing on the critical paths, by name.
  absl::flat_hash_map<std::string, double> calls_ns;
  uint64_t not_run = 0;  // tasks never reached
};
Outcome RunAgain(const Recording& recording, const std::vector<Graph>& graphs);
// Only Outcome::duration_ns.
std::vector<std::vector<double>> Durations(const Recording& recording,
                                           const std::vector<Graph>& graphs);

// Where recording costs the program time: in each call, or behind it.
enum class PriceIn : uint8_t {
  kCalls,
  kGaps,  // behind each call
};
struct Untraced {
  Recording* recording = nullptr;
  size_t iteration = 0;  // in Recording::measured_ns
  double usual_ns = 0;   // of its slowest rank, when nothing is recorded
};
// Takes the same time off each call of all ranks, so that all replays together last as long as the
// iterations do when nothing is recorded. Returns that time in ns; 0 where the calls' time does not
// matter, or where the replays are shorter already.
double TakeTracingOff(const std::vector<Untraced>& windows, PriceIn where);
// The same off the calls of `windows`, and off the gaps of `others`, which are their copies: the
// truth is in between. Where the times do not tell the price, nothing is taken off `windows`, and
// the usual price of a call and its work off `others`.
double TakeTracingOff(const std::vector<Untraced>& windows, const std::vector<Untraced>& others);
std::string TracingInWords(double by_ns);

// The duration of each step, which is that of its slowest rank.
std::vector<double> Steps(const std::vector<std::vector<double>>& by_rank);

// Repeats the trace of one iteration, `period_ns` apart. From the second one on, an iteration takes
// as long as in a run, where the CPU may run far before the GPU.
Trace Repeat(const Trace& trace, int times, int64_t period_ns);

}  // namespace seqpoint::whatif

#endif  // DAEMON_WHATIF_RECORDING_H_
