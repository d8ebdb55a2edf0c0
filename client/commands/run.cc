#include "client/commands/run.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <random>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "client/files/program_text.h"
#include "client/text/format.h"
#include "client/text/job_text.h"
#include "client/text/json.h"
#include "client/text/notes.h"
#include "client/text/nothing.h"
#include "client/text/progress.h"
#include "client/text/projection_text.h"

namespace seqpoint::client {
namespace {

constexpr int kRedrawMs = 250;
constexpr absl::Duration kReconnectPause = absl::Milliseconds(500);
constexpr absl::Duration kRestartPause = absl::Seconds(20);
// After the program's end, for its last records to reach the answer.
constexpr absl::Duration kSettleTimeout = absl::Seconds(10);
constexpr absl::Duration kJoinTimeout = absl::Seconds(1);
constexpr int kCannotExecute = 126;
constexpr int kNotFound = 127;

// Signals that go on to the program. The terminal sends its own to the whole process group.
constexpr int kForwarded[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM};

void Say(const std::string& text) { fprintf(stderr, "seqpoint: %s\n", Printable(text).c_str()); }

// Keeps the latest state of a job, for as long as it lives; connects again when the daemon was
// restarted.
class Watcher {
 public:
  // `private_daemon`: it was this program's to start, and is again when it is gone.
  Watcher(Connection* connection, bool private_daemon, const v1::Job& job)
      : private_daemon_(private_daemon),
        connection_(connection),
        id_(job.id()),
        job_(job),
        thread_([this] { Loop(); }) {}
  ~Watcher() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stop_ = true;
      if (context_ != nullptr) context_->TryCancel();
    }
    thread_.join();
  }

  v1::Job job() {
    std::lock_guard<std::mutex> lock(mutex_);
    return job_;
  }
  // Waits until the job is over; false when it is not after `timeout`.
  bool WaitForEnd(absl::Duration timeout) { return over_.WaitForNotificationWithTimeout(timeout); }

 private:
  void Loop() {
    while (true) {
      grpc::ClientContext context;
      {
        std::lock_guard<std::mutex> lock(mutex_);
        if (stop_) return;
        context_ = &context;
      }
      v1::WatchJobRequest request;
      request.set_job(id_);
      auto reader = connection_->stub().WatchJob(&context, request);
      v1::WatchJobReply reply;
      while (reader->Read(&reply)) {
        std::lock_guard<std::mutex> lock(mutex_);
        job_ = reply.job();
      }
      reader->Finish().IgnoreError();
      {
        std::lock_guard<std::mutex> lock(mutex_);
        context_ = nullptr;
        if (IsOver(job_)) {
          over_.Notify();
          return;
        }
        if (stop_) return;
      }
      absl::SleepFor(kReconnectPause);
      RestartDaemon();
    }
  }

  // The library holds the records that no daemon takes, but not for long.
  void RestartDaemon() {
    const std::string socket = connection_->directory() + "/api.sock";
    const auto now = std::chrono::steady_clock::now();
    if (!private_daemon_ || now < next_start_ || Answers(socket)) return;
    next_start_ = now + absl::ToChronoSeconds(kRestartPause);
    if (const auto started = StartPrivateDaemon(); !started.ok()) {
      Say(absl::StrCat("the daemon is gone, and none could be started: ",
                       std::string(started.status().message())));
    }
  }

  const bool private_daemon_;
  std::chrono::steady_clock::time_point next_start_;
  Connection* const connection_;
  const std::string id_;
  std::mutex mutex_;
  v1::Job job_;                             // under mutex_
  grpc::ClientContext* context_ = nullptr;  // under mutex_
  bool stop_ = false;                       // under mutex_
  absl::Notification over_;
  std::thread thread_;
};

// Runs in the child, between fork and exec: only what is safe there. Reports a failed exec through
// the pipe.
[[noreturn]] void Execute(char* const* arguments, char* const* environment, int error_pipe) {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
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

// Ends this process as the program ended.
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

class Supervisor {
 public:
  // Blocks the signals that it will read; call before any thread starts.
  Supervisor() {
    sigemptyset(&signals_);
    for (int number : kForwarded) sigaddset(&signals_, number);
    for (int number : {SIGCHLD, SIGTSTP, SIGCONT, SIGWINCH}) sigaddset(&signals_, number);
    pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
    fd_ = signalfd(-1, &signals_, SFD_CLOEXEC | SFD_NONBLOCK);
  }

  // Starts the program; an error number when it could not be executed.
  int Start(std::vector<std::string> command, std::vector<std::string> environment) {
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

  // Until the program's end; `redraw` is called several times a second. Returns its wait status.
  template <typename Redraw>
  int Wait(Progress* progress, Redraw redraw) {
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

 private:
  void Handle(const signalfd_siginfo& info, Progress* progress) {
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
      default:
        // From the terminal (the kernel) the program got it too.
        if (info.ssi_code != SI_KERNEL) kill(child_, number);
    }
  }

  sigset_t signals_;
  int fd_ = -1;
  pid_t child_ = -1;
  bool was_visible_ = false;
};

// Takes a folder away at the end if nothing is in it. Empty: there is none.
struct FolderWhileFull {
  ~FolderWhileFull() {
    if (!path.empty()) rmdir(path.c_str());  // only empty ones go
  }
  std::string path;
};

// The folder for recordings of operators, of rank 0 where there are several.
absl::StatusOr<std::string> MakeOperatorsFolder(const std::string& name,
                                                const std::string& run_id) {
  const std::string file = absl::StrReplaceAll(absl::StrCat(name, "@", run_id, ".operators"),
                                               {{"%", "%25"}, {"/", "%2F"}});
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::absolute(file, error);
  if (!error) std::filesystem::create_directory(folder, error);
  if (!error) return folder.string();
  return absl::InvalidArgumentError(absl::StrCat(
      "--operators: cannot make the folder ", Quote(folder.string()),
      " for the recordings: ", error.message(), "; start from a folder that you may write to"));
}

absl::StatusOr<v1::Job> Prepare(Connection* connection, const RunOptions& options,
                                const std::string& name, const std::string& run_id,
                                const std::string& operators_folder) {
  v1::PrepareJobRequest request;
  request.set_name(name);
  request.set_run_id(run_id);
  if (options.horizon.kind() != v1::Horizon::KIND_UNKNOWN) {
    *request.mutable_horizon() = options.horizon;
  }
  request.set_overhead_budget_share(options.overhead_budget_share);
  std::string command;
  for (const std::string& word : options.command) {
    absl::StrAppend(&command, command.empty() ? "" : " ", word);
  }
  request.set_command(command);
  for (const std::string& set : options.metric_sets) request.add_metric_sets(set);
  if (options.metric_file) *request.mutable_metric_file() = *options.metric_file;
  request.set_counter_backend(options.counter_backend);
  request.set_roofline(options.roofline);
  request.set_operators_folder(operators_folder);
  absl::StatusOr<v1::PrepareJobReply> reply =
      connection->Call(&v1::Profiler::Stub::PrepareJob, request);
  if (!reply.ok()) return reply.status();
  return reply->job();
}

// Of the processes of this run, among those of others with the same run id.
const std::string& OwnLaunch() {
  static const std::string launch =
      absl::StrFormat("%d-%08x", static_cast<int>(getpid()), std::random_device()());
  return launch;
}

// However the program ended: the job ends with it.
void TellEnd(Connection* connection, const v1::Job& job, int exit_status, int signal) {
  v1::ControlRequest request;
  request.set_job(job.id());
  request.set_action(v1::ControlRequest::ACTION_PROGRAM_ENDED);
  request.set_launch(OwnLaunch());
  request.set_exit_status(exit_status);
  request.set_signal(signal);
  connection->Call(&v1::Profiler::Stub::Control, request).IgnoreError();
}

// For a program that will not come. A daemon that is gone, or a process that came at last, refuses:
// then there is nothing to end.
void EndWaiting(Connection* connection, const v1::Job& job) {
  v1::ControlRequest request;
  request.set_job(job.id());
  request.set_action(v1::ControlRequest::ACTION_END_WAITING);
  connection->Call(&v1::Profiler::Stub::Control, request).IgnoreError();
}

}  // namespace

// As a shell finds it; what is not found stays what it is.
static std::string FindProgram(const std::string& name) {
  const char* folders = getenv("PATH");
  if (absl::StrContains(name, '/') || folders == nullptr) return name;
  for (absl::string_view folder : absl::StrSplit(folders, ':')) {
    std::string path = absl::StrCat(folder, folder.empty() ? "" : "/", name);
    if (access(path.c_str(), X_OK) == 0) return path;
  }
  return name;
}

std::string JobNameFor(const std::vector<std::string>& command) {
  std::filesystem::path program(command.empty() ? "job" : command[0]);
  for (const std::string& word : command) {
    if (absl::EndsWith(word, ".py")) {
      program = std::filesystem::path(word).replace_extension();
      break;
    }
  }
  std::string name = program.filename();
  for (char& c : name) {
    if (c == '@' || c == ' ') c = '_';
  }
  return name.empty() ? "job" : name;
}

std::string RunIdFromEnvironment() {
  const char* torchrun = getenv("TORCHELASTIC_RUN_ID");
  if (torchrun != nullptr && *torchrun != '\0' && strcmp(torchrun, "none") != 0) return torchrun;
  if (const char* slurm = getenv("SLURM_JOB_ID"); slurm != nullptr && *slurm != '\0') {
    return absl::StrCat("slurm-", slurm);
  }
  time_t now = time(nullptr);
  tm local = {};
  localtime_r(&now, &local);
  char text[32];
  strftime(text, sizeof(text), "%Y%m%d-%H%M%S", &local);
  return absl::StrFormat("%s-%04x", text, std::random_device()() & 0xffff);
}

// A script that is named, or a program: of the command itself, or one that it starts (mpirun).
bool CallsTheLibrary(const std::vector<std::string>& command) {
  constexpr absl::string_view kPrefix = "seqpoint_";
  // Scripts are text that somebody wrote; a larger file is data, which may take long to read.
  constexpr uintmax_t kLargestScript = 1 << 20;
  for (size_t i = 0; i < command.size(); ++i) {
    std::error_code error;
    const bool here = i > 0 && std::filesystem::is_regular_file(command[i], error);
    const std::string path = here ? command[i] : FindProgram(command[i]);
    if (!std::filesystem::is_regular_file(path, error)) continue;
    const bool script = i > 0 && !IsProgram(path);
    if (script && std::filesystem::file_size(path, error) > kLargestScript) continue;
    if (ProgramHolds(path, kPrefix)) return true;
  }
  return false;
}

std::vector<std::string> ChildEnvironment(const std::string& library, bool preload,
                                          const std::string& adapter, const std::string& directory,
                                          const std::string& job, const std::string& run_id,
                                          std::vector<std::string>* warnings) {
  std::vector<std::pair<std::string, std::string>> own;
  if (!directory.empty()) own.emplace_back("SEQPOINT_DIR", directory);
  own.emplace_back("SEQPOINT_JOB", job);
  own.emplace_back("SEQPOINT_RUN_ID", run_id);
  own.emplace_back("SEQPOINT_LAUNCH", OwnLaunch());
  if (!library.empty()) {
    own.emplace_back("SEQPOINT_LIBRARY", library);  // for the adapter
    const char* others = getenv("LD_PRELOAD");
    if (preload && library.find_first_of(" \t\n:;") != std::string::npos) {
      // The loader would take it for several names, and complain in every process.
      warnings->push_back(absl::StrCat(
          Quote(library),
          " has a blank or a colon in its path, so LD_PRELOAD cannot name it: the program's calls "
          "of seqpoint_* are seen only once it uses CUDA; move it, or set SEQPOINT_LIBRARY to a "
          "link elsewhere"));
    } else if (preload) {
      own.emplace_back("LD_PRELOAD", others == nullptr || *others == '\0'
                                         ? library
                                         : absl::StrCat(library, ":", others));
    }
    for (const char* name : {"CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"}) {
      const char* present = getenv(name);
      if (present != nullptr && *present != '\0' && library != present) {
        warnings->push_back(absl::StrCat(
            name, " is already set to ", present,
            ": another profiler is there first and keeps its place; unset it to be profiled"));
      } else {
        own.emplace_back(name, library);
      }
    }
  }
  if (!adapter.empty()) {
    own.emplace_back("SEQPOINT_ADAPTER", adapter);  // for seqpoint.pth
    const char* path = getenv("PYTHONPATH");
    own.emplace_back("PYTHONPATH",
                     path == nullptr || *path == '\0' ? adapter : absl::StrCat(adapter, ":", path));
  }
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    std::string text = *entry;
    bool replaced = false;
    for (const auto& [name, value] : own) {
      replaced = replaced || absl::StartsWith(text, name + "=");
    }
    if (!replaced) environment.push_back(text);
  }
  for (const auto& [name, value] : own) environment.push_back(name + "=" + value);
  return environment;
}

namespace {

// Where the adapters of a run tell that they got into a Python: a file for as long as this lives.
class AdapterEar {
 public:
  AdapterEar() {
    std::error_code error;
    path_ = (std::filesystem::temp_directory_path(error) / "seqpoint-XXXXXX").string();
    const int fd = mkstemp(path_.data());
    if (fd < 0) path_.clear();
    if (fd >= 0) close(fd);
  }
  ~AdapterEar() {
    if (!path_.empty()) unlink(path_.c_str());
  }
  AdapterEar(const AdapterEar&) = delete;
  AdapterEar& operator=(const AdapterEar&) = delete;

  // Empty: there is none, and nothing will be heard.
  const std::string& path() const { return path_; }
  std::string Heard() const {
    std::ifstream file(path_);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }

 private:
  std::string path_;
};

// Of a run that no process of the program told of.
std::string WhyNothing(int wait_status, const std::string& adapter_missing) {
  const char* other = getenv("CUDA_INJECTION64_PATH");
  if (other != nullptr && *other != '\0' && FindLibrary().value_or("") != other) {
    return absl::StrCat(
        "another profiler has the command's GPU work (CUDA_INJECTION64_PATH is ", other,
        "), and the CUDA driver takes one; nothing was profiled. Unset it to profile the command");
  }
  if (WIFSIGNALED(wait_status)) return "it ended before it trained; nothing was profiled";
  if (const int status = WEXITSTATUS(wait_status); status != 0) {
    return absl::StrCat("the command ended with status ", status,
                        " before it trained; nothing was profiled");
  }
  if (FindAdapter().empty()) {
    return "the command used no GPU, and PyTorch was not asked, as there is no adapter "
           "(SEQPOINT_ADAPTER); nothing was profiled";
  }
  if (!adapter_missing.empty()) {
    return absl::StrCat("nothing was profiled: the command used no GPU, and ", adapter_missing);
  }
  return "no process of the command was seen to use a GPU or to train with PyTorch; nothing was "
         "profiled. If one did, `seqpoint doctor` says what stands in the way; a loop of another "
         "kind tells its iterations in two lines (docs/pytorch.md)";
}

}  // namespace

// Is the program a Python: by its name, or that of a script's interpreter? The options that it has
// been given before its script, "-I -u", go to `options`.
static bool IsPython(const std::vector<std::string>& command, std::string* options) {
  if (command.empty()) return false;
  const auto is_python = [](absl::string_view words) {
    for (absl::string_view word : absl::StrSplit(words, absl::ByAnyChar(" \t"))) {
      const std::string file = std::filesystem::path(std::string(word)).filename();
      if (absl::StartsWith(file, "python")) return true;
    }
    return false;
  };
  std::error_code error;
  const std::string path = FindProgram(command[0]);
  const std::filesystem::path real = std::filesystem::canonical(path, error);
  if (is_python(command[0]) || is_python(real.filename().string())) {
    std::vector<std::string> given;
    for (size_t i = 1; i < command.size() && absl::StartsWith(command[i], "-"); ++i) {
      if (command[i] == "-c" || command[i] == "-m") break;
      given.push_back(command[i]);
    }
    *options = absl::StrJoin(given, " ");
    return true;
  }
  std::ifstream file(path);
  std::string line;
  if (file.get() != '#' || file.get() != '!' || !std::getline(file, line)) return false;
  if (!is_python(line)) return false;
  const size_t end = line.find(' ', line.rfind("python"));
  *options = end == std::string::npos ? "" : line.substr(end + 1);
  return true;
}

std::string AdapterMissing(const std::vector<std::string>& command, const std::string& told) {
  // A process that ends soon may not have reached the daemon with that.
  if (absl::StrContains(told, 'u')) {
    return "PyTorch made backward passes without a step of an optimiser that could be seen; the "
           "program can tell its iterations in two lines (docs/pytorch.md)";
  }
  std::string options;
  if (absl::StrContains(told, 't') || (told.empty() && !IsPython(command, &options))) return "";
  constexpr absl::string_view kWayOut =
      "to let it in, copy share/seqpoint/python/seqpoint.pth of this installation to that Python's "
      "site-packages (docs/pytorch.md)";
  // One word may hold several options ("-Es"); -X and -W have a value.
  for (absl::string_view word : absl::StrSplit(options, ' ')) {
    if (!absl::ConsumePrefix(&word, "-") || word.empty() || word[0] == '-') continue;
    const size_t found = word.substr(0, word.find_first_of("XWcm")).find_first_of("IES");
    if (found == absl::string_view::npos) continue;
    const char option = word[found];
    return absl::StrCat("the PyTorch adapter does not get into a Python that is started with -",
                        std::string(1, option), "; ",
                        option == 'S' ? "leave it out, and the adapter is there" : kWayOut);
  }
  return absl::StrCat(
      told.empty() ? "the PyTorch adapter did not get into its Python"
                   : "no Python that the PyTorch adapter got into imported torch",
      "; what keeps it out is a sitecustomize that goes before it on PYTHONPATH and does not hand "
      "on (as OpenTelemetry's), or a program that starts Python with an environment of its own; ",
      kWayOut);
}

std::string RunSummary(const v1::Job& job, const Answerable& answers, int wait_status,
                       const std::string& adapter_missing) {
  std::string text = JobTitle(job);
  if (WIFSIGNALED(wait_status)) {
    int number = WTERMSIG(wait_status);
    absl::StrAppend(
        &text,
        number == SIGINT ? ", interrupted by Ctrl-C" : absl::StrCat(", ended by signal ", number),
        " (", strsignal(number), ")");
  } else if (WEXITSTATUS(wait_status) != 0 && job.process_count() > 0) {
    absl::StrAppend(&text, ", the command ended with status ", WEXITSTATUS(wait_status));
  }
  absl::StrAppend(&text, "\n");
  if (job.process_count() == 0) {
    text += Wrap("", WhyNothing(wait_status, adapter_missing), kTextColumns - 2);
  } else {
    std::string early = EndedBeforeText(job);
    absl::StrAppend(&text, early.empty() ? FormatCount(job.iterations(), "iteration") : early, ", ",
                    FormatCount(job.unique_lengths(), "length"));
    if (job.time_only().empty()) {
      absl::StrAppend(&text, ", ", FormatCount(job.seqpoints().seqpoints(), "SeqPoint"), ", ",
                      FormatCount(job.seqpoints().measurements(), "iteration"), " measured");
    }
    text += "\n";
    if (job.time_only() != job.trouble()) text += Note(job.time_only());
    if (job.has_time()) absl::StrAppend(&text, ProjectionText(job.time(), job));
    text += Note(job.rule().sentence());
    if (!adapter_missing.empty()) {
      text += Note(absl::StrCat("PyTorch was not asked for its iterations, as ", adapter_missing));
    }
    if (std::string losses = FormatLosses(job.losses()); !losses.empty()) {
      absl::StrAppend(&text, "left out: ", losses, "\n");
    }
    text += ApartText(job);
    if (!job.trouble().empty()) text += Wrap("trouble: ", job.trouble(), kTextColumns);
    if (!IsOver(job)) text += "the last records are not in these figures yet: ask again\n";
    const std::string& id = job.id();
    absl::StrAppend(&text, "ask next: seqpoint jobs ", id);
    if (job.has_time()) absl::StrAppend(&text, ", seqpoint project ", id);
    if (answers.counters) absl::StrAppend(&text, ", seqpoint counters ", id);
    if (answers.kernels) {
      absl::StrAppend(&text, ", seqpoint kernels ", id, ", seqpoint export ", id,
                      " --chrome trace.json");
    }
    if (answers.operators) absl::StrAppend(&text, ", seqpoint place ", id, " --devices 2");
    if (answers.kernels && job.time_only().empty() && job.seqpoints().measurements() > 0) {
      absl::StrAppend(&text, ", seqpoint whatif ", id, " --list");
    }
    text += "\n";
  }
  std::string indented = "\n";
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    absl::StrAppend(&indented, indented.size() == 1 ? "" : "  ", line, "\n");
  }
  return indented;
}

namespace {

Answerable AskAnswers(Connection* connection, const std::string& job_id,
                      const std::string& operators_folder) {
  std::error_code error;
  v1::GetCountersRequest counters_request;
  counters_request.set_job(job_id);
  const auto counters = connection->Call(&v1::Profiler::Stub::GetCounters, counters_request);
  v1::GetKernelsRequest kernels_request;
  kernels_request.set_job(job_id);
  kernels_request.set_limit(1);
  const auto kernels = connection->Call(&v1::Profiler::Stub::GetKernels, kernels_request);
  return {.counters = counters.ok() && NothingIn(*counters).empty(),
          .kernels = kernels.ok() && NothingIn(*kernels).empty(),
          .operators = !operators_folder.empty() &&
                       !std::filesystem::is_empty(operators_folder, error) && !error};
}

}  // namespace

static int FailUsage(const absl::Status& status, bool json) {
  Say(std::string(status.message()));
  if (json) printf("%s\n", ErrorJson(status).c_str());
  return kExitUsage;
}

int Run(const RunOptions& options) {
  Supervisor supervisor;  // before gRPC starts threads
  std::string name = options.job.empty() ? JobNameFor(options.command) : options.job;
  std::string run_id = options.run_id.empty() ? RunIdFromEnvironment() : options.run_id;
  absl::StatusOr<std::string> found = FindLibrary();
  std::string library = found.value_or("");
  absl::Status trouble = found.status();  // why there is no profile

  std::unique_ptr<Connection> connection;
  std::unique_ptr<Watcher> watcher;
  std::string directory;
  FolderWhileFull operators_folder;
  if (options.operators && !library.empty()) {
    const absl::StatusOr<std::string> made = MakeOperatorsFolder(name, run_id);
    if (!made.ok()) return FailUsage(made.status(), options.json);
    operators_folder.path = *made;
  }
  if (!library.empty()) {
    absl::StatusOr<v1::Job> job = absl::UnavailableError("");
    // A private daemon that was about to end may answer once more and be gone: then start another.
    for (int attempt = 0; attempt < 2 && absl::IsUnavailable(job.status()); ++attempt) {
      absl::StatusOr<std::unique_ptr<Connection>> opened = Connection::Open(options.connect);
      if (!opened.ok()) {
        job = opened.status();
        break;
      }
      connection = *std::move(opened);
      directory = connection->directory();
      job = Prepare(connection.get(), options, name, run_id, operators_folder.path);
    }
    trouble = job.status();
    if (job.ok()) {
      const auto daemon = connection->Call(&v1::Profiler::Stub::GetDaemon, v1::GetDaemonRequest());
      const bool private_daemon =
          options.connect.start_private && daemon.ok() && daemon->private_daemon();
      watcher = std::make_unique<Watcher>(connection.get(), private_daemon, *job);
    }
  }
  if (absl::IsInvalidArgument(trouble)) {
    // A mistake in what was asked: better now than after a day of training.
    return FailUsage(trouble, options.json);
  }
  if (!trouble.ok()) {
    Say(absl::StrCat(std::string(trouble.message()), "; the command runs without a profile"));
  }

  std::vector<std::string> warnings;
  std::vector<std::string> environment =
      ChildEnvironment(library, CallsTheLibrary(options.command),
                       library.empty() ? "" : FindAdapter(), directory, name, run_id, &warnings);
  for (const std::string& warning : warnings) Say(warning);
  const AdapterEar ear;
  // In place of those of a run that this one is part of.
  const auto set = [&](const std::string& name, const std::string& value) {
    std::erase_if(environment, [&](const std::string& entry) {
      return absl::StartsWith(entry, absl::StrCat(name, "="));
    });
    environment.push_back(absl::StrCat(name, "=", value));
  };
  set("SEQPOINT_ADAPTER_TOLD", ear.path());
  if (!operators_folder.path.empty()) set("SEQPOINT_OPERATORS", operators_folder.path);
  if (int error = supervisor.Start(options.command, std::move(environment)); error != 0) {
    Say(absl::StrCat("cannot run ", options.command[0], ": ", strerror(error)));
    if (watcher != nullptr) {
      TellEnd(connection.get(), watcher->job(), error == ENOENT ? kNotFound : kCannotExecute, 0);
      EndWaiting(connection.get(), watcher->job());
    }
    return error == ENOENT ? kNotFound : kCannotExecute;
  }

  Progress progress(options.progress && !options.quiet && watcher != nullptr);
  progress.Show();
  int wait_status = supervisor.Wait(&progress, [&] {
    if (!progress.visible()) return;
    v1::Job job = watcher->job();
    MakePrintable(&job);
    progress.Draw(ProgressLine(job, progress.width()));
  });
  progress.Hide();

  if (watcher != nullptr) {
    TellEnd(connection.get(), watcher->job(), WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 0,
            WIFSIGNALED(wait_status) ? WTERMSIG(wait_status) : 0);
    // A job that no process joined does not end by itself.
    bool joined = watcher->job().state() != v1::JOB_STATE_WAITING;
    if (!watcher->WaitForEnd(joined ? kSettleTimeout : kJoinTimeout) && !joined) {
      EndWaiting(connection.get(), watcher->job());
      watcher->WaitForEnd(kJoinTimeout);
    }
    v1::Job job = watcher->job();
    if (options.json) {
      v1::GetJobReply reply;
      *reply.mutable_job() = job;
      printf("%s\n", ToJson(reply, /*one_line=*/false).c_str());
    } else if (!options.quiet) {
      MakePrintable(&job);
      // Where something was profiled, a Python without torch (JAX) is no trouble.
      const std::string told = ear.Heard();
      const bool wanted = told.empty() || job.process_count() == 0;
      std::string missing;
      if (wanted && !ear.path().empty() && !FindAdapter().empty()) {
        missing = AdapterMissing(options.command, told);
      }
      fputs(RunSummary(job, AskAnswers(connection.get(), job.id(), operators_folder.path),
                       wait_status, missing)
                .c_str(),
            stderr);
    }
    watcher.reset();
  } else if (options.json) {
    printf("%s\n", ErrorJson(trouble).c_str());
  }
  fflush(stdout);
  return EndLike(wait_status);
}

}  // namespace seqpoint::client
