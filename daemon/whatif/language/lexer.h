// The steps of a text, and the tokens of a step.
//
// Threading: none. Ownership: a Line refers to the text that it was made of.
#ifndef DAEMON_WHATIF_LANGUAGE_LEXER_H_
#define DAEMON_WHATIF_LANGUAGE_LEXER_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace seqpoint::whatif {

// The number of its line and the text of each step. A step ends at the end of a line, or at a ';'
// outside of quoted text.
std::vector<std::pair<int, std::string_view>> StepTexts(std::string_view text);

struct Token {
  std::string text;
  bool quoted = false;
};

// Words, numbers, quoted text (\" and \\ inside), and the signs of comparisons.
class Line {
 public:
  Line(int number, std::string_view text) : number_(number), text_(text) {}

  absl::Status Split();

  bool done() const { return next_ == tokens_.size(); }
  const Token* Peek() const { return done() ? nullptr : &tokens_[next_]; }
  bool Take(std::string_view word) {
    if (done() || tokens_[next_].quoted || tokens_[next_].text != word) return false;
    ++next_;
    return true;
  }
  const Token* Take() { return done() ? nullptr : &tokens_[next_++]; }
  // Two words or signs that follow each other.
  bool Take(std::string_view word, std::string_view next);

  absl::Status Wrong(const std::string& message) const;
  // At the token that would be read next.
  absl::Status Expected(const std::string& what) const;

 private:
  int number_;
  std::string_view text_;
  std::vector<Token> tokens_;
  size_t next_ = 0;
};

}  // namespace seqpoint::whatif

#endif  // DAEMON_WHATIF_LANGUAGE_LEXER_H_
