// `seqpoint compare JOB JOB`: why one job took longer than another. docs/using/compare.md
// Threading: pure functions.
#ifndef CLIENT_COMMANDS_COMPARE_H_
#define CLIENT_COMMANDS_COMPARE_H_

#include <string>

#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::client {

// `width`: of the terminal; 0: unlimited.
std::string CompareText(v1::CompareReply reply, int width);

}  // namespace seqpoint::client

#endif  // CLIENT_COMMANDS_COMPARE_H_
