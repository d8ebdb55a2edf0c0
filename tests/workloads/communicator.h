// What the ranks of a job do together: collectives and transfers between two of them, of floats.
//
// Each call is one launch on `queue.stream`, preceded by the framework's host work, and returns
// before the GPU has done it. Every rank makes the same calls in the same order. A call that fails
// ends the process with a message: a training could not go on either.
//
// Threading: one thread at a time.
#ifndef SEQPOINT_TESTS_WORKLOADS_COMMUNICATOR_H_
#define SEQPOINT_TESTS_WORKLOADS_COMMUNICATOR_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "tests/workloads/gpu.h"
#include "tests/workloads/ranks.h"

namespace seqpoint::workload {

enum class Reduction { kSum, kAverage };

// A send to, or a receive from, another rank.
struct Transfer {
  enum class Kind { kSend, kReceive };
  Kind kind;
  int peer;
  float* data;
  size_t count;
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int ranks() const = 0;

  // In place.
  virtual void AllReduce(const Queue& queue, float* data, size_t count, Reduction reduction) = 0;
  // `all` gets the parts of all ranks, in their order; each has `count` floats.
  virtual void AllGather(const Queue& queue, const float* part, float* all, size_t count) = 0;
  // `part` gets this rank's `count` floats of the reduced `all`.
  virtual void ReduceScatter(const Queue& queue, const float* all, float* part, size_t count,
                             Reduction reduction) = 0;
  // All of these at once; none of them: nothing is launched.
  virtual void Exchange(const Queue& queue, const std::vector<Transfer>& transfers) = 0;
};

// NCCL's, on the current device. The library (libnccl.so.2) is loaded here. `before_each` is called
// before each operation.
std::unique_ptr<Communicator> MakeNcclCommunicator(const Ranks& ranks,
                                                   std::function<void()> before_each);

// The functions of the software NCCL that faults need; null with NVIDIA's, and before the library
// is loaded.
struct SoftwareNccl {
  void (*totals)(SwgpuNcclTotals*) = nullptr;
  void (*link)(int, int, double) = nullptr;
  void (*die)() = nullptr;
};
SoftwareNccl FindSoftwareNccl();

}  // namespace seqpoint::workload

#endif  // SEQPOINT_TESTS_WORKLOADS_COMMUNICATOR_H_
