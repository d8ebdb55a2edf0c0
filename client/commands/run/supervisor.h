// A program that runs as this process' child: it keeps terminal, process group and standard
// streams, and gets the signals that are sent to us.
// Threading: one thread, made before any other. Ownership: waits for its child, and does not end
// it.
#ifndef CLIENT_COMMANDS_RUN_SUPERVISOR_H_
#define CLIENT_COMMANDS_RUN_SUPERVISOR_H_

#include <signal.h>
#include <sys/signalfd.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "client/text/progress.h"

namespace seqpoint::client {

inline constexpr int kCannotExecute = 126;  // exit codes, as a shell gives them
inline constexpr int kNotFound = 127;

class Supervisor {
 public:
  // Blocks the signals that it will read; call before any thread starts.
  Supervisor();

  // Starts the program; an error number when it could not be executed.
  int Start(std::vector<std::string> command, std::vector<std::string> environment);

  // Until the program's end; `redraw` is called several times a second. Returns its wait status.
  int Wait(Progress* progress, absl::FunctionRef<void()> redraw);

  // The last signal that came to stop the program, as by Ctrl-C; 0: none.
  int stop_signal() const { return stop_signal_; }

 private:
  void Handle(const signalfd_siginfo& info, Progress* progress);

  sigset_t signals_;
  int fd_ = -1;
  pid_t child_ = -1;
  int stop_signal_ = 0;
  bool was_visible_ = false;
};

// Ends this process as the program ended.
int EndLike(int wait_status);

}  // namespace seqpoint::client

#endif  // CLIENT_COMMANDS_RUN_SUPERVISOR_H_
