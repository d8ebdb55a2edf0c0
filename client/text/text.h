// Replies as text for people, and as JSON.
// Threading: pure functions.
#ifndef CLIENT_TEXT_TEXT_H_
#define CLIENT_TEXT_TEXT_H_

#include <google/protobuf/message.h>

#include <map>
#include <string>

#include "absl/status/status.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::client {

constexpr int kTextColumns = 98;  // sentences are wrapped there

// The protobuf JSON of a reply, with the field names of the .proto file and with zeros.
std::string ToJson(const google::protobuf::Message& message, bool one_line);

// An object of strings, where there is no reply that could be shown.
std::string FieldsJson(const std::map<std::string, std::string>& fields);
// {"error": {"code": "NOT_FOUND", "message": "no job ..."}}
std::string ErrorJson(const absl::Status& status);

// `width`: of the terminal; 0: unlimited. `job`: whose figures they are, for its notes; an empty
// one has none.
// `all`: those of which no process came, too.
std::string JobsText(const v1::ListJobsReply& reply, bool all = false);
std::string JobText(const v1::Job& job);  // everything about one
std::string SeqPointsText(const v1::GetSeqPointsReply& reply);
// What is in no projection: start-up and evaluation; a line, or nothing.
std::string ApartText(const v1::Job& job);
// Total, so far, remaining, per 1,000 iterations, basis. Without a horizon there is no total, and a
// line that says how to get one.
// `part`: of the run, that it is of; empty: of all.
std::string ProjectionText(const v1::Projection& projection, const v1::Job& job,
                           const std::string& part = "");
std::string FormatConfidence(double confidence);  // 95 %
// A line, or nothing: what was left out, and whose clock it is when it is not this machine's.
std::string LossesLine(const v1::Losses& losses);
std::string ClockNote(v1::ClockKind kind);
// A note where the job's last iterations were not read; empty otherwise.
std::string UncountedNote(const v1::Losses& losses);
// "note: ..." in lines; empty for an empty text.
std::string Note(const std::string& text);
std::string ProjectText(const v1::ProjectReply& reply, const v1::Job& job);
// Why there is nothing to show; empty when there is something.
std::string NothingIn(const v1::GetSeqPointsReply& reply);
std::string NothingIn(const v1::GetCountersReply& reply);
std::string NothingIn(const v1::GetKernelsReply& reply);
std::string NothingIn(const v1::GetRooflineReply& reply);
inline std::string NothingIn(const google::protobuf::Message&) { return ""; }
std::string CountersText(const v1::GetCountersReply& reply, const v1::Job& job, int width,
                         bool list_measured = false);
std::string KernelsText(const v1::GetKernelsReply& reply, const v1::Job& job, int width);
std::string RooflineText(const v1::GetRooflineReply& reply, int width);
// `all`: none between two of them was left out.
std::string IterationsText(const google::protobuf::RepeatedPtrField<v1::Iteration>& iterations,
                           bool all);
std::string DaemonText(const v1::GetDaemonReply& reply);

}  // namespace seqpoint::client

#endif  // CLIENT_TEXT_TEXT_H_
