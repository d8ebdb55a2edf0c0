// Runs a program to its end with an environment of its own, for tests.
#ifndef SEQPOINT_TESTS_INTEGRATION_INJECTION_RUN_PROGRAM_H_
#define SEQPOINT_TESTS_INTEGRATION_INJECTION_RUN_PROGRAM_H_

#include <map>
#include <string>
#include <vector>

namespace seqpoint {

struct ProgramResult {
  int exit_status = -1;  // -1: ended by a signal
  int signal = 0;
  std::string output;  // stdout and stderr

  // The word after `key` in the output ("digest" -> "0x12ab"); empty when there is none.
  std::string Value(const std::string& key) const;
};

// `environment` is added to the test's own; an empty value removes the variable.
ProgramResult RunProgram(const std::vector<std::string>& command,
                         const std::map<std::string, std::string>& environment);

}  // namespace seqpoint

#endif  // SEQPOINT_TESTS_INTEGRATION_INJECTION_RUN_PROGRAM_H_
