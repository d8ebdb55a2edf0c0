// Keeps account of the optimiser steps of iterations, for StepWatch, and tells the daemon which
// iterations may have been evaluation.
// Threading: IterationState's lock, but Report: the helper thread, without it.
#ifndef SEQPOINT_INJECTION_ITERATIONS_STEP_ACCOUNT_H_
#define SEQPOINT_INJECTION_ITERATIONS_STEP_ACCOUNT_H_

#include <stdint.h>

#include "injection/base/features.h"
#include "injection/iterations/op_sets.h"
#include "injection/iterations/state.h"
#include "injection/iterations/step_watch.h"

namespace seqpoint::inject {

class StepAccount {
 public:
  StepAccount(IterationState* state, Features* features) : state_(state), features_(features) {}

  void BeginRule(const abi::Rule& rule) {
    watch_.Begin(rule);
    watched_ = stepped_ = false;
  }
  void OnStep() { stepped_ = true; }
  // The iteration before the boundary is over.
  void OnBoundary() {
    const uint64_t next = state_->matcher.iteration();
    if (watch_.OnIteration(next, watched_, stepped_, state_->lots.Draw()) && watch_.unseen() > 0) {
      doubtful_until_ = next - 1;
    }
    watched_ = AllWatched();
    stepped_ = false;
  }
  // Launches passed unseen, or may have.
  void OnHole() { watched_ = false; }
  // Other operations are watched now, and nothing of the open iteration has passed unseen.
  void OnSwitched() { watched_ = watched_ || AllWatched(); }

  // Operations of the rule that need not be watched now.
  uint32_t spared_ops() const { return watch_.spared_ops(); }
  // The step of the open iteration is taken for granted.
  bool assumes() const { return watch_.assumes() && !watched_; }

  // Again and again, as the ring may be full; what was reported is not reported twice.
  void Report();

 private:
  // Launches that the rule names are watched now.
  bool AllWatched() const {
    const uint32_t off =
        state_->matcher.rule().watched_ops & ~state_->watched.load(std::memory_order_relaxed);
    return (off & kWorkOps) == 0 && watch_.spared_ops() == 0;
  }

  IterationState* const state_;
  Features* const features_;
  StepWatch watch_;
  bool watched_ = false;         // all launches were, since the last boundary
  bool stepped_ = false;         // since the last boundary
  uint64_t doubtful_until_ = 0;  // an iteration without a step came after this one; 0: none did
};

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_ITERATIONS_STEP_ACCOUNT_H_
