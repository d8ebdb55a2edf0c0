// What a file is, by its first bytes: those who send files and those who read them agree on it.
// docs/traces.md has the formats. Threading: pure.
#ifndef DAEMON_TRACES_CONTENT_H_
#define DAEMON_TRACES_CONTENT_H_

#include <cstddef>
#include <string_view>

namespace seqpoint::traces {

inline constexpr size_t kHeadBytes = 64;  // tell what the content is
inline constexpr std::string_view kActivityHeader = "start_us,dur_us,stream,name_id,size";

enum class ContentKind {
  kJson,        // Chrome trace events, or no trace
  kActivities,  // the table of GPU activities
  kText,        // any other: a log of iterations, perhaps
  kBinary,
};
// `head`: unpacked; kHeadBytes of it, or all of a shorter file.
ContentKind ContentOf(std::string_view head);

}  // namespace seqpoint::traces

#endif  // DAEMON_TRACES_CONTENT_H_
