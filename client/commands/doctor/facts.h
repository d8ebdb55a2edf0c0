// The facts about the machine and the daemon that `seqpoint doctor` judges.
// Threading: CollectFacts forks; call it before any thread was started.
#ifndef CLIENT_COMMANDS_DOCTOR_FACTS_H_
#define CLIENT_COMMANDS_DOCTOR_FACTS_H_

#include <optional>
#include <string>
#include <vector>

#include "client/commands/doctor/probes.h"
#include "client/connection.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::client {

struct DoctorFacts {
  LibraryFacts driver;  // libcuda.so.1
  LibraryFacts cupti;
  LibraryFacts inject;  // libseqpoint_inject.so
  // The Python of the training: its version, and "PyTorch 2.1.0 ..." or nothing in `detail`.
  LibraryFacts python;
  bool nvidia_gpu = false;               // on the PCI bus
  std::string adapter;                   // folder of the PyTorch adapter; empty: none
  std::string kernel_driver;             // first line of /proc/driver/nvidia/version; empty: none
  std::optional<bool> admin_only;        // RmProfilingAdminOnly
  bool has_sys_admin = false;            // CAP_SYS_ADMIN
  std::vector<std::string> other_tools;  // running: "nv-hostengine (process 812)"
  std::vector<std::string> foreign_injections;  // "CUDA_INJECTION64_PATH=/opt/nsys/..."
  std::string daemon_program;                   // path of seqpointd; empty: not found
  std::string daemon_program_error;             // why it was not found
  std::string daemon_error;                     // why none answers; empty: one does
  bool daemon_hangs = false;                    // one is there and does not answer
  std::optional<v1::GetDaemonReply> daemon;
  bool remote_daemon = false;               // its paths are another machine's
  std::optional<v1::ListNodesReply> nodes;  // the daemon is a hub, and these tell it
  std::vector<v1::Job> live_jobs;           // with their processes
  std::optional<v1::Job> ended_job;         // the latest job, where it has ended
};

// `root`: where /proc and /sys are; tests give a folder. `python`: program to ask for its PyTorch;
// empty: none is asked.
DoctorFacts CollectFacts(const std::string& root, const std::string& python = "");
void AskDaemon(const ConnectOptions& options, DoctorFacts* facts);

}  // namespace seqpoint::client

#endif  // CLIENT_COMMANDS_DOCTOR_FACTS_H_
