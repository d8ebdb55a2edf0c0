#include "client/commands/run/environment.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <filesystem>
#include <random>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "client/files/program_text.h"
#include "client/text/plain_text.h"

namespace seqpoint::client {

const std::string& OwnLaunch() {
  static const std::string launch =
      absl::StrFormat("%d-%08x", static_cast<int>(getpid()), std::random_device()());
  return launch;
}

std::string FindProgram(const std::string& name) {
  const char* folders = getenv("PATH");
  if (absl::StrContains(name, '/') || folders == nullptr) return name;
  for (absl::string_view folder : absl::StrSplit(folders, ':')) {
    std::string path = absl::StrCat(folder, folder.empty() ? "" : "/", name);
    if (access(path.c_str(), X_OK) == 0) return path;
  }
  return name;
}

std::string JobNameFor(const std::vector<std::string>& command) {
  std::filesystem::path program(command.empty() ? "job" : command[0]);
  for (const std::string& word : command) {
    if (absl::EndsWith(word, ".py")) {
      program = std::filesystem::path(word).replace_extension();
      break;
    }
  }
  std::string name = program.filename();
  for (char& c : name) {
    if (c == '@' || c == ' ') c = '_';
  }
  return name.empty() ? "job" : name;
}

std::string RunIdFromEnvironment() {
  const char* torchrun = getenv("TORCHELASTIC_RUN_ID");
  if (torchrun != nullptr && *torchrun != '\0' && strcmp(torchrun, "none") != 0) return torchrun;
  if (const char* slurm = getenv("SLURM_JOB_ID"); slurm != nullptr && *slurm != '\0') {
    return absl::StrCat("slurm-", slurm);
  }
  time_t now = time(nullptr);
  tm local = {};
  localtime_r(&now, &local);
  char text[32];
  strftime(text, sizeof(text), "%Y%m%d-%H%M%S", &local);
  return absl::StrFormat("%s-%04x", text, std::random_device()() & 0xffff);
}

// A script that is named, or a program: of the command itself, or one that it starts (mpirun).
bool CallsTheLibrary(const std::vector<std::string>& command) {
  constexpr absl::string_view kPrefix = "seqpoint_";
  // Scripts are text that somebody wrote; a larger file is data, which may take long to read.
  constexpr uintmax_t kLargestScript = 1 << 20;
  for (size_t i = 0; i < command.size(); ++i) {
    std::error_code error;
    const bool here = i > 0 && std::filesystem::is_regular_file(command[i], error);
    const std::string path = here ? command[i] : FindProgram(command[i]);
    if (!std::filesystem::is_regular_file(path, error)) continue;
    const bool script = i > 0 && !IsProgram(path);
    if (script && std::filesystem::file_size(path, error) > kLargestScript) continue;
    if (ProgramHolds(path, kPrefix)) return true;
  }
  return false;
}

namespace {

// The library is NCCL's profiler plugin, too. A plugin of the user's is called by it.
void AddNcclPlugin(const std::string& library,
                   std::vector<std::pair<std::string, std::string>>* own,
                   std::vector<std::string>* warnings) {
  constexpr char kVariable[] = "NCCL_PROFILER_PLUGIN";
  constexpr size_t kLongestName = 254;  // NCCL cuts a longer one
  constexpr char kNotSeen[] = ": who waits for whom in collectives is not seen";
  if (library.empty()) return;
  const char* value = getenv(kVariable);
  const std::string theirs = value == nullptr ? "" : value;
  if (library.size() > kLongestName) {
    warnings->push_back(absl::StrCat("NCCL loads no plugin whose path has ", library.size(),
                                     " bytes (", kLongestName, " at most)", kNotSeen,
                                     "; set SEQPOINT_LIBRARY to a shorter link"));
  } else if (absl::EqualsIgnoreCase(theirs, "none")) {
    warnings->push_back(
        absl::StrCat(kVariable, "=", theirs, " keeps NCCL from loading a plugin", kNotSeen));
  } else if (!theirs.empty() && absl::StartsWithIgnoreCase("STATIC_PLUGIN", theirs)) {
    warnings->push_back(absl::StrCat(kVariable, "=", theirs,
                                     " makes the program its own plugin and stays", kNotSeen));
  } else {
    const bool ours =
        std::filesystem::path(theirs).filename() == std::filesystem::path(library).filename();
    if (!theirs.empty() && !ours) own->emplace_back("SEQPOINT_NCCL_PLUGIN", theirs);
    own->emplace_back(kVariable, library);
  }
}

}  // namespace

std::vector<std::string> ChildEnvironment(const std::string& library, bool preload,
                                          const std::string& adapter, const std::string& directory,
                                          const std::string& job, const std::string& run_id,
                                          std::vector<std::string>* warnings) {
  std::vector<std::pair<std::string, std::string>> own;
  if (!directory.empty()) own.emplace_back("SEQPOINT_DIR", directory);
  own.emplace_back("SEQPOINT_JOB", job);
  own.emplace_back("SEQPOINT_RUN_ID", run_id);
  own.emplace_back("SEQPOINT_LAUNCH", OwnLaunch());
  if (!library.empty()) {
    own.emplace_back("SEQPOINT_LIBRARY", library);  // for the adapter
    const char* others = getenv("LD_PRELOAD");
    if (preload && library.find_first_of(" \t\n:;") != std::string::npos) {
      // The loader would take it for several names, and complain in every process.
      warnings->push_back(absl::StrCat(
          Quote(library),
          " has a blank or a colon in its path, so LD_PRELOAD cannot name it: the program's calls "
          "of seqpoint_* are seen only once it uses CUDA; move it, or set SEQPOINT_LIBRARY to a "
          "link elsewhere"));
    } else if (preload) {
      own.emplace_back("LD_PRELOAD", others == nullptr || *others == '\0'
                                         ? library
                                         : absl::StrCat(library, ":", others));
    }
    for (const char* name : {"CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"}) {
      const char* present = getenv(name);
      if (present != nullptr && *present != '\0' && library != present) {
        warnings->push_back(absl::StrCat(
            name, " is already set to ", present,
            ": another profiler is there first and keeps its place; unset it to be profiled"));
      } else {
        own.emplace_back(name, library);
      }
    }
  }
  AddNcclPlugin(library, &own, warnings);
  if (!adapter.empty()) {
    own.emplace_back("SEQPOINT_ADAPTER", adapter);  // for seqpoint.pth
    const char* path = getenv("PYTHONPATH");
    own.emplace_back("PYTHONPATH",
                     path == nullptr || *path == '\0' ? adapter : absl::StrCat(adapter, ":", path));
  }
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    std::string text = *entry;
    bool replaced = false;
    for (const auto& [name, value] : own) {
      replaced = replaced || absl::StartsWith(text, name + "=");
    }
    if (!replaced) environment.push_back(text);
  }
  for (const auto& [name, value] : own) environment.push_back(name + "=" + value);
  return environment;
}

}  // namespace seqpoint::client
