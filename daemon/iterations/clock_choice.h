// Chooses the call of an iteration whose GPU start is the iteration's: its time is from one to the
// next.
//
// Threading: a free function over constant input. Ownership: values.
#ifndef DAEMON_ITERATIONS_CLOCK_CHOICE_H_
#define DAEMON_ITERATIONS_CLOCK_CHOICE_H_

#include "daemon/iterations/kernel_groups.h"
#include "daemon/iterations/launch_log.h"
#include "daemon/iterations/rule_choice.h"

namespace seqpoint::iterations {

// Adds the clock to the rule, and to its iterations. Nothing changes where no call can be one.
void ChooseClock(const LaunchLog& source, const Occurrences& occurrences, ChosenRule* chosen);

}  // namespace seqpoint::iterations

#endif  // DAEMON_ITERATIONS_CLOCK_CHOICE_H_
