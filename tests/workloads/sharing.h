// How the ranks of a job share the parameters of a model: what happens around the passes of a tape.
#ifndef SEQPOINT_TESTS_WORKLOADS_SHARING_H_
#define SEQPOINT_TESTS_WORKLOADS_SHARING_H_

#include <cstddef>
#include <vector>

#include "tests/workloads/tape.h"

namespace seqpoint::workload {

class Sharing : public TapeWatcher {
 public:
  // A micro-batch begins. `reduces`: its backward pass finishes the gradients of the iteration.
  virtual void Begin(bool reduces) = 0;
  // The compute stream waits for the gradients of all ranks.
  virtual void AwaitGradients() = 0;
  // The optimiser's work has been submitted.
  virtual void Updated() {}
};

// Which parameters' gradients an operation of a backward pass finishes: those that no operation
// before it, in the order of the forward pass, reads.
class FinishedParameters {
 public:
  void Begin(const std::vector<Operation>& operations);
  const std::vector<const Tensor*>& By(size_t operation) const { return finished_[operation]; }

 private:
  std::vector<std::vector<const Tensor*>> finished_;
};

}  // namespace seqpoint::workload

#endif  // SEQPOINT_TESTS_WORKLOADS_SHARING_H_
