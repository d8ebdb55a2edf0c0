// A profiler plugin that writes down every call of NCCL, for tests. It exports the versions that
// NCCL_TEST_PLUGIN_VERSIONS (a bit each, from bit 1 on) names when it is compiled.
//
//   RECORD_FILE          what it writes; %p is the process
//   RECORD_MASK          its activation mask (default: everything)
//   RECORD_MASK_AFTER    START:MASK, the mask from this number of started events on
//   RECORD_INIT_RESULT   what init returns (default 0)
//   RECORD_NO_CONTEXT    init leaves the context as it is
//   RECORD_UNLOAD        the end of the plugin is a line, too
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>

#include "injection/nccl/profiler_abi.h"

namespace seqpoint::softgpu {
namespace {

using namespace nccl;

std::mutex g_mutex;
FILE* g_file = nullptr;
int* g_mask = nullptr;
uintptr_t g_events = 0;

__attribute__((format(printf, 1, 2))) void Write(const char* format, ...) {
  if (g_file == nullptr) {
    std::string path = getenv("RECORD_FILE");
    if (const size_t at = path.find("%p"); at != std::string::npos) {
      path.replace(at, 2, std::to_string(getpid()));
    }
    g_file = fopen(path.c_str(), "a");
    setvbuf(g_file, nullptr, _IOLBF, 0);
  }
  va_list arguments;
  va_start(arguments, format);
  vfprintf(g_file, format, arguments);
  va_end(arguments);
  fputs(gettid() == getpid() ? "\n" : " (other thread)\n", g_file);
}

const char* Text(const char* text) { return text == nullptr ? "-" : text; }
[[maybe_unused]] std::string Text(uint8_t number) { return std::to_string(number); }
unsigned long long Handle(const void* handle) { return reinterpret_cast<uintptr_t>(handle); }

template <typename Collective>
void WriteCollective(const Collective& c, std::string* out) {
  *out += std::string(" ") + std::string(Text(c.function)) +
          " sequence=" + std::to_string(c.sequence) + " count=" + std::to_string(c.count) +
          " root=" + std::to_string(c.root) + " type=" + std::string(Text(c.datatype)) +
          " algorithm=" + std::string(Text(c.algorithm)) +
          " protocol=" + std::string(Text(c.protocol));
  if constexpr (requires { c.channels; }) *out += " channels=" + std::to_string(c.channels);
  if constexpr (requires { c.max_channels; }) *out += " channels=" + std::to_string(c.max_channels);
  if constexpr (requires { c.traffic_bytes; })
    *out += " traffic=" + std::to_string(c.traffic_bytes);
  if constexpr (requires { c.operation; }) *out += " operation=" + std::to_string(c.operation);
  if constexpr (requires { c.communicator_name; }) {
    *out += std::string(" name=") + Text(c.communicator_name) +
            (c.communicator_hash != 0 ? " hashed" : "");
  }
  if constexpr (requires { c.group; }) *out += " group=" + std::to_string(Handle(c.group));
}

template <typename Transfer>
void WriteTransfer(const Transfer& t, std::string* out) {
  *out += std::string(" ") + std::string(Text(t.function)) + " count=" + std::to_string(t.count) +
          " peer=" + std::to_string(t.peer) + " type=" + std::string(Text(t.datatype));
  if constexpr (requires { t.channels; }) *out += " channels=" + std::to_string(t.channels);
  if constexpr (requires { t.communicator_name; }) {
    *out += std::string(" name=") + Text(t.communicator_name) +
            (t.communicator_hash != 0 ? " hashed" : "");
  }
  if constexpr (requires { t.group; }) *out += " group=" + std::to_string(Handle(t.group));
}

template <typename Api>
void WriteApi(const Api& a, std::string* out) {
  *out += std::string(" ") + Text(a.function) + " count=" + std::to_string(a.count) +
          " type=" + Text(a.datatype) + (a.stream != nullptr ? " stream" : "") +
          " captured=" + std::to_string(a.graph_captured);
  if constexpr (requires { a.root; }) *out += " root=" + std::to_string(a.root);
}

template <typename Event>
void WriteApiEvent(const Event& event, std::string* out) {
  if constexpr (requires { event.group_api; }) {
    switch (event.type) {
      case kGroupApi:
        *out += "group_api depth=" + std::to_string(event.group_api.depth) +
                " captured=" + std::to_string(event.group_api.graph_captured);
        break;
      case kCollectiveApi:
        *out += "collective_api";
        WriteApi(event.collective_api, out);
        break;
      case kPointToPointApi:
        *out += "transfer_api";
        WriteApi(event.point_to_point_api, out);
        break;
      case kKernelLaunch:
        *out += event.kernel_launch.stream != nullptr ? "launch stream" : "launch";
        break;
    }
  }
}

template <typename Event>
Result OnStart(void* context, void** handle, Event* event) {
  std::lock_guard lock(g_mutex);
  std::string out;
  switch (event->type) {
    case kGroup:
      out = "group";
      break;
    case kCollective:
      out = "collective";
      WriteCollective(event->collective, &out);
      break;
    case kPointToPoint:
      out = "transfer";
      WriteTransfer(event->point_to_point, &out);
      break;
    case kProxyOp:
      out = std::string("proxy_op ") + (event->proxy_op.is_send ? "send" : "receive");
      break;
    case kProxyStep:
      out = "proxy_step " + std::to_string(event->proxy_step.step);
      break;
    case kProxyControl:
      out = "proxy_control";
      break;
    case kKernelChannel:
      if constexpr (requires { event->kernel_channel.channel; }) {
        out = "kernel_channel " + std::to_string(event->kernel_channel.channel);
      }
      if constexpr (requires { event->kernel_channel.gpu_time_ns; }) {
        out += " at=" + std::to_string(event->kernel_channel.gpu_time_ns);
      }
      break;
    default:
      WriteApiEvent(*event, &out);
  }
  *handle = reinterpret_cast<void*>(++g_events);
  Write("start %llu in %llu, communicator %llu, rank %d: %s", Handle(*handle),
        Handle(event->parent), Handle(context), event->rank, out.c_str());
  const char* after = getenv("RECORD_MASK_AFTER");
  uintptr_t events = 0;
  int mask = 0;
  if (after != nullptr && sscanf(after, "%zu:%d", &events, &mask) == 2 && g_events >= events) {
    *g_mask = mask;
  }
  return kSuccess;
}

Result OnStop(void* handle) {
  std::lock_guard lock(g_mutex);
  Write("stop %llu", Handle(handle));
  return kSuccess;
}

template <typename Args>
Result OnState(void* handle, EventState state, Args* args) {
  std::lock_guard lock(g_mutex);
  std::string out;
  if constexpr (requires { args->kernel_channel; }) {
    if (state == kKernelChannelStop) {
      out = " at=" + std::to_string(args->kernel_channel.gpu_time_ns);
    }
  }
  Write("state %llu %d%s%s", Handle(handle), state, args == nullptr ? " without" : "", out.c_str());
  return kSuccess;
}

Result Begin(int version, void** context, int* mask) {
  static uintptr_t contexts = 0;
  g_mask = mask;
  const char* wanted = getenv("RECORD_MASK");
  *mask = wanted == nullptr ? 0x7fff : atoi(wanted);
  const char* result = getenv("RECORD_INIT_RESULT");
  if (result != nullptr && atoi(result) != 0) {
    Write("init of version %d fails", version);
    return atoi(result);
  }
  if (getenv("RECORD_NO_CONTEXT") == nullptr) *context = reinterpret_cast<void*>(++contexts);
  return kSuccess;
}

__attribute__((destructor)) void OnUnload() {
  if (getenv("RECORD_UNLOAD") != nullptr) Write("unloaded");
}

template <int kVersion>
Result OnInit(void** context, int* mask) {
  std::lock_guard lock(g_mutex);
  const Result result = Begin(kVersion, context, mask);
  if (result == kSuccess) Write("init version %d", kVersion);
  return result;
}

template <int kVersion>
Result OnInitWithId(void** context, uint64_t hash, int* mask, const char* name, int nodes,
                    int ranks, int rank, Logger logger) {
  std::lock_guard lock(g_mutex);
  const Result result = Begin(kVersion, context, mask);
  if (result != kSuccess) return result;
  Write("init version %d communicator %s%s nodes=%d ranks=%d rank=%d%s", kVersion, Text(name),
        hash != 0 ? " hashed" : "", nodes, ranks, rank, logger != nullptr ? " logger" : "");
  return kSuccess;
}

Result OnInitV4(void** context, int* mask, const char* name, uint64_t hash, int nodes, int ranks,
                int rank, Logger logger) {
  return OnInitWithId<4>(context, hash, mask, name, nodes, ranks, rank, logger);
}

Result OnFinalize(void* context) {
  std::lock_guard lock(g_mutex);
  Write("finalize %llu", Handle(context));
  return kSuccess;
}

}  // namespace
}  // namespace seqpoint::softgpu

using namespace seqpoint::softgpu;
namespace abi = seqpoint::nccl;

// NOLINTBEGIN(readability-identifier-naming)
extern "C" {
#if NCCL_TEST_PLUGIN_VERSIONS & 2
abi::PluginV1 ncclProfiler_v1 = {
    "recorder", OnInit<1>, OnStart<abi::EventV1>, OnStop, OnState<abi::StateArgsV1>, OnFinalize};
#endif
#if NCCL_TEST_PLUGIN_VERSIONS & 4
abi::PluginV2 ncclProfiler_v2 = {
    "recorder", OnInit<2>, OnStart<abi::EventV2>, OnStop, OnState<abi::StateArgsV1>, OnFinalize};
#endif
#if NCCL_TEST_PLUGIN_VERSIONS & 8
abi::PluginV3 ncclProfiler_v3 = {
    "recorder", OnInit<3>, OnStart<abi::EventV3>, OnStop, OnState<abi::StateArgsV1>, OnFinalize};
#endif
#if NCCL_TEST_PLUGIN_VERSIONS & 16
abi::PluginV4 ncclProfiler_v4 = {
    "recorder", OnInitV4, OnStart<abi::EventV4>, OnStop, OnState<abi::StateArgsV4>, OnFinalize};
#endif
#if NCCL_TEST_PLUGIN_VERSIONS & 32
abi::PluginV5 ncclProfiler_v5 = {"recorder", OnInitWithId<5>,           OnStart<abi::EventV5>,
                                 OnStop,     OnState<abi::StateArgsV4>, OnFinalize};
#endif
#if NCCL_TEST_PLUGIN_VERSIONS & 64
abi::PluginV6 ncclProfiler_v6 = {"recorder", OnInitWithId<6>,           OnStart<abi::EventV6>,
                                 OnStop,     OnState<abi::StateArgsV4>, OnFinalize};
#endif
}  // extern "C"
// NOLINTEND(readability-identifier-naming)
