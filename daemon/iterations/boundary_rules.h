// Events that may mark the start of an iteration, the cheapest reliable ones first.
//
// Threading: a free function over constant input. Ownership: values.
#ifndef DAEMON_ITERATIONS_BOUNDARY_RULES_H_
#define DAEMON_ITERATIONS_BOUNDARY_RULES_H_

#include <string>
#include <vector>

#include "daemon/iterations/rule_context.h"

namespace seqpoint::iterations {

struct BoundaryChoice {
  abi::EventPattern pattern;
  std::string words;
  bool first_in_segment = false;  // it must be the first of its kind before the first launch
  int launches_late = 0;          // launches between the loop iteration's first launch and it
};

std::vector<BoundaryChoice> BoundaryChoices(const RuleContext& rules);

}  // namespace seqpoint::iterations

#endif  // DAEMON_ITERATIONS_BOUNDARY_RULES_H_
