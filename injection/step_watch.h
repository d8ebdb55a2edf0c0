// Must the step of each iteration be seen? Where the program itself says where an iteration begins
// (an NVTX range, a mark) and its lengths need no launch, the rule's step is all that launches are
// watched for: it tells training iterations from evaluation batches in ranges of the same name.
// That is learned once. When each of kLearned iterations had its step, steps are taken for granted,
// but for one iteration in about kCheckEvery, drawn by lot. The first that has none, whenever it
// comes, ends that for good: ranges without a step are there, and all must be watched.
//
// Threading: CallStream's lock.
#ifndef SEQPOINT_INJECTION_STEP_WATCH_H_
#define SEQPOINT_INJECTION_STEP_WATCH_H_

#include <stdint.h>

#include "injection/abi/control.h"

namespace seqpoint::inject {

class StepWatch {
 public:
  // Iterations. A program that evaluates every hundred iterations is known for it by then. What is
  // left of the price of watching every launch is two of kCheckEvery iterations, 6 %; what an
  // evaluation that comes later may be taken for is as many iterations as pass between two checks.
  static constexpr uint32_t kLearned = 256;
  static constexpr uint32_t kCheckEvery = 32;

  void Begin(const abi::Rule& rule);
  // Operations of the rule that need not be watched now.
  uint32_t spared_ops() const { return granted_ ? step_ops_ : 0; }
  // Steps of iterations that were not watched are taken for granted.
  bool assumes() const { return step_ops_ != 0 && learned_ >= kLearned; }
  // An iteration is over. `watched`: all of its launches were; `stepped`: it had its step. True:
  // it had none although steps were taken for granted, and up to `unseen()` iterations before it
  // may have had none either.
  bool OnIteration(bool watched, bool stepped, uint32_t random);
  uint32_t unseen() const { return unseen_; }

 private:
  uint32_t step_ops_ = 0;  // 0: they must be watched
  uint32_t learned_ = 0;   // iterations in a row that had their step
  uint32_t unseen_ = 0;    // iterations since the last one that was watched
  uint32_t check_after_ = 0;
  bool granted_ = false;  // in this iteration
};

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_STEP_WATCH_H_
