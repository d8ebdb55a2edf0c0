// Events that only a training iteration has: what ends it, and what confirms each micro-step.
//
// Threading: free functions over constant input. Ownership: values.
#ifndef DAEMON_ITERATIONS_DECISION_RULES_H_
#define DAEMON_ITERATIONS_DECISION_RULES_H_

#include <cstdint>
#include <vector>

#include "daemon/iterations/replay.h"
#include "daemon/iterations/rule_context.h"

namespace seqpoint::iterations {

// The end of an iteration, or of a micro-step.
struct EndChoice {
  abi::EventPattern pattern;
  uint32_t example = kNoCall;  // index of such a call; without one there is no pattern
};

// What comes last in each iteration, always with the same geometry, and not in evaluation. Best
// first.
struct Steps {
  std::vector<EndChoice> launches;
  std::vector<EndChoice> nvtx;  // annotations
};
Steps StepChoices(const RuleContext& rules);
// The end of a step of graphs that only their number tells apart.
std::vector<EndChoice> GraphStepChoices(const RuleContext& rules);
// What each micro-step does late, before the step. `candidates`: begins of micro-steps.
std::vector<EndChoice> ConfirmChoices(const RuleContext& rules,
                                      const std::vector<uint32_t>& candidates,
                                      const EndChoice& step);

}  // namespace seqpoint::iterations

#endif  // DAEMON_ITERATIONS_DECISION_RULES_H_
