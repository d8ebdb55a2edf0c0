#include "client/commands/run/adapter.h"

#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/commands/run/environment.h"

namespace seqpoint::client {
namespace {

// Is the program a Python: by its name, or that of a script's interpreter? The options that it has
// been given before its script, "-I -u", go to `options`.
bool IsPython(const std::vector<std::string>& command, std::string* options) {
  if (command.empty()) return false;
  const auto is_python = [](absl::string_view words) {
    for (absl::string_view word : absl::StrSplit(words, absl::ByAnyChar(" \t"))) {
      const std::string file = std::filesystem::path(std::string(word)).filename();
      if (absl::StartsWith(file, "python")) return true;
    }
    return false;
  };
  std::error_code error;
  const std::string path = FindProgram(command[0]);
  const std::filesystem::path real = std::filesystem::canonical(path, error);
  if (is_python(command[0]) || is_python(real.filename().string())) {
    std::vector<std::string> given;
    for (size_t i = 1; i < command.size() && absl::StartsWith(command[i], "-"); ++i) {
      if (command[i] == "-c" || command[i] == "-m") break;
      given.push_back(command[i]);
    }
    *options = absl::StrJoin(given, " ");
    return true;
  }
  std::ifstream file(path);
  std::string line;
  if (file.get() != '#' || file.get() != '!' || !std::getline(file, line)) return false;
  if (!is_python(line)) return false;
  const size_t end = line.find(' ', line.rfind("python"));
  *options = end == std::string::npos ? "" : line.substr(end + 1);
  return true;
}

}  // namespace

AdapterEar::AdapterEar() {
  std::error_code error;
  path_ = (std::filesystem::temp_directory_path(error) / "seqpoint-XXXXXX").string();
  const int fd = mkstemp(path_.data());
  if (fd < 0) path_.clear();
  if (fd >= 0) close(fd);
}

AdapterEar::~AdapterEar() {
  if (!path_.empty()) unlink(path_.c_str());
}

std::string AdapterEar::Heard() const {
  std::ifstream file(path_);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

std::string AdapterMissing(const std::vector<std::string>& command, const std::string& heard) {
  // A process that ends soon may not have reached the daemon with that.
  if (absl::StrContains(heard, 'u')) {
    return "PyTorch made backward passes without a step of an optimiser that could be seen; the "
           "program can report its iterations with two lines (docs/using/pytorch.md)";
  }
  std::string options;
  if (absl::StrContains(heard, 't') || (heard.empty() && !IsPython(command, &options))) return "";
  constexpr absl::string_view kWayOut =
      "copy share/seqpoint/python/seqpoint.pth of this installation to that Python's "
      "site-packages (docs/using/pytorch.md)";
  // One word may hold several options ("-Es"); -X and -W have a value.
  for (absl::string_view word : absl::StrSplit(options, ' ')) {
    if (!absl::ConsumePrefix(&word, "-") || word.empty() || word[0] == '-') continue;
    const size_t found = word.substr(0, word.find_first_of("XWcm")).find_first_of("IES");
    if (found == absl::string_view::npos) continue;
    const char option = word[found];
    return absl::StrCat("the PyTorch adapter does not get into a Python that is started with -",
                        std::string(1, option), "; ", option == 'S' ? "leave it out" : kWayOut);
  }
  return absl::StrCat(
      heard.empty() ? "the PyTorch adapter did not get into its Python"
                    : "no Python with the PyTorch adapter imported torch",
      "; what keeps it out is a sitecustomize that goes before it on PYTHONPATH and does not hand "
      "on (as OpenTelemetry's), or a program that starts Python with an environment of its own; ",
      kWayOut);
}

}  // namespace seqpoint::client
