// `seqpoint doctor`: what stands in the way of a profile, a line each: ok, problem or note, what
// was found, and what to do.
//
// Facts are collected first (files, sockets, and libraries that are loaded in a child process, so
// that a crash of theirs is only a finding), then judged by a pure function.
//
// Threading: CollectFacts forks; call it before any thread was started.
#ifndef CLIENT_COMMANDS_DOCTOR_H_
#define CLIENT_COMMANDS_DOCTOR_H_

#include <optional>
#include <string>
#include <vector>

#include "client/connection.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::client {

// What a child process found out by loading a library.
struct LibraryFacts {
  std::string path;     // that was loaded; empty: not found
  std::string version;  // in words
  std::string detail;   // devices; for CUPTI: what subscribing gave
  std::string error;    // empty: all is well
};

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
  std::vector<v1::Job> live_jobs;    // with their processes
  std::optional<v1::Job> ended_job;  // the latest job, where it has ended
};

struct Finding {
  enum Kind { kOk, kNote, kProblem };
  Kind kind = kOk;
  std::string subject;   // "driver"
  std::string sentence;  // what was found
  std::string action;    // what to do; empty: nothing
};

// `root`: where /proc and /sys are; tests give a folder. `python`: program to ask for its PyTorch;
// empty: none is asked.
DoctorFacts CollectFacts(const std::string& root, const std::string& python = "");
void AskDaemon(const ConnectOptions& options, DoctorFacts* facts);

std::vector<Finding> Diagnose(const DoctorFacts& facts, const std::string& client_version);

std::string FindingsText(const std::vector<Finding>& findings);
// {"findings": [{"kind": "ok|note|problem", "subject", "sentence", "action"}, ...]}
std::string FindingsJson(const std::vector<Finding>& findings);

}  // namespace seqpoint::client

#endif  // CLIENT_COMMANDS_DOCTOR_H_
