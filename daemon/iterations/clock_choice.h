// Which call of an iteration has its GPU start: the iteration's time is from one to the next.
//
// Threading: a free function over constant input. Ownership: values.
#ifndef DAEMON_ITERATIONS_CLOCK_CHOICE_H_
#define DAEMON_ITERATIONS_CLOCK_CHOICE_H_

#include "daemon/iterations/kernel_groups.h"
#include "daemon/iterations/launch_log.h"
#include "daemon/iterations/rule_choice.h"

namespace seqpoint::iterations {

// Adds the clock to the rule, and to its iterations. Without a call that can be one nothing
// changes.
void ChooseClock(const LaunchLog& source, const Occurrences& occurrences, ChosenRule* chosen);

}  // namespace seqpoint::iterations

#endif  // DAEMON_ITERATIONS_CLOCK_CHOICE_H_
