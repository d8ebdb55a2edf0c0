#include "daemon/operate/start_note.h"

#include <algorithm>
#include <fstream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "proto/start_note.h"

namespace seqpoint::operate {
namespace {

bool IsPlain(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
         std::string_view("_./:=,@%+-").find(c) != std::string_view::npos;
}

}  // namespace

std::string ShellText(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text += ' ';
    const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), IsPlain);
    text += plain ? word : absl::StrCat("'", absl::StrReplaceAll(word, {{"'", "'\\''"}}), "'");
  }
  return text;
}

void LeaveStartNote(const std::string& directory, std::string_view kind,
                    const std::vector<std::string>& command) {
  // One line: a word with a line break would be another's.
  const std::string line = absl::StrReplaceAll(ShellText(command), {{"\n", " "}});
  std::ofstream(absl::StrCat(directory, "/", kStartNote)) << kind << "\n" << line << "\n";
}

}  // namespace seqpoint::operate
