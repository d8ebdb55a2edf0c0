// seqpoint_launch: starts the ranks of a job on this machine, as torchrun does.
//
//   seqpoint_launch -n 4 [--run-id ID] [--master-port PORT] PROGRAM ARGUMENTS...
//
// Each rank gets the variables that torchrun sets. Signals are passed on to all ranks. When a rank
// fails, the others are asked to end (SIGTERM), after --grace seconds they are killed, and the
// status of the rank that failed first is returned: 128 and the signal's number where a signal
// ended it. A rank does not outlive the launcher.
#include <arpa/inet.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kPassedOn[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

struct Settings {
  int ranks = 1;
  std::string run_id;
  int master_port = 0;  // 0: a free one
  double grace_s = 5;
  std::vector<std::string> command;
};

// A port that nobody has at the moment; 0: there is none.
int FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof(address);
  const bool found = bind(fd, reinterpret_cast<sockaddr*>(&address), bytes) == 0 &&
                     getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes) == 0;
  close(fd);
  return found ? ntohs(address.sin_port) : 0;
}

class Launcher {
 public:
  explicit Launcher(Settings settings) : settings_(std::move(settings)) {
    sigemptyset(&watched_);
    sigaddset(&watched_, SIGCHLD);
    for (int number : kPassedOn) sigaddset(&watched_, number);
    // Waited for, never delivered.
    sigprocmask(SIG_BLOCK, &watched_, nullptr);
  }

  int Run() {
    for (int rank = 0; rank < settings_.ranks; ++rank) Start(rank);
    while (!ranks_.empty()) {
      const timespec tick{0, 100'000'000};
      const int number = sigtimedwait(&watched_, nullptr, &tick);
      if (number > 0 && number != SIGCHLD) SignalAll(number);
      Reap();
      if (status_ != 0 && !killed_ && Clock::now() > kill_at_) {
        killed_ = true;
        SignalAll(SIGKILL);
      }
    }
    return status_;
  }

 private:
  void Start(int rank) {
    const pid_t launcher = getpid();
    std::fflush(nullptr);
    const pid_t pid = fork();
    if (pid < 0) {
      std::perror("seqpoint_launch: fork");
      status_ = 1;
      kill_at_ = Clock::now();
      return;
    }
    if (pid > 0) {
      ranks_[pid] = rank;
      return;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != launcher) _exit(1);
    sigprocmask(SIG_UNBLOCK, &watched_, nullptr);
    SetEnvironment(rank);
    std::vector<char*> argv;
    for (std::string& word : settings_.command) argv.push_back(word.data());
    argv.push_back(nullptr);
    execvp(argv[0], argv.data());
    std::fprintf(stderr, "seqpoint_launch: cannot start %s: %s\n", argv[0], strerror(errno));
    _exit(127);
  }

  void SetEnvironment(int rank) const {
    const auto set = [](const char* name, const std::string& value) {
      setenv(name, value.c_str(), 1);
    };
    const std::string count = std::to_string(settings_.ranks);
    for (const char* name : {"RANK", "LOCAL_RANK", "ROLE_RANK"}) set(name, std::to_string(rank));
    for (const char* name : {"WORLD_SIZE", "LOCAL_WORLD_SIZE", "ROLE_WORLD_SIZE"}) set(name, count);
    set("GROUP_RANK", "0");
    set("GROUP_WORLD_SIZE", "1");
    set("ROLE_NAME", "default");
    set("MASTER_ADDR", "127.0.0.1");
    set("MASTER_PORT", std::to_string(settings_.master_port));
    set("TORCHELASTIC_RUN_ID", settings_.run_id);
    set("TORCHELASTIC_RESTART_COUNT", "0");
    set("TORCHELASTIC_MAX_RESTARTS", "0");
    set("TORCHELASTIC_USE_AGENT_STORE", "False");
    setenv("OMP_NUM_THREADS", "1", 0);
  }

  void SignalAll(int number) const {
    for (const auto& [pid, rank] : ranks_) kill(pid, number);
  }

  void Reap() {
    int wait_status = 0;
    for (pid_t pid; (pid = waitpid(-1, &wait_status, WNOHANG)) > 0;) {
      const auto found = ranks_.find(pid);
      if (found == ranks_.end()) continue;
      const int rank = found->second;
      ranks_.erase(found);
      const bool signalled = WIFSIGNALED(wait_status);
      const int status = signalled ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
      if (status == 0 || status_ != 0) continue;
      status_ = status;
      kill_at_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                    std::chrono::duration<double>(settings_.grace_s));
      std::fprintf(stderr, "seqpoint_launch: rank %d (pid %d) ended with %s %d%s\n", rank, pid,
                   signalled ? "signal" : "status", signalled ? WTERMSIG(wait_status) : status,
                   ranks_.empty() ? "" : "; the other ranks are ended");
      SignalAll(SIGTERM);
    }
  }

  Settings settings_;
  sigset_t watched_;
  std::map<pid_t, int> ranks_;  // that run
  int status_ = 0;
  Clock::time_point kill_at_;
  bool killed_ = false;
};

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  CLI::App app{
      "Starts the ranks of a job on this machine, with the variables that torchrun sets:\n"
      "seqpoint_launch [OPTIONS] PROGRAM [ARGUMENTS...]",
      "seqpoint_launch"};
  app.add_option("-n,--nproc-per-node,--nproc_per_node", settings.ranks, "ranks to start")
      ->check(CLI::Range(1, 512))
      ->capture_default_str();
  app.add_option("--run-id", settings.run_id,
                 "name of the run (TORCHELASTIC_RUN_ID); default: of its time and process");
  app.add_option("--master-port", settings.master_port,
                 "where the ranks meet; default: a free port")
      ->check(CLI::Range(1, 65534));
  app.add_option("--grace", settings.grace_s,
                 "seconds from SIGTERM to SIGKILL for the others, once a rank has failed")
      ->check(CLI::Range(0.0, 3600.0))
      ->capture_default_str();
  app.prefix_command();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  settings.command = app.remaining();
  if (settings.command.empty()) {
    std::fputs("seqpoint_launch: no program is given; seqpoint_launch --help\n", stderr);
    return 2;
  }
  if (settings.run_id.empty()) {
    settings.run_id = std::to_string(time(nullptr)) + "-" + std::to_string(getpid());
  }
  if (settings.master_port == 0) settings.master_port = FreePort();
  return Launcher(std::move(settings)).Run();
}
