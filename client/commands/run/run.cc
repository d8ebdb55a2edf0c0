#include "client/commands/run/run.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/commands/run/adapter.h"
#include "client/commands/run/environment.h"
#include "client/commands/run/job_watcher.h"
#include "client/commands/run/say.h"
#include "client/commands/run/summary.h"
#include "client/commands/run/supervisor.h"
#include "client/text/format.h"
#include "client/text/json.h"
#include "client/text/nothing.h"
#include "client/text/progress.h"
#include "proto/invalid_argument.h"
#include "proto/status_macros.h"

namespace seqpoint::client {
namespace {

// After the program's end, for its last records to reach the answer.
constexpr absl::Duration kSettleTimeout = absl::Seconds(10);
constexpr absl::Duration kJoinTimeout = absl::Seconds(1);
// A daemon that was restarted is connected again within 1.2 s. Where none comes, this time is taken
// off the two above.
constexpr absl::Duration kReconnectTimeout = absl::Seconds(2);

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
  return InvalidArgument("--operators: cannot make the folder ", Quote(folder.string()),
                         " for the recordings: ", error.message(),
                         "; start from a folder that you may write to");
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
  SEQPOINT_ASSIGN_OR_RETURN(v1::PrepareJobReply reply,
                            connection->Call(&v1::Profiler::Stub::PrepareJob, request));
  return reply.job();
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

// The rest of the run's reports goes out within the hub's next commit: a daemon that is killed
// after the run (by Slurm, with its step) has told everything then.
constexpr absl::Duration kHubTimeout = absl::Seconds(3);

// Waits until the daemon's hub, where it has one that answers, has what is known now.
void AwaitHub(Connection* connection) {
  std::optional<int64_t> last;
  for (const absl::Time end = absl::Now() + kHubTimeout; absl::Now() < end;
       absl::SleepFor(absl::Milliseconds(50))) {
    const auto daemon = connection->Call(&v1::Profiler::Stub::GetDaemon, v1::GetDaemonRequest());
    if (!daemon.ok() || !daemon->has_hub()) return;
    const v1::HubConnection& hub = daemon->hub();
    if (!last) last = hub.acknowledged() + hub.waiting_batches();
    if (!hub.connected() || hub.acknowledged() >= *last) return;
  }
  Say("the hub does not have everything of this run yet; the rest waits in the store of this "
      "node's daemon");
}

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
  const auto daemon = connection->Call(&v1::Profiler::Stub::GetDaemon, v1::GetDaemonRequest());
  return {.counters = counters.ok() && NothingIn(*counters).empty(),
          .kernels = kernels.ok() && NothingIn(*kernels).empty(),
          .operators = !operators_folder.empty() &&
                       !std::filesystem::is_empty(operators_folder, error) && !error,
          .hub = daemon.ok() ? Printable(daemon->hub().address()) : ""};
}

int RefuseRun(const absl::Status& status, bool json) {
  Say(std::string(status.message()));
  if (json) printf("%s\n", ErrorJson(status).c_str());
  return kExitUsage;
}

}  // namespace

int Run(const RunOptions& options) {
  Supervisor supervisor;  // before gRPC starts threads
  std::string name = options.job.empty() ? JobNameFor(options.command) : options.job;
  std::string run_id = options.run_id.empty() ? RunIdFromEnvironment() : options.run_id;
  absl::StatusOr<std::string> found = FindLibrary();
  std::string library = found.value_or("");
  absl::Status error = found.status();  // why there is no profile

  std::unique_ptr<Connection> connection;
  std::unique_ptr<JobWatcher> watcher;
  std::string directory;
  FolderWhileFull operators_folder;
  if (options.operators && !library.empty()) {
    const absl::StatusOr<std::string> made = MakeOperatorsFolder(name, run_id);
    if (!made.ok()) return RefuseRun(made.status(), options.json);
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
    error = job.status();
    if (job.ok()) {
      const auto daemon = connection->Call(&v1::Profiler::Stub::GetDaemon, v1::GetDaemonRequest());
      const bool private_daemon =
          options.connect.start_private && daemon.ok() && daemon->private_daemon();
      watcher = std::make_unique<JobWatcher>(connection.get(), private_daemon, *job);
    }
  }
  if (absl::IsInvalidArgument(error)) {
    // A mistake in what was asked: better now than after a day of training.
    return RefuseRun(error, options.json);
  }
  if (!error.ok()) {
    Say(absl::StrCat(std::string(error.message()), "; the command runs without a profile"));
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

  int stop_signal = 0;  // to which the program answered with an exit status
  if (watcher != nullptr) {
    const bool connected = watcher->WaitForEnd(absl::ZeroDuration()) ||
                           connection->WaitUntilConnected(kReconnectTimeout);
    const int exit_status = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 0;
    // A launcher (torchrun) that is stopped ends its ranks, and then itself with a status.
    if (exit_status != 0) stop_signal = supervisor.stop_signal();
    TellEnd(connection.get(), watcher->job(), exit_status,
            WIFSIGNALED(wait_status) ? WTERMSIG(wait_status) : stop_signal);
    // A job that no process joined does not end by itself.
    bool joined = watcher->job().state() != v1::JOB_STATE_WAITING;
    absl::Duration timeout = joined ? kSettleTimeout : kJoinTimeout;
    if (!connected) timeout -= kReconnectTimeout;
    if (!watcher->WaitForEnd(timeout) && !joined && connected) {
      EndWaiting(connection.get(), watcher->job());
      watcher->WaitForEnd(kJoinTimeout);
    }
    if (connected) AwaitHub(connection.get());
    v1::Job job = watcher->job();
    if (options.json) {
      v1::GetJobReply reply;
      *reply.mutable_job() = job;
      printf("%s\n", ToJson(reply, /*one_line=*/false).c_str());
    } else if (!options.quiet) {
      MakePrintable(&job);
      // A Python without torch (JAX) is no problem where something was profiled.
      const std::string heard = ear.Heard();
      const bool wanted = heard.empty() || job.process_count() == 0;
      std::string missing;
      if (wanted && !ear.path().empty() && !FindAdapter().empty()) {
        missing = AdapterMissing(options.command, heard);
      }
      fputs(RunSummary(job, AskAnswers(connection.get(), job.id(), operators_folder.path),
                       wait_status, missing, stop_signal)
                .c_str(),
            stderr);
    }
    watcher.reset();
  } else if (options.json) {
    printf("%s\n", ErrorJson(error).c_str());
  }
  fflush(stdout);
  return EndLike(wait_status);
}

}  // namespace seqpoint::client
