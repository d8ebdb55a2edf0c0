// Why an answer has nothing to show; empty when it has something.
// Threading: pure functions.
#ifndef CLIENT_TEXT_NOTHING_H_
#define CLIENT_TEXT_NOTHING_H_

#include <google/protobuf/message.h>

#include <string>

#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::client {

std::string NothingIn(const v1::GetSeqPointsReply& reply);
std::string NothingIn(const v1::GetCountersReply& reply);
std::string NothingIn(const v1::GetKernelsReply& reply);
std::string NothingIn(const v1::GetRooflineReply& reply);
std::string NothingIn(const v1::GetRanksReply& reply);
std::string NothingIn(const v1::ReplayReply& reply);
inline std::string NothingIn(const google::protobuf::Message&) { return ""; }

}  // namespace seqpoint::client

#endif  // CLIENT_TEXT_NOTHING_H_
