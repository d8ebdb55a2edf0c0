// Adam with gradient clipping over all parameters of a model, and the zeroing of gradients.
//
// Threading: one thread at a time. Does not own the parameters.
#ifndef SEQPOINT_TESTS_WORKLOADS_OPTIMIZER_H_
#define SEQPOINT_TESTS_WORKLOADS_OPTIMIZER_H_

#include "tests/workloads/tape.h"

namespace seqpoint::workload {

enum class ZeroGrad {
  kMemset,  // one memset over the flat buffer
  kKernel,  // one kernel over the flat buffer
  kNone     // the first write of a step overwrites
};

class Optimizer {
 public:
  // `foreach`: one launch per tensor instead of one over all.
  Optimizer(Parameters* parameters, float learning_rate, bool foreach);
  // Sets the device-side state; once, before the first step.
  void Start(Stream stream);
  void ClearGradients(const Queue& queue, ZeroGrad mode);
  void Step(const Queue& queue);

 private:
  Parameters* parameters_;
  float learning_rate_;
  bool foreach_;
  float* norm_partial_;
  float* clip_factor_;
  int* step_;
};

}  // namespace seqpoint::workload

#endif  // SEQPOINT_TESTS_WORKLOADS_OPTIMIZER_H_
