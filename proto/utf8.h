// Text as protobuf takes it: UTF-8 as in RFC 3629.
// Threading: pure functions.
#ifndef PROTO_UTF8_H_
#define PROTO_UTF8_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace seqpoint {

// Bytes of the character at the front of `text`, which is not empty; 0 when there is none.
inline size_t CharacterBytes(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const size_t size = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < size) return 0;
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  // Overlong forms, surrogates, beyond U+10FFFF.
  if ((first == 0xE0 && byte(1) < 0xA0) || (first == 0xED && byte(1) > 0x9F) ||
      (first == 0xF0 && byte(1) < 0x90) || (first == 0xF4 && byte(1) > 0x8F)) {
    return 0;
  }
  return size;
}

// The only text that fits into a message.
inline bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    const size_t size = CharacterBytes(text);
    if (size == 0) return false;
    text.remove_prefix(size);
  }
  return true;
}

// `text` with U+FFFD in place of each byte that is no UTF-8.
inline std::string ToUtf8(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const size_t size = CharacterBytes(text);
    result += size == 0 ? "\xEF\xBF\xBD" : text.substr(0, size);
    text.remove_prefix(size == 0 ? 1 : size);
  }
  return result;
}

}  // namespace seqpoint

#endif  // PROTO_UTF8_H_
