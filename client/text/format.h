// The messages of the API as figures and words for people.
// Threading: pure functions.
#ifndef CLIENT_TEXT_FORMAT_H_
#define CLIENT_TEXT_FORMAT_H_

#include <google/protobuf/message.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "client/text/plain_text.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::client {

// 2026-01-02 10:15:00 (10:14:40 to 10:15:20); a time of another day has its date.
std::string FormatEnd(const v1::ExpectedEnd& end);

FormattedEstimate FormatEstimate(const v1::Estimate& estimate, std::string_view unit);

std::string JobStateName(v1::JobState state);  // "marking"; LOST is "interrupted"
// With how its program ended: "failed: exit status 3", "interrupted: signal 2 (Interrupt)".
std::string JobEndText(const v1::Job& job);
// "rank 0, counters: no permission for GPU counters (error 35)".
std::string FeatureText(const v1::Process& process, const v1::Feature& feature);
std::string LevelName(v1::Level level);
std::string JobTitle(const v1::Job& job);  // gnmt@r1 (job 1)

// The losses in words: "4 distorted iterations, 12 records dropped by the ring"; empty when there
// are none.
std::string FormatLosses(const v1::Losses& losses);

// One line on how a live job is doing, at most `width` characters.
std::string ProgressLine(const v1::Job& job, int width);

bool IsOver(const v1::Job& job);  // ended or interrupted
// Names the part of the run that figures cover, where that is not all of it: "so far", "until its
// end", "what was read".
std::string WhatRanText(const v1::Job& job);
// How many iterations the job that is over should have had, when it ended before them; else 0.
int64_t EndedBefore(const v1::Job& job);
// "the run ended after 1,000 of 5,000 iterations"; empty when EndedBefore is 0.
std::string EndedBeforeText(const v1::Job& job);

// Printable() for every string field of a message.
void MakePrintable(google::protobuf::Message* message);
}  // namespace seqpoint::client

#endif  // CLIENT_TEXT_FORMAT_H_
