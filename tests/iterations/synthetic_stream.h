// Launch streams of made-up training jobs, with their true iterations, for tests and benchmarks.
//
// Threading: none. Ownership: values only. The same options give the same stream.
#ifndef DAEMON_ITERATIONS_SYNTHETIC_STREAM_H_
#define DAEMON_ITERATIONS_SYNTHETIC_STREAM_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "injection/abi/records.h"

namespace seqpoint::iterations {

struct SyntheticOptions {
  int iterations = 60;
  uint64_t seed = 1;
  // Shape of the network.
  int layers = 4;
  bool recurrent = true;    // a launch per layer and time step; else geometry follows the length
  bool fixed_work = false;  // batches are padded: nothing launched depends on the length
  int shortest = 8, longest = 47;  // lengths
  int lengths = 1;                 // 1 or 2, each with a batch array of its own
  // One graph launch per micro-batch instead of the launches: a graph for each bucket of four
  // lengths; the first and the last micro-batch have graphs of their own.
  bool graphs = false;
  bool two_optimisers = false;  // a second network with a step of its own in each iteration
  bool per_tensor_optimiser = false;
  enum class ZeroGrad { kNone, kMemset, kKernel } zero_grad = ZeroGrad::kMemset;
  // Data.
  bool prefetch = false;     // the next batch, on a stream of its own
  bool resident = false;     // on the GPU from the begin: no batch is copied
  bool scalar_copy = false;  // a learning rate of 4 bytes before the optimiser
  int readback_every = 1;    // 0: never
  // Phases.
  int micro_batches = 1;
  // A stage of a pipeline that does so many forward passes before the first backward pass, and then
  // one of each in turn. It exchanges tensors with its neighbours. -1: no pipeline
  int ahead = -1;
  bool middle_stage = false;  // layers alone, without embedding and loss
  int evaluate_every = 0;     // 0: never
  int evaluation_batches = 4;
  bool evaluate_first = false;    // before training
  bool algorithm_search = false;  // a length's first occurrence launches more
  bool backward_thread = false;
  bool nvtx = false;
  bool marks = false;
  bool framework = false;  // a framework adapter tells forward passes, shapes and steps
  bool no_gpu = false;     // with `framework`: nothing else is seen, the host does the work
};

struct TrueIteration {
  uint32_t first_call = 0;     // what came before belongs to the step or evaluation before
  uint32_t first_forward = 0;  // the first forward launch
  uint32_t end = 0;            // one behind its last call
  int64_t length[2] = {0, 0};  // summed over micro-batches
};

struct SyntheticStream {
  std::vector<std::string> names;  // by id, 0 empty
  std::vector<abi::CallRecord> calls;
  std::vector<std::pair<uint32_t, uint64_t>> gpu_starts;  // of copies, memsets and graphs
  std::vector<TrueIteration> iterations;
};

inline constexpr int64_t kSyntheticBytesPerStep = 256;  // of a batch array

SyntheticStream MakeSyntheticStream(const SyntheticOptions& options);

// The plainest loop: a few kernels in turn, several times in each iteration, and what is around
// them. Nothing tells forward from backward pass, or one time step from the next.
struct RepeatOptions {
  int iterations = 60;
  uint64_t seed = 1;
  int kernels = 3;
  int repeats = 3;        // in each iteration
  int more = 0;           // launches of one more repeat that is not complete
  int micro_batches = 1;  // batches, each with so many repeats, before the optimiser
  bool copy = true;
  int share = 1;                // iterations for which one copy is made
  bool second_stream = false;   // copies and computes on different ones
  bool default_stream = false;  // copies on a stream that nothing waits for
  bool copy_varies = false;     // bytes and grids follow a length
  bool repeats_vary = false;    // their number follows it
  int readback_every = 1;       // 0: never
  bool optimiser = false;       // a small kernel at the end
  bool graphs = false;          // each kernel is a graph launch
  double noise = 0;             // share of launches that are followed by a stray one
};
SyntheticStream MakeRepeatStream(const RepeatOptions& options);

}  // namespace seqpoint::iterations

#endif  // DAEMON_ITERATIONS_SYNTHETIC_STREAM_H_
