// Says whether the step of each iteration must be seen. Where the program itself says where an
// iteration begins (an NVTX range, a mark) and its lengths need no launch, launches are watched for
// the rule's step only. The step distinguishes training iterations from evaluation batches in
// ranges of the same name. When each of kLearned iterations had its step, steps are taken for
// granted, except in about one of kCheckEvery iterations, drawn at random. One iteration without a
// step may be an overflow (mixed precision leaves the step out): steps are then learned again. Two
// in a row end this for good: there are ranges without a step, and all launches must be watched.
// The iterations that were not watched until then are doubtful: earlier evaluation batches may have
// escaped every check.
//
// Threading: IterationState's lock.
#ifndef SEQPOINT_INJECTION_ITERATIONS_STEP_WATCH_H_
#define SEQPOINT_INJECTION_ITERATIONS_STEP_WATCH_H_

#include <stdint.h>

#include "injection/abi/control.h"

namespace seqpoint::inject {

class StepWatch {
 public:
  // Iterations. A program that evaluates every hundred iterations is known for it by then.
  static constexpr uint32_t kLearned = 256;
  // Iterations from one check to the next: kCheckEvery in the mean, kVaries more or fewer, so that
  // no rhythm of the program hides from them. An evaluation of n batches with n <= 13 escapes with
  // 1 - (n - 1) / 16: one of 10 with 44 %, five of them with 1.6 %; one of 21 cannot, and one of a
  // single batch always does. The price is a sixteenth of that of watching every launch.
  static constexpr uint32_t kCheckEvery = 16;
  static constexpr uint32_t kVaries = 4;

  void Begin(const abi::Rule& rule);
  // Operations of the rule that need not be watched now.
  uint32_t spared_ops() const { return granted_ ? step_ops_ : 0; }
  // Steps of iterations that were not watched are taken for granted.
  bool assumes() const { return step_ops_ != 0 && learned_ >= kLearned; }
  // An iteration is over, and number `next` begins. `watched`: all of its launches were; `stepped`:
  // it had its step. True: it is the second in a row that had none, and steps were taken for
  // granted.
  bool OnIteration(uint64_t next, bool watched, bool stepped, uint32_t random);
  // Iterations whose step was taken for granted, so far, and the number of the first of them.
  uint64_t unseen() const { return unseen_; }
  uint64_t first_unseen() const { return first_unseen_; }

 private:
  uint32_t step_ops_ = 0;  // 0: they must be watched
  uint32_t learned_ = 0;   // iterations in a row that had their step
  uint32_t check_after_ = 0;
  bool granted_ = false;    // in this iteration
  bool assumed_ = false;    // in an earlier one
  bool stepped_ = false;    // an iteration had its step; at their start, programs overflow in a row
  bool missed_ = false;     // the last iteration that was watched had none
  bool disproved_ = false;  // with these patterns, steps cannot be taken for granted:
  abi::EventPattern patterns_[3] = {};
  // Over the process' life, under all rules.
  uint64_t unseen_ = 0;
  uint64_t first_unseen_ = 0;
};

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_ITERATIONS_STEP_WATCH_H_
