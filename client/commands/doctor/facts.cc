#include "client/commands/doctor/facts.h"

#include <stdint.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/host_name.h"

namespace seqpoint::client {
namespace {

constexpr int kCapSysAdmin = 21;

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

bool HasNvidiaGpu(const std::string& root) {
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(root + "/sys/bus/pci/devices", error)) {
    // Display controllers, and 3D controllers without a display.
    if (FirstLine(entry.path() / "vendor") == "0x10de" &&
        absl::StartsWith(FirstLine(entry.path() / "class"), "0x03")) {
      return true;
    }
  }
  return false;
}

// "RmProfilingAdminOnly: 1" in the driver's parameters.
std::optional<bool> ReadAdminOnly(const std::string& root) {
  std::ifstream file(root + "/proc/driver/nvidia/params");
  for (std::string line; std::getline(file, line);) {
    std::pair<std::string, std::string> parts = absl::StrSplit(line, absl::MaxSplits(": ", 1));
    if (parts.first == "RmProfilingAdminOnly") return parts.second != "0";
  }
  return std::nullopt;
}

bool HasSysAdmin(const std::string& root) {
  std::ifstream file(root + "/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    uint64_t capabilities = 0;
    if (absl::StartsWith(line, "CapEff:") &&
        absl::SimpleHexAtoi(absl::StripAsciiWhitespace(line.substr(7)), &capabilities)) {
      return (capabilities >> kCapSysAdmin & 1) != 0;
    }
  }
  return false;
}

// Tools that hold CUPTI or the performance counters while they run.
std::vector<std::string> FindOtherTools(const std::string& root) {
  std::vector<std::string> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(root + "/proc", error)) {
    int pid = 0;
    if (!absl::SimpleAtoi(entry.path().filename().string(), &pid)) continue;
    std::string command = FirstLine(entry.path() / "comm");
    for (const char* tool : {"nv-hostengine", "nsys", "ncu", "nsys-launcher", "dcgm-exporter"}) {
      if (command == tool) found.push_back(absl::StrCat(command, " (process ", pid, ")"));
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

DoctorFacts CollectFacts(const std::string& root, const std::string& python) {
  DoctorFacts facts;
  facts.driver = FindDriver();
  facts.cupti = FindCupti();
  absl::StatusOr<std::string> library = FindLibrary();
  if (library.ok()) {
    facts.inject = TryInject(*library);
    facts.inject.path = *library;
  } else {
    facts.inject.error = std::string(library.status().message());
  }
  facts.adapter = FindAdapter();
  if (!python.empty()) {
    facts.python = AskPython(python, facts.adapter);
  }
  facts.nvidia_gpu = HasNvidiaGpu(root);
  facts.kernel_driver = FirstLine(root + "/proc/driver/nvidia/version");
  facts.admin_only = ReadAdminOnly(root);
  facts.has_sys_admin = HasSysAdmin(root);
  facts.other_tools = FindOtherTools(root);
  for (const char* name : {"CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"}) {
    const char* value = getenv(name);
    if (value != nullptr && *value != '\0' && facts.inject.path != value) {
      facts.foreign_injections.push_back(absl::StrCat(name, "=", value));
    }
  }
  absl::StatusOr<std::string> daemon = FindDaemonProgram();
  if (daemon.ok()) facts.daemon_program = *daemon;
  if (!daemon.ok()) facts.daemon_program_error = std::string(daemon.status().message());
  return facts;
}

void AskDaemon(const ConnectOptions& options, DoctorFacts* facts) {
  ConnectOptions no_start = options;
  no_start.start_private = false;
  absl::StatusOr<std::unique_ptr<Connection>> connection = Connection::Open(no_start);
  if (!connection.ok()) {
    facts->daemon_error = std::string(connection.status().message());
    return;
  }
  absl::StatusOr<v1::GetDaemonReply> daemon =
      (*connection)->Call(&v1::Profiler::Stub::GetDaemon, v1::GetDaemonRequest());
  if (!daemon.ok()) {
    facts->daemon_error = std::string(daemon.status().message());
    facts->daemon_hangs = true;
    return;
  }
  facts->daemon = *std::move(daemon);
  // Through a hub of this machine, another one that leads may answer.
  const bool passed_on =
      !facts->daemon->peer_address().empty() && facts->daemon->host() != HostName();
  facts->remote_daemon = (*connection)->directory().empty() || passed_on;
  const auto nodes = (*connection)->Call(&v1::Profiler::Stub::ListNodes, v1::ListNodesRequest());
  if (nodes.ok()) facts->nodes = *nodes;  // another daemon is no hub, and says so
  v1::ListJobsRequest live;
  live.set_live_only(true);
  absl::StatusOr<v1::ListJobsReply> jobs = (*connection)->Call(&v1::Profiler::Stub::ListJobs, live);
  if (!jobs.ok()) return;
  for (const v1::Job& job : jobs->jobs()) {
    absl::StatusOr<v1::Job> found = (*connection)->GetJob(job.id());
    if (found.ok()) facts->live_jobs.push_back(*std::move(found));
  }
  v1::ListJobsRequest latest;
  latest.set_page_size(1);
  jobs = (*connection)->Call(&v1::Profiler::Stub::ListJobs, latest);
  if (jobs.ok() && jobs->jobs_size() > 0 && jobs->jobs(0).end_ns() != 0) {
    facts->ended_job = jobs->jobs(0);
  }
}

}  // namespace seqpoint::client
