// The words of the language of what-ifs, with their meanings.
//
// Threading: free functions. Ownership: values.
#ifndef DAEMON_WHATIF_LANGUAGE_WORDS_H_
#define DAEMON_WHATIF_LANGUAGE_WORDS_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "daemon/whatif/language/request.h"

namespace seqpoint::whatif {

template <typename T>
using Words = std::vector<std::pair<const char*, T>>;

const Words<Verb>& Verbs();
const Words<Target>& Targets();
const Words<Field>& Fields();
const Words<Compare>& Compares();
const Words<Made>& Mades();

// A condition on the field compares with quoted text (IsText), with a word of WordsOf, or with a
// number.
bool IsText(Field field);
bool IsOneOf(Field field, const std::string& word);
const char* WordsOf(Field field);

// nullptr: `word` is none of them.
template <typename T>
const T* Find(const Words<T>& words, std::string_view word) {
  for (const auto& [text, value] : words) {
    if (word == text) return &value;
  }
  return nullptr;
}
template <typename T>
std::string WordOf(const Words<T>& words, T value) {
  for (const auto& [text, known] : words) {
    if (known == value) return text;
  }
  return "";
}
template <typename T>
std::string List(const Words<T>& words) {
  return absl::StrJoin(words, ", ",
                       [](std::string* out, const auto& word) { out->append(word.first); });
}

}  // namespace seqpoint::whatif

#endif  // DAEMON_WHATIF_LANGUAGE_WORDS_H_
