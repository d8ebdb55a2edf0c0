// Lines that stand below figures: what was left out, whose clock it is, how sure the figures are.
// Threading: pure functions.
#ifndef CLIENT_TEXT_NOTES_H_
#define CLIENT_TEXT_NOTES_H_

#include <string>

#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::client {

// "note: ..." in lines; empty for an empty text.
std::string Note(const std::string& text);
// A line, or nothing: what was left out, and whose clock it is when it is not this machine's.
std::string LossesLine(const v1::Losses& losses);
std::string ClockNote(v1::ClockKind kind);
// A note where the job's last iterations were not read; empty otherwise.
std::string UncountedNote(const v1::Losses& losses);
// "of iterations 100 to 199"; empty for the whole run.
std::string PartLine(const std::string& part);
std::string FormatConfidence(double confidence);  // 95 %

}  // namespace seqpoint::client

#endif  // CLIENT_TEXT_NOTES_H_
