// Who wants CUPTI left to another profiler of this process: tools that asked (seqpoint_stand_down)
// and one that was noticed. CuptiOwnership gives and takes CUPTI accordingly.
// Threading: any thread. Works before cuInit, without CUPTI and in a forked child.
#ifndef SEQPOINT_INJECTION_CUPTI_STAND_DOWN_REQUESTS_H_
#define SEQPOINT_INJECTION_CUPTI_STAND_DOWN_REQUESTS_H_

#include <stddef.h>

namespace seqpoint::inject {

// A tool asks; null: it has no name. Each call wants one TakeBackStandDown.
void AskToStandDown(const char* holder);
// A tool takes back that it asked, or the program says that what was noticed is none. True: nobody
// wants CUPTI any more who did before.
bool TakeBackStandDown();
// A tool that did not ask was noticed, until it is known to have left. True: none was before.
bool NoticeTool(const char* holder);
// True: one was noticed before.
bool ForgetNoticedTool();
// A tool that asked has not taken it back.
bool StandsDownAsAsked();
// CUPTI is to be left alone.
bool StandsDown();
// Who wants it; of several the first.
void CopyHolder(char* text, size_t bytes);
// The other profiler is the parent's; it has no threads in the child.
void ForgetStandDownInChild();

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_CUPTI_STAND_DOWN_REQUESTS_H_
