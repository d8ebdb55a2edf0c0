#include "client/commands/doctor.h"

#include <dlfcn.h>
#include <errno.h>
#include <google/protobuf/struct.pb.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>

#include "absl/functional/function_ref.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "client/commands/commands.h"
#include "client/text/format.h"
#include "client/text/json.h"

namespace seqpoint::client {
namespace {

constexpr absl::Duration kProbeTimeout = absl::Seconds(20);
constexpr int kCapSysAdmin = 21;
constexpr int kCuptiMultipleSubscribers = 39;
constexpr const char* kTwoLines =
    "a program tells where its iterations begin in two lines: import ctypes; seqpoint = "
    "ctypes.CDLL(None), and there: if hasattr(seqpoint, 'seqpoint_iteration_begin'): "
    "seqpoint.seqpoint_attach(0), "
    "seqpoint.seqpoint_iteration_begin(ctypes.c_int64(int(length)))";

// Runs `probe` in a child process; its lines "path=...", "version=..." and so on come back. A child
// that crashes or hangs is a finding.
LibraryFacts ProbeInChild(const std::string& name, absl::FunctionRef<void(FILE*)> probe) {
  LibraryFacts facts;
  int fds[2];
  if (pipe(fds) != 0) return {.error = strerror(errno)};
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    close(fds[0]);
    FILE* out = fdopen(fds[1], "w");
    setvbuf(out, nullptr, _IOLBF, 0);
    // Libraries talk; what they say is not ours.
    if (freopen("/dev/null", "w", stdout) == nullptr ||
        freopen("/dev/null", "w", stderr) == nullptr) {
      _exit(1);
    }
    probe(out);
    fflush(out);
    _exit(0);
  }
  close(fds[1]);
  std::string text;
  const auto deadline = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(kProbeTimeout);
  bool timed_out = false;
  while (true) {
    const int64_t left_ms =
        absl::ToInt64Milliseconds(absl::FromChrono(deadline - std::chrono::steady_clock::now()));
    pollfd waiting = {.fd = fds[0], .events = POLLIN, .revents = 0};
    if (left_ms <= 0 || poll(&waiting, 1, static_cast<int>(left_ms)) <= 0) {
      timed_out = true;
      kill(child, SIGKILL);
      break;
    }
    char buffer[4096];
    ssize_t size = read(fds[0], buffer, sizeof(buffer));
    if (size <= 0) break;
    text.append(buffer, size);
  }
  close(fds[0]);
  int status = 0;
  waitpid(child, &status, 0);
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(text, '\n'))) {
    std::pair<std::string, std::string> parts = absl::StrSplit(line, absl::MaxSplits('=', 1));
    if (parts.first == "path") facts.path = parts.second;
    if (parts.first == "version") facts.version = parts.second;
    if (parts.first == "detail") facts.detail = parts.second;
    if (parts.first == "error") facts.error = parts.second;
  }
  if (timed_out) {
    facts.error =
        absl::StrCat(name, " did not return within ", absl::ToInt64Seconds(kProbeTimeout), " s");
  } else if (WIFSIGNALED(status)) {
    facts.error = absl::StrCat(name, " crashed (", strsignal(WTERMSIG(status)), ")");
  }
  return facts;
}

std::string PathOf(void* symbol) {
  Dl_info info;
  return dladdr(symbol, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "";
}

// In the child: the first of `names` that can be loaded; null after an error line.
void* LoadFirst(const std::vector<std::string>& names, FILE* out) {
  std::string errors;
  for (const std::string& name : names) {
    if (void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    if (errors.empty()) errors = dlerror();
  }
  fprintf(out, "error=%s\n", errors.c_str());
  return nullptr;
}

void ProbeDriver(FILE* out) {
  void* library = LoadFirst({"libcuda.so.1"}, out);
  if (library == nullptr) return;
  auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(library, "cuInit"));
  auto version = reinterpret_cast<int (*)(int*)>(dlsym(library, "cuDriverGetVersion"));
  auto count = reinterpret_cast<int (*)(int*)>(dlsym(library, "cuDeviceGetCount"));
  auto name = reinterpret_cast<int (*)(char*, int, int)>(dlsym(library, "cuDeviceGetName"));
  if (init == nullptr || version == nullptr || count == nullptr || name == nullptr) {
    fprintf(out, "error=libcuda.so.1 lacks cuInit\n");
    return;
  }
  fprintf(out, "path=%s\n", PathOf(reinterpret_cast<void*>(init)).c_str());
  int number = 0;
  version(&number);
  fprintf(out, "version=CUDA %d.%d\n", number / 1000, number % 1000 / 10);
  if (int error = init(0); error != 0) {
    fprintf(out, "error=cuInit failed with CUresult %d\n", error);
    return;
  }
  int devices = 0;
  count(&devices);
  std::string text;
  for (int i = 0; i < devices; ++i) {
    char device[256] = {};
    name(device, sizeof(device) - 1, i);
    text += (i == 0 ? "" : ", ") + std::string(device);
  }
  fprintf(out, "detail=%s\n", text.c_str());
  if (devices == 0) fprintf(out, "error=the driver sees no GPU\n");
}

std::vector<std::string> CuptiCandidates() {
  std::vector<std::string> names;
  if (const char* own = getenv("SEQPOINT_CUPTI_LIB")) names.push_back(own);
  for (const char* soname : {"libcupti.so.13", "libcupti.so.12", "libcupti.so"}) {
    names.push_back(soname);
  }
  const char* home = getenv("CUDA_HOME");
  for (const std::string& toolkit :
       {std::string(home == nullptr ? "" : home), std::string("/usr/local/cuda")}) {
    if (toolkit.empty()) continue;
    for (const char* folder : {"/extras/CUPTI/lib64/", "/lib64/", "/targets/x86_64-linux/lib/"}) {
      names.push_back(toolkit + folder + "libcupti.so");
    }
  }
  return names;
}

void ProbeCupti(FILE* out) {
  void* library = LoadFirst(CuptiCandidates(), out);
  if (library == nullptr) return;
  auto version = reinterpret_cast<int (*)(uint32_t*)>(dlsym(library, "cuptiGetVersion"));
  auto subscribe =
      reinterpret_cast<int (*)(void**, void*, void*)>(dlsym(library, "cuptiSubscribe"));
  auto unsubscribe = reinterpret_cast<int (*)(void*)>(dlsym(library, "cuptiUnsubscribe"));
  if (version == nullptr || subscribe == nullptr || unsubscribe == nullptr) {
    fprintf(out, "error=it lacks cuptiSubscribe\n");
    return;
  }
  fprintf(out, "path=%s\n", PathOf(reinterpret_cast<void*>(version)).c_str());
  uint32_t number = 0;
  version(&number);
  fprintf(out, "version=%u\n", number);
  void* subscriber = nullptr;
  void (*callback)(void*, int, uint32_t, const void*) = [](void*, int, uint32_t, const void*) {};
  int error = subscribe(&subscriber, reinterpret_cast<void*>(callback), nullptr);
  if (error == 0) {
    unsubscribe(subscriber);
  } else {
    fprintf(out, "detail=%d\n", error);
  }
}

void ProbeInject(const std::string& path, FILE* out) {
  void* library = LoadFirst({path}, out);
  if (library == nullptr) return;
  fprintf(out, "path=%s\n", path.c_str());
  auto version = reinterpret_cast<const char* (*)()>(dlsym(library, "seqpoint_version"));
  if (version == nullptr || dlsym(library, "InitializeInjection") == nullptr) {
    fprintf(out, "error=%s is not SeqPoint's library\n", path.c_str());
    return;
  }
  fprintf(out, "version=%s\n", version());
}

// Importing torch may take long where its files are not in memory yet.
constexpr const char* kAskPython = R"(
import sys
print('path=' + sys.executable, flush=True)
print('version=%d.%d.%d' % sys.version_info[:3], flush=True)
if len(sys.argv) > 1 and 'seqpoint_start' not in sys.modules:
    print('error=it does not run sitecustomize.py of ' + sys.argv[1], flush=True)
try:
    import torch
except ModuleNotFoundError as error:
    if error.name != 'torch':
        print('error=import torch fails: ' + str(error).split('\n')[0])
except BaseException as error:
    print('error=import torch fails: ' + str(error).split('\n')[0])
else:
    cuda = torch.version.cuda
    print('detail=PyTorch', torch.__version__, 'for CUDA ' + cuda if cuda else 'without CUDA')
)";

void ProbePython(const std::string& python, const std::string& adapter, FILE* out) {
  if (!adapter.empty()) {
    const char* path = getenv("PYTHONPATH");
    setenv("PYTHONPATH", path == nullptr ? adapter.c_str() : (adapter + ":" + path).c_str(), 1);
  }
  dup2(fileno(out), STDOUT_FILENO);
  execlp(python.c_str(), python.c_str(), "-c", kAskPython,
         adapter.empty() ? nullptr : adapter.c_str(), nullptr);
  fprintf(out, "error=%s: %s\n", python.c_str(), strerror(errno));
}

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
  facts.driver = ProbeInChild("libcuda.so.1", ProbeDriver);
  facts.cupti = ProbeInChild("CUPTI", ProbeCupti);
  absl::StatusOr<std::string> library = FindLibrary();
  if (library.ok()) {
    facts.inject =
        ProbeInChild("libseqpoint_inject.so", [&](FILE* out) { ProbeInject(*library, out); });
    facts.inject.path = *library;
  } else {
    facts.inject.error = std::string(library.status().message());
  }
  facts.adapter = FindAdapter();
  if (!python.empty()) {
    facts.python =
        ProbeInChild(python, [&](FILE* out) { ProbePython(python, facts.adapter, out); });
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
  v1::ListJobsRequest live;
  live.set_live_only(true);
  absl::StatusOr<v1::ListJobsReply> jobs = (*connection)->Call(&v1::Profiler::Stub::ListJobs, live);
  if (!jobs.ok()) return;
  for (const v1::Job& job : jobs->jobs()) {
    v1::GetJobRequest request;
    request.set_job(job.id());
    absl::StatusOr<v1::GetJobReply> reply =
        (*connection)->Call(&v1::Profiler::Stub::GetJob, request);
    if (reply.ok()) facts->live_jobs.push_back(reply->job());
  }
  v1::ListJobsRequest latest;
  latest.set_page_size(1);
  jobs = (*connection)->Call(&v1::Profiler::Stub::ListJobs, latest);
  if (jobs.ok() && jobs->jobs_size() > 0 && jobs->jobs(0).end_ns() != 0) {
    facts->ended_job = jobs->jobs(0);
  }
}

namespace {

using Add = absl::FunctionRef<void(Finding::Kind kind, const char* subject, std::string sentence,
                                   std::string action)>;

// The training may have another Python than this shell.
void AddPython(const LibraryFacts& python, Add add) {
  constexpr const char* kOther = "if the training has another Python: --python PATH asks that one";
  const std::string name = absl::StrCat(python.path, " (Python ", python.version, ")");
  if (python.path.empty()) {
    if (!python.error.empty()) add(Finding::kNote, "Python", python.error, kOther);
  } else if (!python.error.empty()) {
    add(Finding::kProblem, "Python", absl::StrCat(name, ": ", python.error), kOther);
  } else if (python.detail.empty()) {
    add(Finding::kNote, "Python", name + " has no PyTorch", kOther);
  } else {
    add(Finding::kOk, "Python", absl::StrCat(name, " has ", python.detail), "");
  }
}

}  // namespace

std::vector<Finding> Diagnose(const DoctorFacts& facts, const std::string& client_version) {
  std::vector<Finding> findings;
  auto add = [&](Finding::Kind kind, const char* subject, std::string sentence,
                 std::string action = "") {
    findings.push_back({kind, subject, std::move(sentence), std::move(action)});
  };

  const LibraryFacts& driver = facts.driver;
  const bool no_driver = !driver.error.empty() && driver.path.empty();
  const bool no_gpu = no_driver && !facts.nvidia_gpu && facts.kernel_driver.empty();
  if (no_gpu) {
    add(Finding::kNote, "GPU", "none: PyTorch on the CPU is profiled, time only",
        "if there is one: install the NVIDIA driver (in a container: start it with the NVIDIA "
        "runtime)");
  } else if (no_driver) {
    add(Finding::kProblem, "driver", "libcuda.so.1 cannot be loaded: " + driver.error,
        "install the NVIDIA driver (in a container: start it with the NVIDIA runtime)");
  } else if (!driver.error.empty()) {
    add(Finding::kProblem, "driver", absl::StrCat(driver.path, ": ", driver.error),
        "look at nvidia-smi and the kernel's log (dmesg)");
  } else {
    add(Finding::kOk, "driver",
        absl::StrCat(driver.version, " (", driver.path, "), ", driver.detail));
  }

  const LibraryFacts& cupti = facts.cupti;
  int cupti_error = 0;
  if (!cupti.error.empty() && no_gpu) {
    add(Finding::kNote, "CUPTI", "not found; without a GPU it is not needed");
  } else if (!cupti.error.empty()) {
    add(Finding::kProblem, "CUPTI",
        cupti.path.empty() ? "no libcupti found: " + cupti.error : cupti.error,
        "install the CUDA Toolkit or the nvidia-cuda-cupti package of the training's Python "
        "environment, or set SEQPOINT_CUPTI_LIB; a program that brings its own is fine");
  } else if (absl::SimpleAtoi(cupti.detail, &cupti_error) && !driver.error.empty()) {
    add(Finding::kNote, "CUPTI",
        absl::StrCat("API version ", cupti.version, " (", cupti.path,
                     "); without a driver it cannot be tried"));
  } else if (cupti_error == kCuptiMultipleSubscribers) {
    add(Finding::kProblem, "CUPTI", absl::StrCat("another tool holds CUPTI (", cupti.path, ")"),
        "end it (Nsight, a torch.profiler); until then iterations are found through NVTX and "
        "marks only");
  } else if (cupti_error != 0) {
    add(Finding::kProblem, "CUPTI",
        absl::StrCat(cupti.path, ": cuptiSubscribe fails with CUptiResult ", cupti_error),
        "check that CUPTI is of the driver's CUDA version or older");
  } else {
    add(Finding::kOk, "CUPTI",
        absl::StrCat("API version ", cupti.version, " (", cupti.path, "), free to use"));
  }
  for (const std::string& injection : facts.foreign_injections) {
    add(Finding::kProblem, "CUPTI", injection + " gives another tool the first place",
        "unset it for the training program");
  }

  if (facts.kernel_driver.empty()) {
    add(Finding::kNote, "counters", "no NVIDIA kernel driver here, so no permission to check");
  } else if (facts.admin_only.has_value() && *facts.admin_only && !facts.has_sys_admin) {
    add(Finding::kProblem, "counters", "the driver gives GPU counters to administrators only",
        "load it with NVreg_RestrictProfilingToAdminUsers=0 (in /etc/modprobe.d), or give the "
        "training CAP_SYS_ADMIN; without, times are still projected");
  } else {
    add(Finding::kOk, "counters",
        facts.has_sys_admin ? "permitted (CAP_SYS_ADMIN)" : "permitted to every user");
  }
  for (const std::string& tool : facts.other_tools) {
    add(Finding::kNote, "counters", tool + " is running and may hold the GPU's counters",
        "if counters fail, pause it (for DCGM: dcgmi profile --pause)");
  }

  const LibraryFacts& inject = facts.inject;
  if (inject.path.empty()) {
    add(Finding::kProblem, "library", inject.error);
  } else if (!inject.error.empty()) {
    add(Finding::kProblem, "library", absl::StrCat(inject.path, ": ", inject.error),
        "install the same version of all parts");
  } else if (inject.version != client_version) {
    add(Finding::kProblem, "library",
        absl::StrCat(inject.path, " is version ", inject.version, ", this program is ",
                     client_version),
        "install the same version of all parts");
  } else {
    add(Finding::kOk, "library", absl::StrCat("version ", inject.version, " (", inject.path, ")"));
  }
  if (facts.adapter.empty()) {
    add(Finding::kNote, "PyTorch",
        "no adapter: iterations of PyTorch programs are found from their CUDA calls alone, and "
        "without a GPU none",
        "install share/seqpoint/python beside this program, or unset SEQPOINT_ADAPTER");
  } else {
    add(Finding::kOk, "PyTorch",
        absl::StrCat(
            "programs tell their loop by ", facts.adapter,
            ": backward passes of a torch.nn.Module, and steps of an optimiser or by hand; "
            "on a GPU other loops are found by what they launch"),
        std::string("where neither is the case, ") + kTwoLines);
  }
  AddPython(facts.python, add);

  if (facts.daemon.has_value()) {
    const v1::GetDaemonReply& daemon = *facts.daemon;
    std::string sentence = absl::StrCat(
        "seqpointd ", daemon.version(), daemon.private_daemon() ? " (private)" : "", " answers on ",
        daemon.api_socket(), "; ", FormatCount(daemon.jobs(), "job"), ", ", daemon.live_processes(),
        daemon.live_processes() == 1 ? " live process" : " live processes");
    if (daemon.version() != client_version) {
      add(Finding::kProblem, "daemon",
          absl::StrCat(sentence, "; this program is version ", client_version),
          "install the same version of all parts and restart seqpointd");
    } else {
      add(Finding::kOk, "daemon", sentence);
    }
    if (access(daemon.inject_socket().c_str(), W_OK) == 0) {
      add(Finding::kOk, "sockets", daemon.inject_socket() + " can be written");
    } else {
      add(Finding::kProblem, "sockets",
          absl::StrCat(daemon.inject_socket(), " cannot be written: ", strerror(errno)),
          "training processes must run as the daemon's user, and containers must mount the folder");
    }
    std::string store =
        absl::StrCat(daemon.store_path(), ", ", FormatQuantity(daemon.store_bytes(), "B"));
    if (daemon.trouble().empty()) {
      add(Finding::kOk, "store", store);
    } else {
      add(Finding::kProblem, "store", absl::StrCat(store, ": ", daemon.trouble()));
    }
  } else if (facts.daemon_hangs) {
    add(Finding::kProblem, "daemon", facts.daemon_error);
  } else if (facts.daemon_program.empty()) {
    add(Finding::kProblem, "daemon", "none is running, and " + facts.daemon_program_error);
  } else {
    add(Finding::kOk, "daemon",
        absl::StrCat("none is running; `seqpoint run` starts ", facts.daemon_program));
  }

  for (const v1::Job& job : facts.live_jobs) {
    for (const v1::Process& process : job.processes()) {
      for (const v1::Feature& feature : process.features()) {
        if (feature.state() != v1::FEATURE_STATE_FAILED &&
            feature.state() != v1::FEATURE_STATE_IGNORED) {
          continue;
        }
        add(feature.state() == v1::FEATURE_STATE_FAILED ? Finding::kProblem : Finding::kNote, "job",
            absl::StrCat(JobTitle(job), ", ", FeatureText(process, feature)));
      }
    }
    if (!job.trouble().empty()) {
      add(Finding::kProblem, "job", absl::StrCat(JobTitle(job), ": ", job.trouble()));
    } else if (job.state() == v1::JOB_STATE_LEARNING) {
      add(Finding::kNote, "job", JobTitle(job) + ": it is not found yet where its iterations begin",
          kTwoLines);
    }
  }
  if (facts.ended_job && !facts.ended_job->has_rule() && !facts.ended_job->trouble().empty()) {
    const std::string& trouble = facts.ended_job->trouble();
    const bool told = absl::StrContains(trouble, "seqpoint_iteration_begin") ||
                      facts.ended_job->state() == v1::JOB_STATE_FAILED;
    add(Finding::kNote, "job", absl::StrCat(JobTitle(*facts.ended_job), ", the latest: ", trouble),
        told ? "" : kTwoLines);
  }
  return findings;
}

namespace {

const char* KindName(Finding::Kind kind) {
  switch (kind) {
    case Finding::kOk:
      return "ok";
    case Finding::kNote:
      return "note";
    case Finding::kProblem:
      return "problem";
  }
  return "";
}

}  // namespace

std::string FindingsText(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    std::string kind = KindName(finding.kind);
    kind.resize(9, ' ');
    std::string subject = finding.subject;
    subject.resize(10, ' ');
    absl::StrAppend(&text, kind, subject, finding.sentence, "\n");
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
    fields["kind"].set_string_value(KindName(finding.kind));
    fields["subject"].set_string_value(finding.subject);
    fields["sentence"].set_string_value(finding.sentence);
    fields["action"].set_string_value(finding.action);
  }
  return ToJson(object, /*one_line=*/false);
}

namespace {

struct DoctorOptions {
  std::string python = "python3";
};

int Doctor(const Context& context, DoctorOptions& options) {
  DoctorFacts facts = CollectFacts("", options.python);
  AskDaemon(context.connect(), &facts);
  const std::vector<Finding> findings = Diagnose(facts, context.version());
  Context::Print(context.json() ? FindingsJson(findings) + "\n" : FindingsText(findings));
  const bool problem = std::any_of(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.kind == Finding::kProblem;
  });
  return problem ? kExitError : kExitOk;
}

}  // namespace

void AddDoctor(CLI::App* app, Context* context) {
  auto [command, options] = AddCommand<DoctorOptions>(
      app, context, "doctor", "Say what stands in the way of a profile, and what to do.", &Doctor);
  command
      ->add_option("--python", options->python,
                   "the Python of the training, whose PyTorch is looked at; default: python3")
      ->type_name("PATH");
}

}  // namespace seqpoint::client
