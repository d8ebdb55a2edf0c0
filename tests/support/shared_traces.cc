#include "tests/support/shared_traces.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace seqpoint {

std::string SharedData() {
  const char* folder = std::getenv("SEQPOINT_SHARED_DATA");
  return folder != nullptr ? folder : SEQPOINT_DEFAULT_SHARED_DATA;
}

std::string SharedTraces() { return SharedData() + "/traces"; }

std::vector<std::string> SharedTraceFiles() {
  std::vector<std::string> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(SharedTraces(), error)) {
    const std::string name = entry.path().lexically_relative(SharedTraces());
    if (name.ends_with(".json.gz") || name.ends_with(".csv.gz")) files.push_back(name);
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<std::string> OrNone(std::vector<std::string> files) {
  if (files.empty()) files.push_back("none");
  return files;
}

std::string TestNameOf(const std::string& file) {
  std::string name = file.substr(0, file.find('.'));
  std::replace_if(
      name.begin(), name.end(),
      [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
}

}  // namespace seqpoint
