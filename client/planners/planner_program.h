// The parts that the planning programs have in common: Ctrl-C, the line that tells the progress,
// the sentence of an error, and the end of main.
//
//   CatchInterrupt();
//   options.stop = &Interrupted;
//
// Threading: Interrupted() may be asked by any thread, a PlanProgress is told by one at a time, and
// the rest is for the main thread.
#ifndef CLIENT_PLANNERS_PLANNER_PROGRAM_H_
#define CLIENT_PLANNERS_PLANNER_PROGRAM_H_

#include <CLI/CLI.hpp>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "client/exit_code.h"
#include "client/text/progress.h"

namespace seqpoint::client {

// From this call on the first Ctrl-C of the process sets a flag, and the next one ends the program
// at once. The handler does nothing else, so that a program of MPI may use it, too.
void CatchInterrupt();
bool Interrupted();

// The last line of the terminal while planning takes long; nothing where there is no terminal.
class PlanProgress {
 public:
  // `program`: as people call it, "seqpoint place".
  explicit PlanProgress(std::string program) : program_(std::move(program)) {}
  void Say(const std::string& step);

 private:
  using Clock = std::chrono::steady_clock;
  // An answer that comes sooner needs no progress; a line that changes more often is not read.
  static constexpr auto kQuiet = std::chrono::seconds(1);
  static constexpr auto kBetweenLines = std::chrono::milliseconds(100);

  const std::string program_;
  Progress line_{/*wanted=*/true};
  Clock::time_point next_ = Clock::now() + kQuiet;
};

// Gives a program the layout of --help, and --version. A file size limit no longer ends it.
void SetUpProgram(CLI::App* app);

// Says the error on standard error, and with `json` as an object on standard output, too. Returns
// `code`.
int FailProgram(const std::string& program, const absl::Status& status, int code, bool json);

// The exit code of the program: `code`, unless the answer did not reach standard output.
int FinishProgram(const std::string& program, int code);

// A program that plans once: its options, and how it ends.
class PlannerProgram {
 public:
  virtual ~PlannerProgram() = default;
  // `words`: its arguments. Returns the exit code.
  int Main(std::vector<std::string> words);

 protected:
  // `name`: as people call it, "seqpoint place".
  PlannerProgram(const std::string& description, const std::string& name);

  // InvalidArgument: options that do not go together, as far as CLI11 does not check that.
  virtual absl::Status CheckUsage() const = 0;
  virtual absl::Status Run() = 0;

  const std::string name_;
  CLI::App app_;
  bool json_ = false;
};

}  // namespace seqpoint::client

#endif  // CLIENT_PLANNERS_PLANNER_PROGRAM_H_
