#include "tests/support/rank_jobs.h"

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

#include "tests/support/truth.h"

namespace seqpoint {

RankJobs::RankJobs(std::filesystem::path folder, std::vector<std::string> daemon_options)
    : folder_(std::move(folder)), daemon_options_(std::move(daemon_options)) {
  std::filesystem::create_directories(folder_);
  setenv("SEQPOINT_DIR", (folder_ / "run").c_str(), 1);
  setenv("XDG_STATE_HOME", (folder_ / "state").c_str(), 1);
  StartDaemon();
}

RankJobs::~RankJobs() { KillAndWait(&daemon_, SIGKILL); }

// Where none answers, `seqpoint run` starts one of its own.
void RankJobs::StartDaemon() {
  daemon_ = SpawnDaemon(folder_, {}, daemon_options_);
  NewApi().Call(&v1::Profiler::Stub::ListJobs, v1::ListJobsRequest());
}

void RankJobs::KillDaemon() { KillAndWait(&daemon_, SIGKILL); }

void RankJobs::RestartDaemon() {
  KillDaemon();
  StartDaemon();
}

std::filesystem::path RankJobs::TruthFile(const std::string& name, int rank) const {
  return folder_ / (name + "." + std::to_string(rank) + ".jsonl");
}

std::vector<std::string> RankJobs::Command(const RankJobOptions& options, bool profiled) const {
  std::string settings = "SWGPU_SET=gpu.count=" + std::to_string(options.ranks);
  for (const std::string& setting : options.settings) settings += "," + setting;
  std::vector<std::string> command = {
      "/usr/bin/env", "LD_LIBRARY_PATH=" + (bin_.parent_path() / "softgpu").string(), settings};
  const auto add = [&](const std::vector<std::string>& words) {
    command.insert(command.end(), words.begin(), words.end());
  };
  if (profiled) {
    add({(bin_ / "seqpoint").string(), "run", "--job",
         options.job.empty() ? options.name : options.job, "--quiet"});
    add(options.run);
    add({"--"});
  }
  const std::string ranks = std::to_string(options.ranks);
  if (options.by_hand) {
    const std::string port = std::to_string(20'000 + getpid() % 10'000);
    add({"/bin/sh", "-c",
         "pids=; for rank in $(seq 0 " + std::to_string(options.ranks - 1) +
             "); do RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=" + ranks +
             " LOCAL_WORLD_SIZE=" + ranks + " MASTER_ADDR=127.0.0.1 MASTER_PORT=" + port +
             " \"$@\" & pids=\"$pids $!\"; done; trap \"kill -9 $pids\" TERM; wait",
         "sh"});
  } else {
    add({(bin_ / "seqpoint_launch").string(), "-n", ranks});
  }
  add({(bin_ / "seqpoint_workload").string(), "--quiet"});
  if (options.truth) add({"--truth", (folder_ / (options.name + ".%r.jsonl")).string()});
  add(options.workload);
  return command;
}

pid_t RankJobs::Start(const RankJobOptions& options) {
  return Spawn(Command(options, true), Log(options.name));
}

bool RankJobs::Run(const RankJobOptions& options) { return WaitFor(Start(options)) == 0; }

bool RankJobs::RunAlone(const RankJobOptions& options) {
  return WaitFor(Spawn(Command(options, false), Log(options.name))) == 0;
}

std::optional<v1::GetRanksReply> RankJobs::Ranks(const std::string& name) {
  Api api(folder_ / "run" / "api.sock");
  v1::GetRanksRequest request;
  request.set_job(name);
  auto reply = api.Call(&v1::Profiler::Stub::GetRanks, request);
  if (!reply) std::fprintf(stderr, "%s: %s\n", name.c_str(), api.error().c_str());
  return reply;
}

std::optional<v1::Job> RankJobs::Job(const std::string& name) {
  Api api(folder_ / "run" / "api.sock");
  v1::GetJobRequest request;
  request.set_job(name);
  const auto reply = api.Call(&v1::Profiler::Stub::GetJob, request);
  if (!reply) return std::nullopt;
  return reply->job();
}

double RankJobs::TrainTimeNs(const std::string& name) const {
  const auto truth = ReadTruth(TruthFile(name, 0));
  return truth ? truth->epoch_time_ns : 0;
}

}  // namespace seqpoint
