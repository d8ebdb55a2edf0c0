// The kind of a file, by its first bytes: client and daemon agree on it.
// docs/formats/traces.md has the formats.
// Threading: pure functions.
#ifndef PROTO_FILE_CONTENT_H_
#define PROTO_FILE_CONTENT_H_

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace seqpoint {

inline constexpr size_t kHeadBytes = 64;  // tell what the content is
inline constexpr std::string_view kActivityHeader = "start_us,dur_us,stream,name_id,size";

enum class ContentKind {
  kJson,        // Chrome trace events, or no trace
  kActivities,  // the table of GPU activities
  kText,        // any other: a log of iterations, perhaps
  kBinary,
};

// `head`: unpacked; kHeadBytes of it, or all of a shorter file.
inline ContentKind ContentOf(std::string_view head) {
  using namespace std::string_view_literals;
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (head.starts_with(kByteOrderMark)) head.remove_prefix(kByteOrderMark.size());
  if (head.starts_with("#names") || head.starts_with(kActivityHeader)) {
    return ContentKind::kActivities;
  }
  const size_t first = head.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && (head[first] == '{' || head[first] == '[')) {
    return ContentKind::kJson;
  }
  const bool binary = std::any_of(head.begin(), head.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte < 0x20 && "\t\n\r\f"sv.find(c) == std::string_view::npos) || byte == 0x7f;
  });
  return binary ? ContentKind::kBinary : ContentKind::kText;
}

}  // namespace seqpoint

#endif  // PROTO_FILE_CONTENT_H_
