#include "tests/whatif/software_runs.h"

#include <signal.h>
#include <sys/wait.h>

#include <fstream>
#include <optional>
#include <sstream>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace seqpoint::whatif {
namespace {

namespace fs = std::filesystem;

int WaitFor(pid_t pid) {
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void Append(const std::vector<std::string>& more, std::vector<std::string>* command) {
  command->insert(command->end(), more.begin(), more.end());
}

std::string TextOf(const fs::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

SoftwareRuns::SoftwareRuns() : bin_(BinaryDirectory()), api_(folder_.path() / "run" / "api.sock") {
  daemon_ = Spawn(
      {bin_ / "seqpointd", "--dir", folder_.path() / "run", "--store", folder_.path() / "store.db"},
      folder_.path() / "daemon.log");
  // `seqpoint run` would start one of its own before that one answers.
  api_.Call(&v1::Profiler::Stub::ListJobs, v1::ListJobsRequest());
}

SoftwareRuns::~SoftwareRuns() {
  kill(daemon_, SIGTERM);
  WaitFor(daemon_);
}

std::vector<std::string> SoftwareRuns::Environment(const std::string& settings) const {
  return {"/usr/bin/env", absl::StrCat("SEQPOINT_DIR=", (folder_.path() / "run").string()),
          absl::StrCat("XDG_STATE_HOME=", (folder_.path() / "state").string()),
          absl::StrCat("LD_LIBRARY_PATH=", (bin_.parent_path() / "softgpu").string()),
          absl::StrCat("SWGPU_SET=", settings)};
}

std::vector<std::string> SoftwareRuns::Command(const std::vector<std::string>& options,
                                               const fs::path& truth) const {
  std::vector<std::string> command = {bin_ / "seqpoint_workload", "--quiet", "--truth", truth};
  Append(options, &command);
  return command;
}

std::string SoftwareRuns::Log(const std::string& name) const {
  return (folder_.path() / (name + ".log")).string();
}

pid_t SoftwareRuns::StartTraining(const std::string& name, const std::vector<std::string>& options,
                                  const std::string& settings,
                                  const std::vector<std::string>& environment) {
  // Not much faster than it would be in earnest: the daemon has to follow.
  std::vector<std::string> command = Environment(absl::StrCat("clock.speed_cap=8,", settings));
  Append(environment, &command);
  Append({bin_ / "seqpoint", "run", "--job", name, "--no-progress", "--quiet"}, &command);
  command.push_back("--");
  Append(Command(options, folder_.path() / (name + ".jsonl")), &command);
  return Spawn(command, Log(name));
}

absl::StatusOr<SoftwareRun> SoftwareRuns::Train(const std::string& name,
                                                const std::vector<std::string>& options,
                                                const std::string& settings) {
  if (!api_.Call(&v1::Profiler::Stub::ListJobs, v1::ListJobsRequest())) {
    return absl::UnavailableError(
        absl::StrCat("no daemon: ", api_.error(), "\n", TextOf(folder_.path() / "daemon.log")));
  }
  std::vector<std::string> alone = Environment(absl::StrCat("clock.speed_cap=0,", settings));
  Append(Command(options, folder_.path() / (name + ".alone.jsonl")), &alone);
  if (WaitFor(StartTraining(name, options, settings)) != 0 ||
      WaitFor(Spawn(alone, Log(name))) != 0) {
    return absl::InternalError(absl::StrCat(name, " failed:\n", TextOf(Log(name))));
  }
  const std::optional<Truth> watched = ReadTruth(folder_.path() / (name + ".jsonl"));
  std::optional<Truth> by_itself = ReadTruth(folder_.path() / (name + ".alone.jsonl"));
  const auto iterations = api_.Iterations(name);
  if (!watched || !by_itself || !iterations) {
    return absl::InternalError(absl::StrCat(
        name, ": no truth file, or no iterations: ", api_.error(), "\n", TextOf(Log(name))));
  }
  SoftwareRun run;
  run.watched_ns = UndisturbedTimeNs(*watched, *by_itself, *iterations);
  run.alone_ns = by_itself->epoch_time_ns;
  run.alone = *std::move(by_itself);
  return run;
}

absl::StatusOr<v1::WhatIfReply> SoftwareRuns::WhatIf(const std::string& job,
                                                     const std::vector<std::string>& changes) {
  v1::WhatIfRequest request;
  request.set_job(job);
  request.set_confidence(0.95);
  for (const std::string& change : changes) {
    const bool steps = change.find(' ') != std::string::npos;
    (steps ? *request.add_changes()->mutable_text() : *request.add_changes()->mutable_preset()) =
        change;
  }
  auto reply = api_.Call(&v1::Profiler::Stub::WhatIf, request);
  if (!reply) return absl::InternalError(absl::StrCat(job, ": ", api_.error()));
  return *std::move(reply);
}

SoftwareRuns::Said SoftwareRuns::Seqpoint(const std::vector<std::string>& arguments) {
  const fs::path log = folder_.path() / "said.log";
  fs::remove(log);
  std::vector<std::string> command = Environment("");
  command.push_back(bin_ / "seqpoint");
  Append(arguments, &command);
  Said said;
  said.status = WaitFor(Spawn(command, log));
  said.text = TextOf(log);
  return said;
}

}  // namespace seqpoint::whatif
