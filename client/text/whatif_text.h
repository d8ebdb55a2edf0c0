// Replays and what-ifs as text for people.
// Threading: pure functions.
#ifndef CLIENT_TEXT_WHATIF_TEXT_H_
#define CLIENT_TEXT_WHATIF_TEXT_H_

#include <string>

#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::client {

// Measured and replayed times, and what they are spent on. Of many iterations the worst, unless
// `all`.
std::string ReplayText(const v1::ReplayReply& reply, bool all);

// What a change does: to the run, to each SeqPoint, to kernels and the critical path.
// Of many lengths and kernels the weightiest, unless `all`; names of kernels are cut to `width` (of
// the terminal; 0: unknown), unless `all`.
std::string WhatIfText(const v1::WhatIfReply& reply, bool all, int width);
// What each preset saves. `all`: those that do not apply, too. `width`: of the terminal; 0:
// unlimited.
std::string WhatIfListText(const v1::WhatIfReply& reply, bool all, int width);

}  // namespace seqpoint::client

#endif  // CLIENT_TEXT_WHATIF_TEXT_H_
