#include "client/text/progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace seqpoint::client {

int TerminalWidth(int fd) {
  winsize size = {};
  return ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

Progress::Progress(bool wanted) : possible_(wanted && isatty(STDERR_FILENO)) {
  const char* terminal = getenv("TERM");
  if (terminal == nullptr || strcmp(terminal, "dumb") == 0) possible_ = false;
}

void Progress::Show() {
  winsize size = {};
  if (!possible_ || ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row < 4) return;
  rows_ = size.ws_row;
  columns_ = size.ws_col;
  // New line, so that the cursor is not on the last one; save it, keep scrolling above the last
  // line (which moves the cursor), restore it, and go back up.
  fprintf(stderr, "\n\0337\033[1;%dr\0338\033[1A", rows_ - 1);
  fflush(stderr);
}

void Progress::Draw(const std::string& text) {
  if (!visible()) return;
  fprintf(stderr, "\0337\033[%d;1H\033[2K\033[7m%s\033[0m\0338", rows_, text.c_str());
  fflush(stderr);
}

void Progress::Hide() {
  if (!visible()) return;
  fprintf(stderr, "\0337\033[r\033[%d;1H\033[2K\0338", rows_);
  fflush(stderr);
  rows_ = 0;
}

}  // namespace seqpoint::client
