#include "client/commands/run/supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace seqpoint::client {
namespace {

constexpr int kRedrawMs = 250;

// Signals that go on to the program. The terminal sends its own to the whole process group.
constexpr int kForwarded[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM};

// Runs in the child, between fork and exec: only what is safe there. Reports a failed exec through
// the pipe.
[[noreturn]] void Execute(char* const* arguments, char* const* environment, int error_pipe) {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGXFSZ, SIG_DFL);  // which main ignores
  execvpe(arguments[0], arguments, environment);
  int error = errno;
  if (write(error_pipe, &error, sizeof(error)) < 0) _exit(kNotFound);
  _exit(error == ENOENT ? kNotFound : kCannotExecute);
}

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& text : strings) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

Supervisor::Supervisor() {
  sigemptyset(&signals_);
  for (int number : kForwarded) sigaddset(&signals_, number);
  for (int number : {SIGCHLD, SIGTSTP, SIGCONT, SIGWINCH}) sigaddset(&signals_, number);
  pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
  fd_ = signalfd(-1, &signals_, SFD_CLOEXEC | SFD_NONBLOCK);
}

int Supervisor::Start(std::vector<std::string> command, std::vector<std::string> environment) {
  std::vector<char*> arguments = Pointers(command);
  std::vector<char*> variables = Pointers(environment);
  int error_pipe[2];
  if (pipe2(error_pipe, O_CLOEXEC) != 0) return errno;
  child_ = fork();
  if (child_ == 0) Execute(arguments.data(), variables.data(), error_pipe[1]);
  int error = child_ < 0 ? errno : 0;
  close(error_pipe[1]);
  if (child_ > 0 && read(error_pipe[0], &error, sizeof(error)) != sizeof(error)) error = 0;
  close(error_pipe[0]);
  if (error != 0 && child_ > 0) waitpid(child_, nullptr, 0);
  return error;
}

int Supervisor::Wait(Progress* progress, absl::FunctionRef<void()> redraw) {
  int status = 0;
  while (true) {
    pollfd waiting = {.fd = fd_, .events = POLLIN, .revents = 0};
    poll(&waiting, 1, kRedrawMs);
    signalfd_siginfo info;
    while (read(fd_, &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))) {
      Handle(info, progress);
    }
    if (waitpid(child_, &status, WNOHANG) == child_) return status;
    redraw();
  }
}

void Supervisor::Handle(const signalfd_siginfo& info, Progress* progress) {
  int number = static_cast<int>(info.ssi_signo);
  switch (number) {
    case SIGCHLD:
      return;
    case SIGWINCH:
    case SIGCONT:
      if (progress->visible()) {
        progress->Hide();
        progress->Show();
      } else if (number == SIGCONT && was_visible_) {
        progress->Show();
      }
      return;
    case SIGTSTP:
      was_visible_ = progress->visible();
      progress->Hide();
      raise(SIGSTOP);
      return;
    case SIGINT:
    case SIGTERM:
    case SIGHUP:
    case SIGQUIT:
      stop_signal_ = number;
      [[fallthrough]];
    default:
      // From the terminal (the kernel) the program got it too.
      if (info.ssi_code != SI_KERNEL) kill(child_, number);
  }
}

int EndLike(int wait_status) {
  if (WIFEXITED(wait_status)) return WEXITSTATUS(wait_status);
  int signal_number = WTERMSIG(wait_status);
  // The program has dumped core if it wanted to; we must not overwrite that.
  rlimit no_core = {0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  signal(signal_number, SIG_DFL);
  sigset_t only;
  sigemptyset(&only);
  sigaddset(&only, signal_number);
  raise(signal_number);
  pthread_sigmask(SIG_UNBLOCK, &only, nullptr);
  return 128 + signal_number;
}

}  // namespace seqpoint::client
