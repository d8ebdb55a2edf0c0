#include "tests/support/node_jobs.h"

#include <unistd.h>

#include <chrono>
#include <thread>
#include <utility>

namespace seqpoint {

NodeJobs::NodeJobs(std::filesystem::path folder, NodeJobsOptions options)
    : folder_(std::move(folder)), options_(std::move(options)) {
  for (int hub = 0; hub < options_.hubs; ++hub) {
    hubs_.push_back(0);
    std::filesystem::create_directories(Folder(HubName(hub)));
    StartHub(hub);
  }
  for (int node = 0; node < options_.nodes; ++node) {
    nodes_.push_back(0);
    std::filesystem::create_directories(Folder(NameOf(node)));
    StartNode(node);
  }
}

NodeJobs::~NodeJobs() {
  for (int node = 0; node < options_.nodes; ++node) KillNode(node);
  for (int hub = 0; hub < options_.hubs; ++hub) KillHub(hub);
}

void NodeJobs::StartHub(int hub) {
  std::vector<std::string> options = {"--accept-nodes"};
  if (!options_.hub_store.empty()) {
    options.insert(options.end(), {"--store", options_.hub_store});
  }
  if (options_.hubs > 1) options.insert(options.end(), {"--peer-address", AddressOf(hub)});
  hubs_[static_cast<size_t>(hub)] = SpawnDaemon(Folder(HubName(hub)), {}, options);
}

std::vector<std::string> NodeJobs::EnvironmentOf(int node) const {
  return node + 1 == options_.nodes ? options_.last_node : std::vector<std::string>();
}

bool NodeJobs::StartNode(int node) {
  // Each node goes to another one of the hubs first.
  std::string hubs;
  for (int hub = 0; hub < options_.hubs; ++hub) {
    hubs += (hub == 0 ? "" : ",") + AddressOf((node + hub) % options_.hubs);
  }
  nodes_[static_cast<size_t>(node)] =
      SpawnDaemon(Folder(NameOf(node)), EnvironmentOf(node), {"--hub", hubs});
  // Where none answers, `seqpoint run` starts one of its own.
  return Ask(NameOf(node)).Call(&v1::Profiler::Stub::ListJobs, {}).has_value();
}

pid_t NodeJobs::Start(int node, const std::string& job, const std::vector<std::string>& workload) {
  const std::filesystem::path folder = Folder(NameOf(node));
  const int first = node * options_.ranks_of_node, last = first + options_.ranks_of_node - 1;
  const std::string all = std::to_string(ranks());
  std::vector<std::string> command = {
      "/usr/bin/env", "SEQPOINT_DIR=" + (folder / "run").string(),
      "XDG_STATE_HOME=" + (folder / "state").string(),
      "LD_LIBRARY_PATH=" + (BinaryDirectory().parent_path() / "softgpu").string(),
      "SWGPU_SET=clock.speed_cap=4,gpu.count=" + all};
  const std::vector<std::string> environment = EnvironmentOf(node);
  command.insert(command.end(), environment.begin(), environment.end());
  command.insert(
      command.end(),
      {(BinaryDirectory() / "seqpoint").string(), "run", "--job", job, "--run-id", "1", "--quiet",
       "--", "/bin/sh", "-c",
       "pids=; trap 'kill $pids' TERM; for rank in $(seq " + std::to_string(first) + " " +
           std::to_string(last) + "); do RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=" + all +
           " LOCAL_WORLD_SIZE=" + all +
           " MASTER_ADDR=127.0.0.1 MASTER_PORT=" + std::to_string(20'000 + getpid() % 10'000) +
           " \"$@\" & pids=\"$pids $!\"; done; for pid in $pids; do wait $pid || exit 1; done",
       "sh", (BinaryDirectory() / "seqpoint_workload").string(), "--quiet"});
  command.insert(command.end(), workload.begin(), workload.end());
  return Spawn(command, folder / "job.log");
}

bool NodeJobs::Run(const std::string& job, const std::vector<std::string>& workload) {
  std::vector<pid_t> started;
  for (int node = 0; node < options_.nodes; ++node) started.push_back(Start(node, job, workload));
  bool well = true;
  for (const pid_t pid : started) well &= WaitFor(pid) == 0;
  return well;
}

std::optional<v1::Job> NodeJobs::Job(const std::string& daemon, const std::string& job) const {
  v1::GetJobRequest request;
  request.set_job(job);
  const auto reply = Ask(daemon).Call(&v1::Profiler::Stub::GetJob, request);
  if (!reply) return std::nullopt;
  return reply->job();
}

std::optional<v1::Job> NodeJobs::AwaitEnd(const std::string& job) const {
  std::optional<v1::Job> seen;
  for (int tenth = 0; tenth < 300; ++tenth) {
    seen = Job("hub", job);
    const bool all = seen && seen->processes_size() == ranks();
    if (all && seen->state() != v1::JOB_STATE_MARKING && seen->state() != v1::JOB_STATE_LEARNING) {
      return seen;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return seen;
}

std::optional<std::vector<v1::Iteration>> NodeJobs::OnHub(const std::string& job, int rank,
                                                          size_t as_many,
                                                          const std::string& hub) const {
  auto seen = Iterations(hub, job, rank);
  for (int i = 0; i < 100 && seen && seen->size() < as_many; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    seen = Iterations(hub, job, rank);
  }
  return seen;
}

}  // namespace seqpoint
