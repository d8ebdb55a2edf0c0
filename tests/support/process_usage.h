// The processor time of a process and of its threads, by the kernel.
//
// Threading: thread-safe. Ownership: values.
#ifndef TESTS_SUPPORT_PROCESS_USAGE_H_
#define TESTS_SUPPORT_PROCESS_USAGE_H_

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace seqpoint {

// CPU time by a line of /proc, in s; 0: there is none.
inline double CpuSecondsIn(const std::filesystem::path& file) {
  std::ifstream stat(file);
  std::string text;
  std::getline(stat, text);
  // Behind the program's name, which may hold blanks; utime and stime are fields 14 and 15.
  std::istringstream fields(text.substr(std::min(text.size(), text.rfind(')') + 1)));
  std::string skipped;
  for (int field = 3; field < 14; ++field) fields >> skipped;
  double user = 0, system = 0;
  fields >> user >> system;
  return (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

inline double CpuSeconds(pid_t pid) {
  return CpuSecondsIn("/proc/" + std::to_string(pid) + "/stat");
}

// CPU time of each thread that lives, the busiest first.
inline std::vector<double> ThreadCpuSeconds(pid_t pid) {
  std::vector<double> seconds;
  std::error_code error;
  const std::filesystem::path tasks = "/proc/" + std::to_string(pid) + "/task";
  for (const auto& task : std::filesystem::directory_iterator(tasks, error)) {
    seconds.push_back(CpuSecondsIn(task.path() / "stat"));
  }
  std::sort(seconds.rbegin(), seconds.rend());
  return seconds;
}

}  // namespace seqpoint

#endif  // TESTS_SUPPORT_PROCESS_USAGE_H_
