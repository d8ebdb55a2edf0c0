// Small pieces of JSON text as profilers write it.
//
// Threading: free functions. Ownership: values only.
#ifndef DAEMON_TRACES_JSON_TEXT_H_
#define DAEMON_TRACES_JSON_TEXT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace seqpoint::traces {

// The name of an iteration's annotation is this and the iteration's number.
inline constexpr std::string_view kStepName = "ProfilerStep#";

// White space of JSON.
inline bool Blank(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

// Makes JSON of nearly correct JSON, as old profilers wrote it: quotes and backslashes that were
// not escaped, control characters and bytes that are no UTF-8 in strings, commas before a closing
// bracket, nan and inf, brackets that are not closed. JSON stays as it is. The result need not be
// JSON: not everything can be guessed.
std::string Mend(std::string_view text);

// A value as it is written, a number or a string: without quotes and blanks around it.
std::string_view Unquoted(std::string_view token);

// Nanoseconds of a number in microseconds, exact: "1669783687389534.123" has more digits than a
// double. Rounded to the nearest; nothing when it is no number or beyond 73 years (from 1970:
// 2043).
std::optional<int64_t> ParseMicros(std::string_view token);

// An integer, also one written as 7.0 or as "stream 7"; nothing when there is none.
std::optional<int64_t> ParseInteger(std::string_view token);

}  // namespace seqpoint::traces

#endif  // DAEMON_TRACES_JSON_TEXT_H_
