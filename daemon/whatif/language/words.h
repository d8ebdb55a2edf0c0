// The words of the language of what-ifs, with their meanings.
//
// Threading: free functions. Ownership: values.
#ifndef DAEMON_WHATIF_LANGUAGE_WORDS_H_
#define DAEMON_WHATIF_LANGUAGE_WORDS_H_

#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_join.h"
#include "daemon/whatif/language/request.h"

namespace seqpoint::whatif {

template <typename T>
using Word = std::pair<const char*, T>;

inline constexpr Word<Verb> kVerbs[] = {
    {"scale", Verb::kScale},          {"set", Verb::kSet},   {"remove", Verb::kRemove},
    {"insert", Verb::kInsert},        {"fuse", Verb::kFuse}, {"capture", Verb::kCapture},
    {"reschedule", Verb::kReschedule}};
inline constexpr Word<Target> kTargets[] = {{"work", Target::kWork},
                                            {"kernels", Target::kKernels},
                                            {"copies", Target::kCopies},
                                            {"memsets", Target::kMemsets},
                                            {"collectives", Target::kCollectives},
                                            {"launches", Target::kLaunches},
                                            {"calls", Target::kCalls},
                                            {"gaps", Target::kGaps},
                                            {"iterations", Target::kIterations}};
inline constexpr Word<Field> kFields[] = {
    {"name", Field::kName},         {"in", Field::kIn},
    {"thread", Field::kThread},     {"stream", Field::kStream},
    {"duration", Field::kDuration}, {"bytes", Field::kBytes},
    {"bound", Field::kBound},       {"phase", Field::kPhase},
    {"counter", Field::kCounter}};
inline constexpr Word<Compare> kCompares[] = {
    {"~", Compare::kMatches},   {"!~", Compare::kMatchesNot}, {"=", Compare::kEqual},
    {"!=", Compare::kNotEqual}, {"<", Compare::kLess},        {">", Compare::kGreater}};
inline constexpr Word<Made> kMades[] = {{"kernel", Made::kKernel},
                                        {"copy", Made::kCopy},
                                        {"collective", Made::kCollective},
                                        {"call", Made::kCall}};

// A condition on the field compares with quoted text (IsText), with a word of WordsOf, or with a
// number.
bool IsText(Field field);
bool IsOneOf(Field field, const std::string& word);
const char* WordsOf(Field field);

// nullptr: `word` is none of them.
template <typename Words>
auto Find(const Words& words, std::string_view word) -> decltype(&std::begin(words)->second) {
  for (const auto& [text, value] : words) {
    if (word == text) return &value;
  }
  return nullptr;
}
template <typename Words, typename T>
std::string WordOf(const Words& words, T value) {
  for (const auto& [text, known] : words) {
    if (known == value) return text;
  }
  return "";
}
template <typename Words>
std::string List(const Words& words) {
  return absl::StrJoin(words, ", ",
                       [](std::string* out, const auto& word) { out->append(word.first); });
}

}  // namespace seqpoint::whatif

#endif  // DAEMON_WHATIF_LANGUAGE_WORDS_H_
