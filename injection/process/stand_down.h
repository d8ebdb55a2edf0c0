// Standing down: the program asks, by seqpoint_stand_down, that CUPTI be left to another profiler
// of the same process, and by seqpoint_come_back that it be taken again. These wait until that is
// done, or for a second; then the helper thread does it.
// Threading: any thread. Works before cuInit, without CUPTI and in a forked child, where there is
// nothing to give.
#ifndef SEQPOINT_INJECTION_PROCESS_STAND_DOWN_H_
#define SEQPOINT_INJECTION_PROCESS_STAND_DOWN_H_

namespace seqpoint::inject {

// seqpoint_stand_down and seqpoint_come_back of seqpoint.h.
int StandDown(const char* holder);
int ComeBack();
// For a tool that did not ask and was noticed, until it is known to have left or the program says
// by ComeBack that it was none. The helper thread comes back, a moment later.
void StandDownForNoticed(const char* holder);
void NoticedLeft();

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_PROCESS_STAND_DOWN_H_
