// Pieces of JSON text for code that writes it without a library.
//
// Threading: free functions. Ownership: values only.
#ifndef DAEMON_BASE_JSON_STRING_H_
#define DAEMON_BASE_JSON_STRING_H_

#include <charconv>
#include <cmath>
#include <string>
#include <string_view>

namespace seqpoint {

// `text`, which is UTF-8, in quotes, with escapes.
inline std::string JsonString(std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      out += "\\u00";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += c;
    }
  }
  return out + '"';
}

// The shortest number that reads back the same; null for what JSON cannot say.
inline std::string JsonNumber(double value) {
  if (!std::isfinite(value)) return "null";
  char digits[32];
  return std::string(digits, std::to_chars(digits, digits + sizeof(digits), value).ptr);
}

}  // namespace seqpoint

#endif  // DAEMON_BASE_JSON_STRING_H_
