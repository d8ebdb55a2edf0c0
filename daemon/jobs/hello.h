// The "key=value" lines that a process sent when it connected (ProcessRow::text,
// AcceptedProcess::text).
//
// Threading: free functions. Ownership: values.
#ifndef DAEMON_JOBS_HELLO_H_
#define DAEMON_JOBS_HELLO_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace seqpoint::jobs {

// Empty when there is no such line.
std::string HelloField(const std::string& text, std::string_view key);
int HelloNumber(const std::string& text, std::string_view key, int fallback);
void SetHelloField(std::string_view key, int64_t value, std::string& text);

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_HELLO_H_
