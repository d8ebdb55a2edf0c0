#include "client/commands/doctor/probes.h"

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"

namespace seqpoint::client {
namespace {

constexpr absl::Duration kProbeTimeout = absl::Seconds(20);

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

}  // namespace

LibraryFacts FindDriver() { return ProbeInChild("libcuda.so.1", ProbeDriver); }

LibraryFacts FindCupti() { return ProbeInChild("CUPTI", ProbeCupti); }

LibraryFacts TryInject(const std::string& path) {
  return ProbeInChild("libseqpoint_inject.so", [&](FILE* out) { ProbeInject(path, out); });
}

LibraryFacts AskPython(const std::string& python, const std::string& adapter) {
  return ProbeInChild(python, [&](FILE* out) { ProbePython(python, adapter, out); });
}

}  // namespace seqpoint::client
