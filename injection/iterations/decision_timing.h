// Learns from a rule's first iterations whether the lengths of an iteration are known before the
// GPU works for it: at its boundary, before its first kernel (the batch's copy after an NVTX
// range), or only after kernels. In the last case a window that opened at the decision would miss
// them. Threading: IterationState's lock.
#ifndef SEQPOINT_INJECTION_ITERATIONS_DECISION_TIMING_H_
#define SEQPOINT_INJECTION_ITERATIONS_DECISION_TIMING_H_

#include <stdint.h>

#include "injection/abi/control.h"
#include "injection/iterations/op_sets.h"

namespace seqpoint::inject {

class DecisionTiming {
 public:
  void Begin(const abi::Rule& rule) {
    *this = DecisionTiming();
    if (DecidesLate(rule)) timing_ = Timing::kAfterWork;
  }
  void OnBoundary() {
    undecided_ = true;
    worked_ = false;
  }
  void OnWork() { worked_ = true; }
  // True: it is the first decision of the open candidate.
  bool OnDecision(bool at_boundary) {
    if (!undecided_) return false;
    undecided_ = false;
    if (timing_ == Timing::kAfterWork) return true;
    const Timing now = worked_ && !at_boundary ? Timing::kAfterWork : Timing::kBeforeWork;
    probes_ = now == probed_ ? probes_ + 1 : 1;
    probed_ = now;
    if (probes_ >= kProbes) timing_ = now;
    return true;
  }

  // It is not known yet: work must be watched.
  bool probing() const { return timing_ == Timing::kUnknown; }
  bool late() const { return timing_ == Timing::kAfterWork; }
  // Work reached the GPU since the candidate.
  bool worked() const { return worked_; }

 private:
  enum class Timing : uint8_t { kUnknown, kBeforeWork, kAfterWork };
  // Iterations in a row whose decision came before, or after, their first work. Fewer may be due to
  // another thread that launched just then.
  static constexpr uint32_t kProbes = 4;

  Timing timing_ = Timing::kUnknown;
  Timing probed_ = Timing::kUnknown;  // of the last iteration
  uint32_t probes_ = 0;               // iterations in a row that were like it
  bool worked_ = false;
  bool undecided_ = false;  // the open candidate had no decision
};

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_ITERATIONS_DECISION_TIMING_H_
