#include "client/commands/doctor/diagnosis.h"

#include <errno.h>
#include <google/protobuf/struct.pb.h>
#include <string.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/text/format.h"
#include "client/text/json.h"
#include "client/text/nodes_text.h"

namespace seqpoint::client {
namespace {

constexpr int kCuptiMultipleSubscribers = 39;
constexpr const char* kTwoLines =
    "a program reports where its iterations begin with two lines: import ctypes; seqpoint = "
    "ctypes.CDLL(None), and there: if hasattr(seqpoint, 'seqpoint_iteration_begin'): "
    "seqpoint.seqpoint_attach(0), "
    "seqpoint.seqpoint_iteration_begin(ctypes.c_int64(int(length)))";

using Findings = std::vector<Finding>;

bool NoDriver(const DoctorFacts& facts) {
  return !facts.driver.error.empty() && facts.driver.path.empty();
}

bool NoGpu(const DoctorFacts& facts) {
  return NoDriver(facts) && !facts.nvidia_gpu && facts.kernel_driver.empty();
}

// The training may have another Python than this shell.
void JudgePython(const LibraryFacts& python, Findings* findings) {
  constexpr const char* kOther = "if the training has another Python: --python PATH asks that one";
  const std::string name = absl::StrCat(python.path, " (Python ", python.version, ")");
  if (python.path.empty()) {
    if (!python.error.empty())
      findings->push_back({Finding::kNote, "Python", python.error, kOther});
  } else if (!python.error.empty()) {
    findings->push_back(
        {Finding::kProblem, "Python", absl::StrCat(name, ": ", python.error), kOther});
  } else if (python.detail.empty()) {
    findings->push_back({Finding::kNote, "Python", name + " has no PyTorch", kOther});
  } else {
    findings->push_back({Finding::kOk, "Python", absl::StrCat(name, " has ", python.detail), ""});
  }
}

void JudgeGpu(const DoctorFacts& facts, Findings* findings) {
  const LibraryFacts& driver = facts.driver;
  if (NoGpu(facts)) {
    findings->push_back(
        {Finding::kNote, "GPU", "none: PyTorch on the CPU is profiled, time only",
         "if there is one: install the NVIDIA driver (in a container: start it with the NVIDIA "
         "runtime)"});
  } else if (NoDriver(facts)) {
    findings->push_back(
        {Finding::kProblem, "driver", "libcuda.so.1 cannot be loaded: " + driver.error,
         "install the NVIDIA driver (in a container: start it with the NVIDIA runtime)"});
  } else if (!driver.error.empty()) {
    findings->push_back({Finding::kProblem, "driver", absl::StrCat(driver.path, ": ", driver.error),
                         "look at nvidia-smi and the kernel's log (dmesg)"});
  } else {
    findings->push_back({Finding::kOk, "driver",
                         absl::StrCat(driver.version, " (", driver.path, "), ", driver.detail)});
  }
}

void JudgeCupti(const DoctorFacts& facts, Findings* findings) {
  const LibraryFacts& cupti = facts.cupti;
  int cupti_error = 0;
  if (!cupti.error.empty() && NoGpu(facts)) {
    findings->push_back({Finding::kNote, "CUPTI", "not found; without a GPU it is not needed"});
  } else if (!cupti.error.empty()) {
    findings->push_back(
        {Finding::kProblem, "CUPTI",
         cupti.path.empty() ? "no libcupti found: " + cupti.error : cupti.error,
         "install the CUDA Toolkit or the nvidia-cuda-cupti package of the training's Python "
         "environment, or set SEQPOINT_CUPTI_LIB; a program that brings its own is fine"});
  } else if (absl::SimpleAtoi(cupti.detail, &cupti_error) && !facts.driver.error.empty()) {
    findings->push_back({Finding::kNote, "CUPTI",
                         absl::StrCat("API version ", cupti.version, " (", cupti.path,
                                      "); without a driver it cannot be tried")});
  } else if (cupti_error == kCuptiMultipleSubscribers) {
    findings->push_back(
        {Finding::kProblem, "CUPTI", absl::StrCat("another tool holds CUPTI (", cupti.path, ")"),
         "end it (Nsight, a torch.profiler); until then iterations are found through NVTX and "
         "marks only"});
  } else if (cupti_error != 0) {
    findings->push_back(
        {Finding::kProblem, "CUPTI",
         absl::StrCat(cupti.path, ": cuptiSubscribe fails with CUptiResult ", cupti_error),
         "check that CUPTI is of the driver's CUDA version or older"});
  } else {
    findings->push_back(
        {Finding::kOk, "CUPTI",
         absl::StrCat("API version ", cupti.version, " (", cupti.path, "), free to use")});
  }
  for (const std::string& injection : facts.foreign_injections) {
    findings->push_back({Finding::kProblem, "CUPTI",
                         injection + " gives another tool the first place",
                         "unset it for the training program"});
  }
}

void JudgeCounters(const DoctorFacts& facts, Findings* findings) {
  if (facts.kernel_driver.empty()) {
    findings->push_back(
        {Finding::kNote, "counters", "no NVIDIA kernel driver here, so no permission to check"});
  } else if (facts.admin_only.has_value() && *facts.admin_only && !facts.has_sys_admin) {
    findings->push_back(
        {Finding::kProblem, "counters", "the driver gives GPU counters to administrators only",
         "load it with NVreg_RestrictProfilingToAdminUsers=0 (in /etc/modprobe.d), or give the "
         "training CAP_SYS_ADMIN; without, times are still projected"});
  } else {
    findings->push_back(
        {Finding::kOk, "counters",
         facts.has_sys_admin ? "permitted (CAP_SYS_ADMIN)" : "permitted to every user"});
  }
  for (const std::string& tool : facts.other_tools) {
    findings->push_back({Finding::kNote, "counters",
                         tool + " is running and may hold the GPU's counters",
                         "if counters fail, pause it (for DCGM: dcgmi profile --pause)"});
  }
}

void JudgeLibrary(const DoctorFacts& facts, const std::string& client_version, Findings* findings) {
  const LibraryFacts& inject = facts.inject;
  if (inject.path.empty()) {
    findings->push_back({Finding::kProblem, "library", inject.error});
  } else if (!inject.error.empty()) {
    findings->push_back({Finding::kProblem, "library",
                         absl::StrCat(inject.path, ": ", inject.error),
                         "install the same version of all parts"});
  } else if (inject.version != client_version) {
    findings->push_back({Finding::kProblem, "library",
                         absl::StrCat(inject.path, " is version ", inject.version,
                                      ", this program is ", client_version),
                         "install the same version of all parts"});
  } else {
    findings->push_back({Finding::kOk, "library",
                         absl::StrCat("version ", inject.version, " (", inject.path, ")")});
  }
  if (facts.adapter.empty()) {
    findings->push_back(
        {Finding::kNote, "PyTorch",
         "no adapter: iterations of PyTorch programs are found from their CUDA calls alone, and "
         "without a GPU none",
         "install share/seqpoint/python beside this program, or unset SEQPOINT_ADAPTER"});
  } else {
    findings->push_back(
        {Finding::kOk, "PyTorch",
         absl::StrCat(
             "programs tell their loop by ", facts.adapter,
             ": backward passes of a torch.nn.Module, and steps of an optimiser or by hand; "
             "on a GPU other loops are found by what they launch"),
         std::string("where neither is the case, ") + kTwoLines});
  }
}

std::string Processes(int64_t count) {
  return absl::StrCat(FormatCount(count), " live process", count == 1 ? "" : "es");
}

// At a hub, those of its nodes as well.
std::string LiveProcesses(const DoctorFacts& facts) {
  int64_t processes = facts.daemon->live_processes();
  if (!facts.nodes) return Processes(processes);
  int64_t connected = 0;
  for (const v1::Node& node : facts.nodes->nodes()) {
    processes += node.live_processes();
    connected += node.connected() ? 1 : 0;
  }
  return absl::StrCat(Processes(processes), "; a hub of ",
                      FormatCount(facts.nodes->nodes_size(), "node"), ", ", connected,
                      " connected");
}

void JudgeNodes(const v1::ListNodesReply& nodes, Findings* findings) {
  for (const v1::Node& node : nodes.nodes()) {
    if (node.connected() || node.live_processes() == 0) continue;
    findings->push_back(
        {Finding::kProblem, "node",
         absl::StrCat(NodeName(node, nodes), " is not connected; it had ",
                      Processes(node.live_processes()), " when it was last heard"),
         "look at its seqpointd (`seqpoint doctor` there); `seqpoint nodes` lists all nodes"});
  }
}

// Where training processes hand over their rings.
void JudgeSocket(const std::string& socket, Findings* findings) {
  if (access(socket.c_str(), W_OK) == 0) {
    findings->push_back({Finding::kOk, "sockets", socket + " can be written"});
    return;
  }
  findings->push_back(
      {Finding::kProblem, "sockets", absl::StrCat(socket, " cannot be written: ", strerror(errno)),
       "training processes must run as the daemon's user, and containers must mount the folder"});
}

void JudgeDaemon(const DoctorFacts& facts, const std::string& client_version, Findings* findings) {
  if (facts.daemon.has_value()) {
    const v1::GetDaemonReply& daemon = *facts.daemon;
    // Its paths are those of its machine.
    const std::string there = facts.remote_daemon ? absl::StrCat("on ", daemon.host()) : "";
    std::string message =
        absl::StrCat("seqpointd ", daemon.version(), daemon.private_daemon() ? " (private)" : "",
                     " answers ", there.empty() ? absl::StrCat("on ", daemon.api_socket()) : there,
                     "; ", FormatCount(daemon.jobs(), "job"), ", ", LiveProcesses(facts));
    if (daemon.version() != client_version) {
      findings->push_back({Finding::kProblem, "daemon",
                           absl::StrCat(message, "; this program is version ", client_version),
                           "install the same version of all parts and restart seqpointd"});
    } else {
      findings->push_back({Finding::kOk, "daemon", message});
    }
    if (daemon.has_hub()) {
      const bool connected = daemon.hub().connected();
      findings->push_back(
          {connected ? Finding::kOk : Finding::kProblem, "hub", HubText(daemon.hub()),
           connected ? "" : "the node measures by itself, and tells the hub later"});
    }
    if (facts.nodes) JudgeNodes(*facts.nodes, findings);
    // A hub that shares its store takes no process of its machine.
    const bool shares_store = !daemon.peer_address().empty();
    if (shares_store) {
      findings->push_back({Finding::kOk, "leader",
                           absl::StrCat("hub ", daemon.peer_address(),
                                        " leads; other hubs with its store pass calls to it")});
    }
    if (there.empty() && !shares_store) JudgeSocket(daemon.inject_socket(), findings);
    std::string store = absl::StrCat(there, there.empty() ? "" : ": ", daemon.store_path(), ", ",
                                     FormatQuantity(daemon.store_bytes(), "B"));
    if (daemon.error().empty()) {
      findings->push_back({Finding::kOk, "store", store});
    } else {
      findings->push_back({Finding::kProblem, "store", absl::StrCat(store, ": ", daemon.error())});
    }
  } else if (facts.daemon_hangs) {
    findings->push_back({Finding::kProblem, "daemon", facts.daemon_error});
  } else if (facts.daemon_program.empty()) {
    findings->push_back(
        {Finding::kProblem, "daemon", "none is running, and " + facts.daemon_program_error});
  } else {
    findings->push_back(
        {Finding::kOk, "daemon",
         absl::StrCat("none is running; `seqpoint run` starts ", facts.daemon_program)});
  }
}

void JudgeJobs(const DoctorFacts& facts, Findings* findings) {
  for (const v1::Job& job : facts.live_jobs) {
    for (const v1::Process& process : job.processes()) {
      for (const v1::Feature& feature : process.features()) {
        if (feature.state() != v1::FEATURE_STATE_FAILED &&
            feature.state() != v1::FEATURE_STATE_IGNORED) {
          continue;
        }
        findings->push_back(
            {feature.state() == v1::FEATURE_STATE_FAILED ? Finding::kProblem : Finding::kNote,
             "job", absl::StrCat(JobTitle(job), ", ", FeatureText(process, feature))});
      }
    }
    if (!job.error().empty()) {
      findings->push_back(
          {Finding::kProblem, "job", absl::StrCat(JobTitle(job), ": ", job.error())});
    } else if (job.state() == v1::JOB_STATE_LEARNING) {
      findings->push_back({Finding::kNote, "job",
                           JobTitle(job) + ": it is not found yet where its iterations begin",
                           kTwoLines});
    }
  }
  if (facts.ended_job && !facts.ended_job->has_rule() && !facts.ended_job->error().empty()) {
    const std::string& error = facts.ended_job->error();
    const bool told = absl::StrContains(error, "seqpoint_iteration_begin") ||
                      facts.ended_job->state() == v1::JOB_STATE_FAILED;
    findings->push_back({Finding::kNote, "job",
                         absl::StrCat(JobTitle(*facts.ended_job), ", the latest: ", error),
                         told ? "" : kTwoLines});
  }
}

constexpr const char* kKindNames[] = {"ok", "note", "problem"};  // by Finding::Kind

}  // namespace

std::vector<Finding> Diagnose(const DoctorFacts& facts, const std::string& client_version) {
  Findings findings;
  JudgeGpu(facts, &findings);
  JudgeCupti(facts, &findings);
  JudgeCounters(facts, &findings);
  JudgeLibrary(facts, client_version, &findings);
  JudgePython(facts.python, &findings);
  JudgeDaemon(facts, client_version, &findings);
  JudgeJobs(facts, &findings);
  return findings;
}

std::string FindingsText(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    std::string kind = kKindNames[finding.kind];
    kind.resize(9, ' ');
    std::string subject = finding.subject;
    subject.resize(10, ' ');
    absl::StrAppend(&text, kind, subject, finding.message, "\n");
    if (!finding.action.empty()) {
      absl::StrAppend(&text, std::string(19, ' '), "-> ", finding.action, "\n");
    }
  }
  return text;
}

std::string FindingsJson(const std::vector<Finding>& findings) {
  google::protobuf::Struct object;
  auto* list = (*object.mutable_fields())["findings"].mutable_list_value();
  for (const Finding& finding : findings) {
    auto& fields = *list->add_values()->mutable_struct_value()->mutable_fields();
    fields["kind"].set_string_value(kKindNames[finding.kind]);
    fields["subject"].set_string_value(finding.subject);
    fields["message"].set_string_value(finding.message);
    fields["action"].set_string_value(finding.action);
  }
  return ToJson(object, /*one_line=*/false);
}

}  // namespace seqpoint::client
