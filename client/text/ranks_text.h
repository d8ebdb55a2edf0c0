// The ranks of a job as a table for people.
// Threading: pure functions.
#ifndef CLIENT_TEXT_RANKS_TEXT_H_
#define CLIENT_TEXT_RANKS_TEXT_H_

#include <string>

#include "seqpoint/v1/ranks.pb.h"

namespace seqpoint::client {

std::string RanksText(const v1::GetRanksReply& reply);

}  // namespace seqpoint::client

#endif  // CLIENT_TEXT_RANKS_TEXT_H_
