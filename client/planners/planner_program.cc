#include "client/planners/planner_program.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include <algorithm>
#include <atomic>
#include <memory>

#include "absl/strings/str_cat.h"
#include "client/commands/options.h"
#include "client/text/help.h"
#include "client/text/plain_text.h"
#include "daemon/base/json_string.h"
#include "proto/invalid_argument.h"

namespace seqpoint::client {
namespace {

std::atomic<bool> interrupted = false;
static_assert(std::atomic<bool>::is_always_lock_free);  // the handler may store it

void Interrupt(int) { interrupted = true; }

}  // namespace

void CatchInterrupt() {
  struct sigaction action = {};
  action.sa_handler = &Interrupt;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
}

bool Interrupted() { return interrupted; }

void PlanProgress::Say(const std::string& step) {
  const Clock::time_point now = Clock::now();
  if (now < next_) return;
  next_ = now + kBetweenLines;
  if (!line_.visible()) line_.Show();
  line_.Draw(Cut(absl::StrCat(program_, ": ", step, " (Ctrl-C: the best so far)"),
                 static_cast<size_t>(std::max(line_.width(), 1))));
}

void SetUpProgram(CLI::App* app) {
  signal(SIGXFSZ, SIG_IGN);  // a file size limit is a full disk: write says so
  app->formatter(std::make_shared<HelpFormatter>());
  app->set_help_flag("-h,--help", "print this help");
  app->set_version_flag("--version", SEQPOINT_VERSION, "print the version");
}

int FailProgram(const std::string& program, const absl::Status& status, int code, bool json) {
  const std::string message = Printable(std::string(status.message()));
  fprintf(stderr, "%s: %s\n", program.c_str(), message.c_str());
  if (json) {
    printf("{\"error\": {\"code\": \"%s\", \"message\": %s}}\n",
           absl::StatusCodeToString(status.code()).c_str(), JsonString(message).c_str());
  }
  return code;
}

int FinishProgram(const std::string& program, int code) {
  if (fflush(stdout) == 0 && ferror(stdout) == 0) return code;
  fprintf(stderr, "%s: the answer could not be written to standard output: %s\n", program.c_str(),
          strerror(errno));
  return code == 0 ? kExitError : code;
}

PlannerProgram::PlannerProgram(const std::string& description, const std::string& name)
    : name_(name), app_(description, name) {
  SetUpProgram(&app_);
}

int PlannerProgram::Main(std::vector<std::string> words) {
  JoinPercent(&words);
  const auto run = [&]() -> int {
    json_ = std::find(words.begin(), words.end(), "--json") != words.end();
    try {
      app_.parse(std::vector<std::string>(words.rbegin(), words.rend()));  // as CLI11 wants them
    } catch (const CLI::ParseError& error) {
      if (error.get_exit_code() == 0) return app_.exit(error);  // --help, --version
      const std::string message = UsageMessage(app_, error, /*separated=*/false, words);
      return FailProgram(name_, InvalidArgument(message, "; see ", name_, " --help"), kExitUsage,
                         json_);
    }
    absl::Status status = CheckUsage();
    if (!status.ok()) return FailProgram(name_, status, kExitUsage, json_);
    status = Run();
    return status.ok() ? kExitOk : FailProgram(name_, status, kExitError, json_);
  };
  return FinishProgram(name_, run());
}

}  // namespace seqpoint::client
