#include "daemon/jobs/hello.h"

#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace seqpoint::jobs {

std::string HelloField(const std::string& text, std::string_view key) {
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(line, absl::MaxSplits('=', 1));
    if (pair.first == absl::string_view(key.data(), key.size())) return std::string(pair.second);
  }
  return "";
}

int HelloNumber(const std::string& text, std::string_view key, int fallback) {
  int value;
  return absl::SimpleAtoi(HelloField(text, key), &value) ? value : fallback;
}

void SetHelloField(std::string_view key, int64_t value, std::string& text) {
  std::vector<std::string> lines = absl::StrSplit(text, '\n', absl::SkipEmpty());
  const std::string begin = std::string(key) + "=";
  std::erase_if(lines, [&](const std::string& line) { return line.starts_with(begin); });
  lines.push_back(absl::StrCat(begin, value));
  text = absl::StrCat(absl::StrJoin(lines, "\n"), "\n");
}

}  // namespace seqpoint::jobs
