#include "tests/support/run_program.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sstream>

namespace seqpoint {

std::string ProgramResult::Value(const std::string& key) const {
  std::istringstream words(output);
  for (std::string word; words >> word;) {
    if (word == key && words >> word) return word;
  }
  return "";
}

ProgramResult RunProgram(const std::vector<std::string>& command,
                         const std::map<std::string, std::string>& environment) {
  int ends[2];
  ProgramResult result;
  if (pipe(ends) != 0) return result;
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    close(ends[1]);
    for (const auto& [key, value] : environment) {
      if (value.empty()) {
        unsetenv(key.c_str());
      } else {
        setenv(key.c_str(), value.c_str(), 1);
      }
    }
    std::vector<char*> arguments;
    for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    execvp(arguments[0], arguments.data());
    _exit(127);
  }
  close(ends[1]);
  char buffer[4096];
  for (ssize_t got; (got = read(ends[0], buffer, sizeof(buffer))) > 0;) {
    result.output.append(buffer, static_cast<size_t>(got));
  }
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status)) result.exit_status = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  return result;
}

}  // namespace seqpoint
