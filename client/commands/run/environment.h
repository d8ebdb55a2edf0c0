// The names of the job that `seqpoint run` makes of a command, and the environment that brings the
// library into it.
// Threading: pure but for the environment and the files that they read.
#ifndef CLIENT_COMMANDS_RUN_ENVIRONMENT_H_
#define CLIENT_COMMANDS_RUN_ENVIRONMENT_H_

#include <string>
#include <vector>

namespace seqpoint::client {

// This run among others with the same run id: the same text for the life of this process.
const std::string& OwnLaunch();

// The path of a program, as a shell finds it; `name` itself when it is not found.
std::string FindProgram(const std::string& name);

// "train" for {"python3", "-u", "src/train.py", "--lr", "1"}.
std::string JobNameFor(const std::vector<std::string>& command);

// The run id that torchrun or Slurm gave; else "20260102-101500-7f3a".
std::string RunIdFromEnvironment();

// Does a file that the command names, the program or a script, call functions of seqpoint.h? Such a
// program needs the library from its start; others get it from the CUDA driver, NVTX or the
// adapter, and a program that starts many others does not pay for it in each.
bool CallsTheLibrary(const std::vector<std::string>& command);

// This process' environment plus the variables that bring the library and, where it is not empty,
// the PyTorch adapter into the program. `preload`: from the program's start.
std::vector<std::string> ChildEnvironment(const std::string& library, bool preload,
                                          const std::string& adapter, const std::string& directory,
                                          const std::string& job, const std::string& run_id,
                                          std::vector<std::string>* warnings);

}  // namespace seqpoint::client

#endif  // CLIENT_COMMANDS_RUN_ENVIRONMENT_H_
