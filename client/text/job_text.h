// Jobs as text for people: the table of all, and everything about one.
// Threading: pure functions.
#ifndef CLIENT_TEXT_JOB_TEXT_H_
#define CLIENT_TEXT_JOB_TEXT_H_

#include <string>

#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::client {

// `all`: also the jobs without a process.
std::string JobsText(const v1::ListJobsReply& reply, bool all = false);
std::string JobText(const v1::Job& job);  // everything about one
// The iterations that are in no projection, start-up and evaluation: a line, or nothing.
std::string UnprojectedText(const v1::Job& job);

// Where an iteration begins, what its length is, and how well lengths explain times: lines.
std::string RuleText(const v1::Rule& rule);
// "explains 98 % of the variance of time".
std::string VerdictText(const v1::Rule& rule, bool imported = false);

}  // namespace seqpoint::client

#endif  // CLIENT_TEXT_JOB_TEXT_H_
