// Other users of CUPTI in the process that nobody announced: a program that records its own
// activities, an injected tool, a framework's profiler. CUPTI has no function that names them, and
// most of what it gives (the activity buffers, the clock, the GPU's counters) it gives to one user,
// without a word to the one that had it. The calls by which such a use begins are led past us, and
// we stand down before they are carried out. docs/internals/injected-library.md has the table.
//
// Threading: WatchOtherUsers is called once, from InitializeInjection; the rest on any thread.
#ifndef SEQPOINT_INJECTION_PROCESS_OTHER_USERS_H_
#define SEQPOINT_INJECTION_PROCESS_OTHER_USERS_H_

namespace seqpoint::inject {

struct Guest;

// From now on another user is noticed when it begins. One that recorded activities before, or may
// have, is noticed here: then this stands down at once.
void WatchOtherUsers(Guest* guest);

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_PROCESS_OTHER_USERS_H_
