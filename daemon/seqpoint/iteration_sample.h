// The iterations that the engine is given.
//
// Threading: values.
#ifndef DAEMON_SEQPOINT_ITERATION_SAMPLE_H_
#define DAEMON_SEQPOINT_ITERATION_SAMPLE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "daemon/seqpoint/key.h"

namespace seqpoint {

enum class Phase : uint8_t {
  kTrain,
  kOther,  // evaluation, checkpoint, start-up: has its own sum and is never projected
};

// A micro-batch of an iteration that accumulates gradients. The iteration's key is then the sum
// over its micro-batches.
struct MicroBatch {
  Key key;
  // Micro-batches that run different kernels are of different kinds. Where micro-batches are CUDA
  // graphs, the first one has its own graph (it clears the gradients), and so has the last one (it
  // holds the optimiser).
  enum class Kind : uint8_t { kAny, kFirst, kLast };
  Kind kind = Kind::kAny;
};

struct IterationSample {
  uint64_t iteration = 0;  // number within the job, unique; need not arrive in order
  Key key;
  int64_t time_ns = 0;  // 0 = unknown
  // More than 0: the iteration ended with the process, and may be longer than `time_ns` by as much.
  // Its time is in the sum, and no other iteration is judged by it.
  int64_t rest_ns = 0;
  bool distorted = false;  // the profiler changed the time (a window switch): it is not used
  bool measured = false;   // ran under a counter or trace configuration: its time is not used
  bool redone = false;     // repeated after a checkpoint: its time is used, it is not counted
  // A length is new to the iteration's process, though another process may have had it. The time is
  // in the sum, and no other iteration is judged by it.
  bool cold = false;
  bool combined = false;  // the key is a sum over micro-batches: a new sum is no new length
  // The micro-batches of a combined key; their lengths make an iteration cold. Empty: not known.
  std::vector<MicroBatch> micro_batches;
  Phase phase = Phase::kTrain;
};

// One of several iterations that are timed together, as in its IterationSample.
struct StretchIteration {
  uint64_t iteration = 0;
  Key key;
  bool cold = false;
};
inline constexpr size_t kMaxStretch = 4096;

}  // namespace seqpoint

#endif  // DAEMON_SEQPOINT_ITERATION_SAMPLE_H_
