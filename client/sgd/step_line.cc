#include "client/sgd/step_line.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "client/text/plain_text.h"
#include "client/text/progress.h"

namespace seqpoint::sgd {
namespace {

// An answer that comes sooner needs no progress; a line that changes more often is not read.
constexpr std::chrono::seconds kQuiet{1};
constexpr std::chrono::milliseconds kBetweenLines{200};
constexpr int kUsualWidth = 80;  // columns, of a terminal that does not tell its own

// mpirun's standard error where it is a terminal. The ranks have a pipe to mpirun in its place
// (Open MPI 4.1.4, orte/mca/iof/base/iof_base_setup.c). Below 0: not here.
int TerminalOfMpirun() {
  if (getenv("OMPI_COMM_WORLD_RANK") == nullptr) return -1;
  const std::string path = absl::StrCat("/proc/", getppid(), "/fd/2");
  struct stat there = {};
  if (stat(path.c_str(), &there) != 0 || !S_ISCHR(there.st_mode)) return -1;
  return open(path.c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC);
}

// Where `stty tostop` is set, who is in the background, as ranks are, is stopped when it writes.
bool MayWrite(int terminal) {
  const char* kind = getenv("TERM");
  if (kind == nullptr || std::string(kind) == "dumb") return false;
  termios settings = {};
  return tcgetattr(terminal, &settings) == 0 && (settings.c_lflag & TOSTOP) == 0;
}

}  // namespace

StepLine::StepLine(bool wanted) : next_(Clock::now() + kQuiet) {
  if (!wanted) return;
  opened_ = isatty(STDERR_FILENO) != 1;
  terminal_ = opened_ ? TerminalOfMpirun() : STDERR_FILENO;
  if (terminal_ >= 0 && MayWrite(terminal_)) return;
  if (opened_ && terminal_ >= 0) close(terminal_);
  terminal_ = -1;
}

StepLine::~StepLine() {
  if (terminal_ < 0) return;
  if (shown_) dprintf(terminal_, "\r\033[K");
  if (opened_) close(terminal_);
}

void StepLine::Say(const std::string& text) {
  if (!Due()) return;
  next_ = Clock::now() + kBetweenLines;
  shown_ = true;
  const int told = client::TerminalWidth(terminal_);
  const int width = told > 0 ? told : kUsualWidth;
  dprintf(terminal_, "\r\033[K%s", client::Cut(text, static_cast<size_t>(width - 1)).c_str());
}

}  // namespace seqpoint::sgd
