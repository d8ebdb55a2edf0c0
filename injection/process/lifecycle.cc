// Entry points, and the ways in which a process ends or splits.
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include <algorithm>

#include "injection/base/identity.h"
#include "injection/nccl/activation_masks.h"
#include "injection/nccl/communicator_table.h"
#include "injection/nccl/plugin.h"
#include "injection/process/guest.h"
#include "injection/process/nvtx.h"
#include "injection/process/other_users.h"
#include "injection/process/redirect.h"
#define SEQPOINT_API __attribute__((visibility("default")))
#include "injection/cupti/stand_down_requests.h"
#include "injection/seqpoint.h"
#include "injection/version.h"

// Linked without the compiler's start files, so that nothing of the C++ runtime is referenced;
// pthread_atfork wants this name for the object that registers.
extern "C" {
__attribute__((visibility("hidden"))) void* __dso_handle = &__dso_handle;
// The tables of abstract classes refer to it.
__attribute__((visibility("hidden"))) void __cxa_pure_virtual() { __builtin_trap(); }
__attribute__((visibility("default"))) int InitializeInjection(void);
__attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t get_export_table);
}

namespace seqpoint::inject {
namespace {

using abi::Feature;
using abi::FeatureState;
using Library = CuptiOwnership::Library;

constexpr char kCudaVariable[] = "CUDA_INJECTION64_PATH";
constexpr char kNvtxVariable[] = "NVTX_INJECTION64_PATH";
constexpr char kNcclVariable[] = "NCCL_PROFILER_PLUGIN";
constexpr uint64_t kExitTimeoutNs = 1'000'000'000;

bool g_disabled = false;     // SEQPOINT_DISABLE=1, or a forked child of a profiled process
bool g_initialized = false;  // InitializeInjection ran

bool DisabledByUser() {
  const char* value = getenv("SEQPOINT_DISABLE");
  return value != nullptr && strcmp(value, "1") == 0;
}

const char* OwnPath() {
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(InitializeInjection), &info) == 0) return nullptr;
  return info.dli_fname;
}

// Only what is not set: a foreign value belongs to another tool.
void SetUnlessSet(const char* variable, const char* value) {
  if (value != nullptr && value[0] == '/') setenv(variable, value, 0);
}

// The tool that the user gave the program's GPU work to; null: none but us.
const char* OtherTool() {
  const char* tool = getenv(kCudaVariable);
  const char* path = OwnPath();
  return tool != nullptr && tool[0] != '\0' && path != nullptr && strcmp(tool, path) != 0 ? tool
                                                                                          : nullptr;
}

void OnForkInChild() {
  ForgetStandDownInChild();
  SetRank(-1, -1);
  Guest* guest = g_guest;
  if (!g_initialized || guest == nullptr) return;
  // CUDA does not work in this child, the helper thread does not exist, locks may be held for ever.
  g_disabled = true;
  g_guest = nullptr;
  g_activation_masks.ForgetInChild();
  ActivityBuffers::ForgetInChild();
  guest->helper.ForgetInChild();
  guest->ring.DisableInChild();
}

void OnExit(int status, void*) {
  Guest* guest = g_guest;
  if (guest == nullptr || getpid() != guest->owner) return;
  guest->Stop();
  if (!guest->helper.Finish(kExitTimeoutNs)) {
    guest->features.Report(Feature::kExit, FeatureState::kFailed, 0,
                           "the last records were not flushed: CUPTI did not answer within 1 s at "
                           "exit");
  }
  guest->communicators.WriteAll();
  guest->ring.Close(status);
}

// Runs when the library is loaded, in every program that a preloading shell starts: nothing but
// three variables and a handler.
__attribute__((constructor)) void OnLoad() {
  if (DisabledByUser()) {
    g_disabled = true;
    return;
  }
  const char* path = OwnPath();
  SetUnlessSet(kCudaVariable, path);
  SetUnlessSet(kNvtxVariable, path);
  SetUnlessSet(kNcclVariable, path);
  pthread_atfork(nullptr, nullptr, OnForkInChild);
  if (const char* tool = OtherTool(); tool != nullptr) {
    Log("CUDA_INJECTION64_PATH=%s belongs to another tool: this process is not profiled", tool);
  }
}

// A copy of the library's file is a second library with state of its own. The first one that the
// driver called has the process.
bool AnotherCopyIsActive() {
  const char* own = OwnPath();
  char path[PATH_MAX];
  const bool copied = AnyLoaded([&](const dl_phdr_info& info) {
    if (strstr(info.dlpi_name, "libseqpoint_inject") == nullptr) return false;
    if (own != nullptr && strcmp(info.dlpi_name, own) == 0) return false;
    snprintf(path, sizeof(path), "%s", info.dlpi_name);
    return true;
  });
  void* copy = copied ? dlopen(path, RTLD_NOLOAD | RTLD_NOW) : nullptr;
  if (copy == nullptr) return false;
  const auto active = reinterpret_cast<decltype(&seqpoint_active)>(dlsym(copy, "seqpoint_active"));
  return active != nullptr && active() != 0;
}

// A program that was started with the library has our functions by their names. One that the driver
// or NVTX gave it to has weak names that nobody answered to.
void ShowFunctions() {
  const Redirection bindings[] = {
#define SEQPOINT_BINDING(name) {#name, nullptr, reinterpret_cast<void*>(name)}
      SEQPOINT_BINDING(seqpoint_iteration_begin),
      SEQPOINT_BINDING(seqpoint_iteration_begin2),
      SEQPOINT_BINDING(seqpoint_attach),
      SEQPOINT_BINDING(seqpoint_forward),
      SEQPOINT_BINDING(seqpoint_features),
      SEQPOINT_BINDING(seqpoint_step),
      SEQPOINT_BINDING(seqpoint_describe),
      SEQPOINT_BINDING(seqpoint_batches),
      SEQPOINT_BINDING(seqpoint_wants_operators),
      SEQPOINT_BINDING(seqpoint_distort),
      SEQPOINT_BINDING(seqpoint_operators),
      SEQPOINT_BINDING(seqpoint_rank),
      SEQPOINT_BINDING(seqpoint_stand_down),
      SEQPOINT_BINDING(seqpoint_come_back),
      SEQPOINT_BINDING(seqpoint_active),
      SEQPOINT_BINDING(seqpoint_version),
      SEQPOINT_BINDING(seqpoint_group),
      SEQPOINT_BINDING(seqpoint_group_end),
      SEQPOINT_BINDING(seqpoint_collective_begin),
      SEQPOINT_BINDING(seqpoint_collective_end),
      SEQPOINT_BINDING(seqpoint_collectives),
#undef SEQPOINT_BINDING
  };
  BindWeak(bindings);
  // For what asks from now on, such as ctypes.CDLL(None).
  const char* path = OwnPath();
  if (path != nullptr) dlopen(path, RTLD_NOLOAD | RTLD_NOW | RTLD_GLOBAL);
}

injection::RingOptions WantedRing() {
  injection::RingOptions options;
  const char* text = getenv("SEQPOINT_RING_BYTES");
  if (text == nullptr) return options;
  const unsigned long long bytes = strtoull(text, nullptr, 10);
  if (bytes == 0) return options;
  if (bytes <= 64 << 10) return injection::kSmallRing;
  // At most 64 MiB with the lane.
  options.chunk_count =
      static_cast<uint32_t>(std::clamp(bytes / options.chunk_bytes, 1ull, 900ull));
  return options;
}

void ReportNvtx(Guest* guest) {
  if (guest->nvtx_patched.load()) {
    guest->features.Report(Feature::kNvtx, FeatureState::kReady, 0, "NVTX ranges are watched");
    return;
  }
  const char* path = OwnPath();
  const char* nvtx = getenv(kNvtxVariable);
  if (nvtx != nullptr && path != nullptr && strcmp(nvtx, path) == 0) {
    guest->features.Report(Feature::kNvtx, FeatureState::kPending, 0,
                           "NVTX ranges are watched as soon as the program uses one");
  } else {
    guest->features.Report(Feature::kNvtx, FeatureState::kIgnored, 0,
                           "NVTX belongs to another tool (NVTX_INJECTION64_PATH=%s); ranges are "
                           "not seen, iterations are found without them",
                           nvtx == nullptr ? "" : nvtx);
  }
}

// Without a word about programs that use no NCCL: they have its variable as well.
void ReportNccl(Guest* guest) {
  if (const int version = g_communicator_table.OpenVersion(); version != 0) {
    ReportNcclReady(guest, version);
    return;
  }
  const char* plugin = getenv(kNcclVariable);
  const char* path = OwnPath();
  if (plugin == nullptr || path == nullptr) return;
  if (strstr(Basename(plugin), "seqpoint_inject") != nullptr || strcmp(plugin, path) == 0) return;
  guest->features.Report(
      Feature::kNccl, FeatureState::kIgnored, 0,
      strcasecmp(plugin, "none") == 0
          ? "NCCL loads no profiler plugin (NCCL_PROFILER_PLUGIN=%s): who waits "
            "for whom in collectives is not seen; unset the variable"
          : "NCCL's profiler plugin is another tool's (NCCL_PROFILER_PLUGIN=%s): "
            "who waits for whom in collectives is not seen; start the program "
            "with `seqpoint run`, which calls both",
      plugin);
}

// Who began: the CUDA driver, or a framework adapter, in a program with or without a GPU.
enum class Caller { kDriver, kAdapter, kAdapterWithoutGpu };

void Initialize(Caller caller) {
  Guest* guest = EnsureGuest();
  if (guest == nullptr) {
    Log("no memory for the profiler; training goes on without it");
    return;
  }
  guest->owner = getpid();
  const injection::Status ring = guest->ring.Create(WantedRing());
  if (!ring.ok()) {
    Log("%s; training goes on without the profiler", ring.message);
    return;
  }
  const injection::Status path =
      injection::InjectSocketPath(guest->socket_path, sizeof(guest->socket_path));
  if (!path.ok()) Log("%s", path.message);

  if (caller == Caller::kAdapterWithoutGpu) {
    guest->ownership.SetLibrary(Library::kNoGpu);
    guest->host_times.store(true);
    guest->features.Report(Feature::kCupti, FeatureState::kIgnored, 0,
                           "the program does not use a GPU: time only");
  } else if (const char* tool = OtherTool(); tool != nullptr && caller == Caller::kAdapter) {
    guest->features.Report(Feature::kCupti, FeatureState::kIgnored, 0,
                           "the program's GPU work belongs to another tool "
                           "(CUDA_INJECTION64_PATH=%s): iterations and lengths are found without "
                           "it; unset the variable to have it profiled",
                           tool);
  } else if (LoadCupti(&guest->cupti, &guest->driver, &guest->features)) {
    guest->ownership.SetLibrary(Library::kFound);
    if (caller == Caller::kAdapter) guest->activity.ExpectEarlyGraphs();
  }
  guest->clock.Decide();
  SetUnlessSet(kNvtxVariable, OwnPath());
  ReportNvtx(guest);
  ReportNccl(guest);

  guest->levels.Start();
  if (guest->ownership.has_library()) WatchOtherUsers(guest);
  guest->ownership.Take(false);
  // Inside cuInit no thread is started: the first context does it.
  if (caller == Caller::kDriver && guest->ownership.has_calls()) return;
  // No context will be announced, or there is one already.
  guest->helper.Start();
}

// CUDA begins in a process that was attached without it: its GPU work is seen from here on.
void BeginCuda(Guest* guest) {
  if (!LoadCupti(&guest->cupti, &guest->driver, &guest->features)) return;
  guest->clock.Decide();
  guest->ownership.SetLibrary(Library::kFound);
  WatchOtherUsers(guest);
  // The helper thread may be at something, for a moment.
  for (int i = 0; i < 100 && !guest->ownership.Take(false); ++i) SleepNs(100'000);
}

void InitializeOnce(Caller caller) {
  if (g_disabled || __atomic_exchange_n(&g_initialized, true, __ATOMIC_ACQ_REL)) return;
  if (DisabledByUser() || AnotherCopyIsActive()) {
    Log("standing down: disabled, or another copy of the library has this process");
    return;
  }
  ShowFunctions();
  Initialize(caller);
  on_exit(OnExit, nullptr);
  Log("version %s in process %d", kLibraryVersion, static_cast<int>(getpid()));
}

}  // namespace
}  // namespace seqpoint::inject

using namespace seqpoint::inject;

int seqpoint_attach(int uses_gpu) {
  const int saved_errno = errno;
  InitializeOnce(uses_gpu != 0 ? Caller::kAdapter : Caller::kAdapterWithoutGpu);
  errno = saved_errno;
  return seqpoint_active();
}

// The CUDA driver calls this inside cuInit, on the application's thread. Answers 1 whatever
// happened: a 0 would help nobody.
int InitializeInjection(void) {
  const int saved_errno = errno;
  InitializeOnce(Caller::kDriver);
  Guest* guest = g_guest;
  if (guest != nullptr && guest->ownership.has_nothing_to_leave()) BeginCuda(guest);
  errno = saved_errno;
  return 1;
}

// NVTX calls this once for every object that uses it.
int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_export_table) {
  if (g_disabled || get_export_table == nullptr || EnsureGuest() == nullptr) return 0;
  if (!PatchNvtx(get_export_table)) return 0;
  g_guest->nvtx_patched.store(true);
  if (g_guest->ring.active()) ReportNvtx(g_guest);
  return 1;
}
