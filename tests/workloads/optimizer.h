// Adam with gradient clipping over all parameters of a model, and the zeroing of gradients.
//
// Threading: one thread at a time. Does not own the parameters.
#ifndef SEQPOINT_TESTS_WORKLOADS_OPTIMIZER_H_
#define SEQPOINT_TESTS_WORKLOADS_OPTIMIZER_H_

#include "tests/workloads/communicator.h"
#include "tests/workloads/tape.h"

namespace seqpoint::workload {

// What the optimiser works on: flat buffers of `count` floats.
struct FlatState {
  float* values = nullptr;
  float* gradients = nullptr;
  float* m = nullptr;
  float* v = nullptr;
  size_t count = 0;
};

enum class ZeroGrad {
  kMemset,  // one memset over the flat buffer
  kKernel,  // one kernel over the flat buffer
  kNone     // the first write of a step overwrites
};

class Optimizer {
 public:
  // `foreach`: one launch per tensor instead of one over all.
  Optimizer(Parameters* parameters, float learning_rate, bool foreach);
  // Steps update `shard` instead of all parameters, where each rank has a part of them. Before
  // Start.
  void Use(const FlatState& shard) { state_ = shard; }
  const FlatState& state() const { return state_; }
  // The gradients' norm is taken over all ranks. Outlives this.
  void JoinNorms(Communicator* communicator) { communicator_ = communicator; }
  // Sets the device-side state; once, before the first step.
  void Start(Stream stream);
  void ClearGradients(const Queue& queue, ZeroGrad mode);
  void Step(const Queue& queue);

 private:
  Parameters* parameters_;
  FlatState state_;
  Communicator* communicator_ = nullptr;
  float learning_rate_;
  bool foreach_;
  float* norm_partial_;
  float* clip_factor_;
  int* step_;
};

}  // namespace seqpoint::workload

#endif  // SEQPOINT_TESTS_WORKLOADS_OPTIMIZER_H_
