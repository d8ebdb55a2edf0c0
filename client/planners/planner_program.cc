#include "client/planners/planner_program.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include <algorithm>
#include <atomic>

#include "absl/strings/str_cat.h"
#include "client/text/plain_text.h"
#include "daemon/base/json_string.h"

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

}  // namespace seqpoint::client
