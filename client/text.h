// Replies as text for people, and as JSON.
// Threading: pure functions.
#ifndef CLIENT_TEXT_H_
#define CLIENT_TEXT_H_

#include <google/protobuf/message.h>

#include <string>

#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::client {

// The protobuf JSON of a reply, with the field names of the .proto file and with zeros.
std::string ToJson(const google::protobuf::Message& message, bool one_line);

// `width`: of the terminal; 0: unlimited.
std::string JobsText(const v1::ListJobsReply& reply);
std::string JobText(const v1::Job& job);  // everything about one
std::string SeqPointsText(const v1::GetSeqPointsReply& reply);
// Total, so far, remaining, per 1,000 iterations, basis. Without a horizon there is no total, and a
// line that says how to get one.
std::string ProjectionText(const v1::Projection& projection, const std::string& indent);
std::string ProjectText(const v1::ProjectReply& reply);
std::string CountersText(const v1::GetCountersReply& reply, int width);
std::string KernelsText(const v1::GetKernelsReply& reply, int width);
std::string IterationsText(const google::protobuf::RepeatedPtrField<v1::Iteration>& iterations);
std::string DaemonText(const v1::GetDaemonReply& reply);

}  // namespace seqpoint::client

#endif  // CLIENT_TEXT_H_
