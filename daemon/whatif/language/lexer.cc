#include "daemon/whatif/language/lexer.h"

#include <algorithm>
#include <cctype>

#include "absl/strings/str_cat.h"

namespace seqpoint::whatif {
namespace {

bool IsSign(char c) {
  return c == '~' || c == '=' || c == '!' || c == '<' || c == '>' || c == '*' || c == '/';
}
bool IsAlone(char c) { return c == '(' || c == ')' || c == ','; }

}  // namespace

std::vector<std::pair<int, std::string_view>> StepTexts(std::string_view text) {
  std::vector<std::pair<int, std::string_view>> steps;
  int line = 1;
  size_t begin = 0;
  bool quoted = false, comment = false;
  size_t end = std::string_view::npos;  // of the step, where a comment follows it
  for (size_t at = 0; at <= text.size(); ++at) {
    const char c = at < text.size() ? text[at] : '\n';
    if (c == '\n' || (c == ';' && !quoted && !comment)) {
      const size_t until = std::min(end, at);
      const std::string_view step = text.substr(begin, until - begin);
      if (step.find_first_not_of(" \t\r\n") != std::string_view::npos)
        steps.emplace_back(line, step);
      begin = at + 1;
      end = std::string_view::npos;
      quoted = comment = false;
      if (c == '\n') ++line;
    } else if (!comment && c == '\\' && quoted) {
      ++at;
    } else if (!comment && c == '"') {
      quoted = !quoted;
    } else if (c == '#' && !quoted && !comment) {
      comment = true;
      end = at;
    }
  }
  return steps;
}

absl::Status Line::Split() {
  size_t at = 0;
  while (at < text_.size()) {
    const char c = text_[at];
    if (std::isspace(static_cast<unsigned char>(c)) != 0) {
      ++at;
    } else if (c == '"') {
      Token token{.quoted = true};
      for (++at; at < text_.size() && text_[at] != '"'; ++at) {
        if (text_[at] == '\\' && at + 1 < text_.size() &&
            (text_[at + 1] == '"' || text_[at + 1] == '\\')) {
          ++at;
        }
        token.text += text_[at];
      }
      if (at == text_.size()) return Wrong("a closing \" is missing");
      ++at;
      tokens_.push_back(std::move(token));
    } else if (IsAlone(c)) {
      tokens_.push_back({std::string(1, c)});
      ++at;
    } else if (IsSign(c)) {
      size_t end = at;
      while (end < text_.size() && IsSign(text_[end])) ++end;
      tokens_.push_back({std::string(text_.substr(at, end - at))});
      at = end;
    } else {
      size_t end = at;
      while (end < text_.size() && text_[end] != '"' && !IsSign(text_[end]) &&
             !IsAlone(text_[end]) && std::isspace(static_cast<unsigned char>(text_[end])) == 0) {
        ++end;
      }
      tokens_.push_back({std::string(text_.substr(at, end - at))});
      at = end;
    }
  }
  return absl::OkStatus();
}

bool Line::Take(std::string_view word, std::string_view next) {
  if (next_ + 1 >= tokens_.size() || tokens_[next_ + 1].quoted || tokens_[next_ + 1].text != next) {
    return false;
  }
  return Take(word) && Take(next);
}

absl::Status Line::Wrong(const std::string& message) const {
  return absl::InvalidArgumentError(absl::StrCat("line ", number_, ": ", message));
}

absl::Status Line::Expected(const std::string& what) const {
  return Wrong(
      absl::StrCat(done() ? "it ends" : absl::StrCat("\"", tokens_[next_].text.substr(0, 60), "\""),
                   " where ", what, " is expected"));
}

}  // namespace seqpoint::whatif
