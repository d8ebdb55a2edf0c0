// Standing down: the program asks, by seqpoint_stand_down, that CUPTI be left to another profiler
// of the same process, and by seqpoint_come_back that it be taken again. Here is only who asked;
// giving and taking is CallStream's. Threading: any thread. Works before cuInit, without CUPTI and
// in a forked child, where there is nothing to give.
#ifndef SEQPOINT_INJECTION_STAND_DOWN_H_
#define SEQPOINT_INJECTION_STAND_DOWN_H_

#include <stddef.h>

namespace seqpoint::inject {

// seqpoint_stand_down and seqpoint_come_back of seqpoint.h.
int StandDown(const char* holder);
int ComeBack();
// The same, done by the helper thread a moment later.
void ComeBackLater();

// CUPTI is to be left alone.
bool StandsDown();
// Who asked for it; of several the first.
void CopyHolder(char* text, size_t bytes);
// The other profiler is the parent's; it has no threads in the child.
void ForgetStandDownInChild();

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_STAND_DOWN_H_
