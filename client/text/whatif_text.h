// Replays and what-ifs as text for people.
// Threading: pure functions.
#ifndef CLIENT_TEXT_WHATIF_TEXT_H_
#define CLIENT_TEXT_WHATIF_TEXT_H_

#include <string>

#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::client {

// Measured and replayed times, and where the time goes. Without `all`, only the worst of many
// iterations.
std::string ReplayText(const v1::ReplayReply& reply, bool all);

// The effect of a change on the run, on each SeqPoint, on kernels and on the critical path. Without
// `all`, only the weightiest of many lengths and kernels, with names of kernels cut to `width` (of
// the terminal; 0: unknown).
std::string WhatIfText(const v1::WhatIfReply& reply, bool all, int width);
// The time that each preset saves. `all`: also presets that do not apply. `width`: of the terminal;
// 0: unlimited.
std::string WhatIfListText(const v1::WhatIfReply& reply, bool all, int width);

}  // namespace seqpoint::client

#endif  // CLIENT_TEXT_WHATIF_TEXT_H_
