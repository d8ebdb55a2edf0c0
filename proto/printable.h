// Text as a terminal or a log may show it: no name can move the cursor, begin a line or read as
// another name.
// Threading: pure functions.
#ifndef PROTO_PRINTABLE_H_
#define PROTO_PRINTABLE_H_

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include "proto/utf8.h"

namespace seqpoint {

// The code point of a character in UTF-8.
inline uint32_t CodePoint(std::string_view character) {
  constexpr unsigned char kFirstBits[] = {0x7F, 0x7F, 0x1F, 0x0F, 0x07};
  uint32_t code = static_cast<unsigned char>(character[0]) & kFirstBits[character.size()];
  for (const char byte : character.substr(1)) {
    code = code << 6 | (static_cast<unsigned char>(byte) & 0x3F);
  }
  return code;
}

// Whether it changes how the characters around it are shown: controls of Latin-1, marks of
// direction (a name could read as another one), and breaks of lines and paragraphs.
inline bool IsInvisibleOrder(uint32_t code) {
  return (code >= 0x80 && code < 0xA0) || code == 0x61C || code == 0x200E || code == 0x200F ||
         (code >= 0x2028 && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069) || code == 0xFEFF;
}

enum class LineEnds { kKept, kEscaped };

// Control characters and bytes that are not UTF-8 as \xNN, marks of direction as \uNNNN.
inline std::string EscapeUnprintable(std::string_view text, LineEnds line_ends) {
  std::string result;
  char escaped[16];
  while (!text.empty()) {
    const size_t size = CharacterBytes(text);
    const auto first = static_cast<unsigned char>(text[0]);
    const bool is_control = first < 0x20 || first == 0x7F;
    const bool is_kept = first == '\n' && line_ends == LineEnds::kKept;
    const uint32_t code = size == 0 ? 0 : CodePoint(text.substr(0, size));
    if (size == 0 || (is_control && !is_kept)) {
      snprintf(escaped, sizeof escaped, "\\x%02x", first);
      result += escaped;
    } else if (IsInvisibleOrder(code)) {
      snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(code));
      result += escaped;
    } else {
      result += text.substr(0, size);
    }
    text.remove_prefix(size == 0 ? 1 : size);
  }
  return result;
}

}  // namespace seqpoint

#endif  // PROTO_PRINTABLE_H_
