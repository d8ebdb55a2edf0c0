// Standing down: the program asks, by seqpoint_stand_down, that CUPTI be left to another profiler
// of the same process, and by seqpoint_come_back that it be taken again. Here is only who asked;
// giving and taking is CallStream's. Threading: any thread. Works before cuInit, without CUPTI and
// in a forked child, where there is nothing to give.
#ifndef SEQPOINT_INJECTION_PROCESS_STAND_DOWN_H_
#define SEQPOINT_INJECTION_PROCESS_STAND_DOWN_H_

#include <stddef.h>

namespace seqpoint::inject {

// seqpoint_stand_down and seqpoint_come_back of seqpoint.h.
int StandDown(const char* holder);
int ComeBack();
// For a tool that did not ask and was noticed; until it is known to have left, or the program says
// by ComeBack that it was none. Coming back is the helper thread's, a moment later.
void StandDownForNoticed(const char* holder);
void NoticedLeft();
// A tool that asked has not taken it back.
bool StandsDownAsAsked();

// CUPTI is to be left alone.
bool StandsDown();
// Who asked for it; of several the first.
void CopyHolder(char* text, size_t bytes);
// The other profiler is the parent's; it has no threads in the child.
void ForgetStandDownInChild();

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_PROCESS_STAND_DOWN_H_
