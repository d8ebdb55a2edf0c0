#include "daemon/traces/content.h"

#include <algorithm>

namespace seqpoint::traces {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

bool StartsWith(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

}  // namespace

ContentKind ContentOf(std::string_view head) {
  using namespace std::string_view_literals;
  if (StartsWith(head, kByteOrderMark)) head.remove_prefix(kByteOrderMark.size());
  if (StartsWith(head, "#names") || StartsWith(head, kActivityHeader))
    return ContentKind::kActivities;
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

}  // namespace seqpoint::traces
