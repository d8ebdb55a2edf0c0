// A job of several ranks that is computed, not run: each rank's host launches kernels, copies and
// collectives, streams run them in order, a collective ends on all of its ranks when the last one
// has come and the data are there. The traces are what a profiler would have recorded, each by a
// clock of its own; the times are exact.
//
//   RankJob job(2);
//   SimulatedRun run = job.Run({{DataParallel({}), DataParallel({.factor = 1.2})}});
//   JoinWindows(run.Windows(0));
//
// Threading: none. Ownership: windows refer to the run's traces.
#ifndef TESTS_SUPPORT_RANK_WINDOWS_H_
#define TESTS_SUPPORT_RANK_WINDOWS_H_

#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "daemon/ranks/window_join.h"
#include "daemon/trace/trace.h"

namespace seqpoint::ranks {

// A step of a rank's program.
struct Op {
  enum Kind : uint8_t {
    kHost,        // the host works
    kKernel,      // on the compute stream
    kBatch,       // copy of the batch, on the compute stream
    kCollective,  // on the communication stream, after all kernels so far
    kBlocking,    // on the communication stream; later kernels wait for it
    kSend,        // blocking, to or from `peer`
    kReceive,
    kWait,  // later kernels wait for all collectives so far
    kSync,  // the host waits for the compute stream
  };
  Kind kind = kKernel;
  double us = 0;  // of the kernel, copy, transfer or host's work
  std::string name;
  uint32_t grid = 1;
  uint64_t bytes = 0;
  std::vector<int32_t> ranks;  // of a collective; empty: all
  int32_t peer = -1;
  uint32_t stream = 1;  // of a collective: a communicator's, 1 or 2
};
using Program = std::vector<Op>;        // of one iteration
using Programs = std::vector<Program>;  // by rank

struct SimulatedIteration {
  std::vector<trace::Trace> traces;  // by rank
  std::vector<int64_t> begin_ns, end_ns;
  std::vector<std::vector<CollectiveRecord>> records;
  std::vector<std::array<int64_t, 2>> lengths;
  // By collective in the order of their ends: ranks, and who came last.
  struct Truth {
    std::vector<int32_t> ranks;
    int32_t last = 0;
    double transfer_us = 0;
    std::vector<double> wait_us;  // by rank of `ranks`
  };
  std::vector<Truth> collectives;
};

struct SimulatedRun {
  std::deque<SimulatedIteration> iterations;
  double total_us = 0;
  std::vector<RankWindow> Windows(size_t iteration, bool told = false) const;
};

struct RankJob {
  explicit RankJob(int32_t count) : ranks(count), clock_us(static_cast<size_t>(count)) {}

  int32_t ranks;
  std::vector<double> clock_us;  // what each rank's clock shows at time 0
  double launch_us = 3;          // of the host, each
  double latency_us = 5;         // from the start of a launch to that of its work
  double gap_us = 1;             // between two works of a stream
  double noise = 0;              // of each duration, relative
  double jitter_us = 0;          // by which ends of a collective differ between ranks, at most
  uint64_t seed = 1;
  bool events_told = true;    // which stream an event is of; CUPTI 12.0 does not tell
  bool idle_between = false;  // windows: each iteration begins with all GPUs idle

  // `programs`: by iteration and rank. `lengths`: the same, or empty.
  SimulatedRun Run(const std::vector<Programs>& programs,
                   const std::vector<std::vector<int64_t>>& lengths = {}) const;
};

// Training step of a transformer. Data parallel: forward, backward with a bucket of gradients after
// so many layers, optimiser behind the last bucket.
struct StepShape {
  int layers = 12;
  double kernel_us = 200;  // of a product, forward
  int layers_per_bucket = 3;
  uint64_t layer_bytes = 8 << 20;  // of gradients
  double latency_us = 50;          // of a bucket's transfer,
  double us_per_mib = 10;          // ... which takes so much longer
  double activations_us = 60;      // transfer of a layer's activations
  double link = 1;                 // transfers take so many times as long
  double loader_us = 100;
  double host_us = 0;      // between two launches, besides the launch
  double factor = 1;       // of all kernels
  std::string slow;        // kernels of this name take
  double slow_factor = 1;  // ... so many times as long
  int more_layers = 0;
  int64_t length = 0;  // kernels are as much longer; 0: does not matter
};
Program DataParallel(const StepShape& shape);
Program TensorParallel(const StepShape& shape, const std::vector<int32_t>& group = {});
// Stage `rank` of `stages`, with so many micro-batches (GPipe).
Program Pipeline(const StepShape& shape, int32_t rank, int32_t stages, int micro_batches);

}  // namespace seqpoint::ranks

#endif  // TESTS_SUPPORT_RANK_WINDOWS_H_
