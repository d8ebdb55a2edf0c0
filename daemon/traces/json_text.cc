#include "daemon/traces/json_text.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

#include "absl/strings/numbers.h"
#include "proto/utf8.h"

namespace seqpoint::traces {
namespace {

constexpr int64_t kMaxNs = int64_t{1} << 61;  // three of them can be added

bool Blank(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }
bool Digit(char c) { return c >= '0' && c <= '9'; }
bool Control(char c) { return static_cast<unsigned char>(c) < 0x20; }

// The first character from `at` on that is no blank; 0 at the end.
char Next(std::string_view text, size_t at) {
  while (at < text.size() && Blank(text[at])) ++at;
  return at < text.size() ? text[at] : '\0';
}

bool ValidEscape(std::string_view text) {  // from the backslash on
  if (text.size() < 2) return false;
  if (text[1] != 'u') return std::string_view("\"\\/bfnrt").find(text[1]) != text.npos;
  if (text.size() < 6) return false;
  for (size_t i = 2; i < 6; ++i) {
    if (std::isxdigit(static_cast<unsigned char>(text[i])) == 0) return false;
  }
  return true;
}

}  // namespace

std::string Mend(std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  out.reserve(text.size() + text.size() / 8);
  std::string open;  // the brackets that will close
  bool in_string = false;
  size_t i = 0;
  while (i < text.size()) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') {
        const bool valid = ValidEscape(text.substr(i));
        out += '\\';
        out += valid ? text[i + 1] : '\\';
        i += valid ? 2 : 1;
        continue;
      }
      if (c == '"') {  // the end only where something can follow a string
        const char next = Next(text, i + 1);
        in_string = next != ',' && next != ':' && next != '}' && next != ']' && next != '\0';
        out += in_string ? "\\\"" : "\"";
      } else if (Control(c)) {
        out += "\\u00";
        out += kHex[c >> 4];
        out += kHex[c & 15];
      } else if (const size_t n = CharacterBytes(text.substr(i)); n == 0) {
        out += "\xEF\xBF\xBD";  // U+FFFD
      } else {
        out += text.substr(i, n);
        i += n - 1;
      }
      ++i;
      continue;
    }
    ++i;
    if (c == '"') {
      in_string = true;
      out += c;
    } else if (c == '{' || c == '[') {
      open += c == '{' ? '}' : ']';
      out += c;
    } else if (c == '}' || c == ']') {
      if (!open.empty()) open.pop_back();
      out += c;
    } else if (c == ',') {
      const char next = Next(text, i);
      if (next != '}' && next != ']' && next != '\0') out += c;
    } else if (std::isalpha(static_cast<unsigned char>(c)) != 0 ||
               (c == '-' && std::isalpha(static_cast<unsigned char>(Next(text, i))) != 0)) {
      size_t end = i;
      while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) != 0 ||
                                   text[end] == '(' || text[end] == ')')) {
        ++end;
      }
      const std::string_view word = text.substr(i - 1, end - i + 1);
      // An exponent is not a word.
      const bool known = word == "true" || word == "false" || word == "null" ||
                         (!out.empty() && (Digit(out.back()) || out.back() == '.'));
      out += known ? word : "null";
      i = end;
    } else if (!Control(c) || Blank(c)) {
      out += c;
    }
  }
  if (in_string) out += '"';
  for (; !open.empty(); open.pop_back()) out += open.back();
  return out;
}

std::string ValidUtf8(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t n = CharacterBytes(text);
    out += n == 0 ? "\xEF\xBF\xBD" : text.substr(0, n);
    text.remove_prefix(std::max<size_t>(n, 1));
  }
  return out;
}

std::string_view Unquoted(std::string_view token) {
  const auto edge = [](char c) { return Blank(c) || c == '"'; };
  while (!token.empty() && edge(token.front())) token.remove_prefix(1);
  while (!token.empty() && edge(token.back())) token.remove_suffix(1);
  return token;
}

std::optional<int64_t> ParseMicros(std::string_view token) {
  token = Unquoted(token);
  std::string_view text = token;
  const bool negative = !text.empty() && text[0] == '-';
  if (negative) text.remove_prefix(1);
  int64_t ns = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), ns);
  if (parsed.ec != std::errc() || ns < 0 || ns > kMaxNs / 1000) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(parsed.ptr - text.data()));
  ns *= 1000;
  if (!text.empty() && text[0] == '.') {
    text.remove_prefix(1);
    int64_t unit = 100;
    while (!text.empty() && Digit(text[0])) {
      if (unit > 0) {
        ns += unit * (text[0] - '0');
      } else if (unit == 0 && text[0] >= '5') {
        ++ns;
      }
      unit = unit > 1 ? unit / 10 : unit - 1;  // 100, 10, 1, 0: rounds, then negative: no more
      text.remove_prefix(1);
    }
  }
  if (text.empty()) return negative ? -ns : ns;
  double micros = 0;  // an exponent: its writer has lost the digits already
  if (!absl::SimpleAtod(absl::string_view(token.data(), token.size()), &micros) ||
      !(std::abs(micros) < static_cast<double>(kMaxNs / 1000))) {
    return std::nullopt;
  }
  return std::llround(micros * 1000);
}

std::optional<int64_t> ParseInteger(std::string_view token) {
  token = Unquoted(token);
  if (constexpr std::string_view kStream = "stream "; token.substr(0, kStream.size()) == kStream) {
    token.remove_prefix(kStream.size());
  }
  int64_t value = 0;
  const auto parsed = std::from_chars(token.data(), token.data() + token.size(), value);
  const std::string_view behind = token.substr(static_cast<size_t>(parsed.ptr - token.data()));
  if (parsed.ec == std::errc() && behind.empty()) return value;
  double number = 0;
  if (!absl::SimpleAtod(absl::string_view(token.data(), token.size()), &number) ||
      !(std::abs(number) < 9e18)) {
    return std::nullopt;
  }
  return static_cast<int64_t>(number);
}

}  // namespace seqpoint::traces
