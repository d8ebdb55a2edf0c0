// Events that only a training iteration has: the one that ends it, and the one that confirms each
// micro-batch.
//
// Threading: free functions over constant input. Ownership: values.
#ifndef DAEMON_ITERATIONS_DECISION_RULES_H_
#define DAEMON_ITERATIONS_DECISION_RULES_H_

#include <cstdint>
#include <vector>

#include "daemon/iterations/replay.h"
#include "daemon/iterations/rule_context.h"

namespace seqpoint::iterations {

// The end of an iteration, or of a micro-batch.
struct EndChoice {
  abi::EventPattern pattern;
  uint32_t example = kNoCall;  // index of such a call; kNoCall: there is no pattern
};

// The calls that come last in each iteration, with the same geometry, and not in evaluation. Best
// first.
struct Steps {
  std::vector<EndChoice> launches;
  std::vector<EndChoice> nvtx;  // annotations
};
Steps StepChoices(const RuleContext& rules);
// The end of a step whose graphs differ only in their number.
std::vector<EndChoice> GraphStepChoices(const RuleContext& rules);
// The calls that each micro-batch makes late, before the step. `candidates`: starts of
// micro-batches.
std::vector<EndChoice> ConfirmChoices(const RuleContext& rules,
                                      const std::vector<uint32_t>& candidates,
                                      const EndChoice& step);

}  // namespace seqpoint::iterations

#endif  // DAEMON_ITERATIONS_DECISION_RULES_H_
