#include "daemon/placement/json_object.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace seqpoint::placement {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
constexpr size_t kShownOfWord = 20;
constexpr int kMostLevels = simdjson::DEFAULT_MAX_DEPTH - 1;

// Walks over a text that simdjson refused, to its first fault.
class Fault {
 public:
  explicit Fault(std::string_view text) : text_(text) {}

  // Empty where the fault is none of these.
  std::string Find() {
    if (text_.empty()) return "it is empty";
    if (text_.starts_with("\xff\xfe") || text_.starts_with("\xfe\xff") ||
        text_.substr(0, 2).find('\0') != text_.npos) {
      return "it is UTF-16 or UTF-32; save it as UTF-8";
    }
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '\n') ++line_;
      if (const std::string byte = WrongByte(); !byte.empty()) return byte;
      if (c == '{' || c == '[') ++level_;
      if (c == '}' || c == ']') --level_;
      if (level_ > kMostLevels) {
        return Line(absl::StrCat("nests more than ", kMostLevels, " levels deep"));
      }
      std::string fault;
      if (c == '"') {
        fault = String();
      } else if (absl::ascii_isalnum(c)) {
        fault = Word();
      }
      if (!fault.empty()) return fault;
    }
    return level_ > 0 ? absl::StrCat("it ends in the middle, in line ", line_) : "";
  }

 private:
  std::string Line(const std::string& what) const {
    return absl::StrCat("line ", line_, " ", what);
  }

  // At `at_`, which moves to the last byte of a character.
  std::string WrongByte() {
    const auto byte = static_cast<uint8_t>(text_[at_]);
    if (byte >= 0x80) {
      const size_t bytes = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2;
      const std::string_view character = text_.substr(at_, bytes);
      if (!simdjson::validate_utf8(character)) {
        return Line(absl::StrFormat("has a byte 0x%02x that is not UTF-8", byte));
      }
      at_ += character.size() - 1;
    } else if (byte < 0x20 && !absl::ascii_isspace(text_[at_])) {
      return Line(absl::StrFormat("has a control character 0x%02x", byte));
    }
    return "";
  }

  // From a quote on to the next.
  std::string String() {
    const int begin = line_;
    for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_) {
      if (text_[at_] == '\\') ++at_;
      if (at_ >= text_.size()) break;
      if (text_[at_] == '\n') return Line("ends within a string");
      if (const std::string byte = WrongByte(); !byte.empty()) return byte;
    }
    return at_ < text_.size() ? "" : absl::StrCat("it ends within a string, begun in line ", begin);
  }

  // A number, true, false, null, or what JSON does not have: the NaN and Infinity of Python's json.
  std::string Word() {
    const size_t begin = at_;
    const auto goes_on = [this](size_t i) {
      return i < text_.size() && (absl::ascii_isalnum(text_[i]) || text_[i] == '.' ||
                                  text_[i] == '+' || text_[i] == '-');
    };
    while (goes_on(at_ + 1)) ++at_;
    const std::string word(text_.substr(begin, at_ + 1 - begin));
    if (!parser_.parse(word).error()) return "";
    const bool digits = absl::ascii_isdigit(word[0]) && word[0] != '0';
    double value = 0;
    const bool large = absl::SimpleAtod(word, &value) && digits &&
                       (std::isinf(value) || word.find_first_of(".eE") == word.npos);
    return Line(absl::StrCat("has ", word.substr(0, kShownOfWord),
                             large ? ", which is too large a number" : ", which is no number"));
  }

  const std::string_view text_;
  size_t at_ = 0;
  int line_ = 1;
  int level_ = 0;
  simdjson::dom::parser parser_;
};

}  // namespace

absl::StatusOr<simdjson::dom::object> ParseObject(std::string_view text, const std::string& file,
                                                  simdjson::dom::parser* parser) {
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  simdjson::dom::element document;
  simdjson::dom::object object;
  if (const auto error = parser->parse(text.data(), text.size()).get(document)) {
    const std::string fault = Fault(text).Find();
    return absl::InvalidArgumentError(absl::StrCat(
        file, ": is no JSON: ", fault.empty() ? simdjson::error_message(error) : fault));
  }
  if (!document.get_object().get(object)) return object;
  return absl::InvalidArgumentError(absl::StrCat(file, ": is no JSON object"));
}

std::string RepeatedKey(simdjson::dom::object object) {
  std::vector<std::string_view> keys;
  for (const auto field : object) keys.push_back(field.key);
  std::sort(keys.begin(), keys.end());
  const auto twice = std::adjacent_find(keys.begin(), keys.end());
  return twice == keys.end() ? "" : std::string(*twice);
}

}  // namespace seqpoint::placement
