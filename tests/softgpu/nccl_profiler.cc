#include "tests/softgpu/nccl_profiler.h"

#include <dlfcn.h>
#include <strings.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace seqpoint::softgpu {
namespace {

constexpr int kLogWarn = 2;
constexpr int kLogInfo = 3;
constexpr unsigned long kLogInit = 1;

#define NCCL_INFO(...) NcclLog(kLogInfo, kLogInit, __FILE__, __LINE__, __VA_ARGS__)

template <typename Plugin>
const Plugin& As(const void* plugin) {
  return *static_cast<const Plugin*>(plugin);
}

// Copies the parts that all versions have under the same name.
#define COPY_PROXY(from, to)             \
  case nccl::kProxyOp:                   \
    (to).proxy_op = (from).proxy_op;     \
    break;                               \
  case nccl::kProxyStep:                 \
    (to).proxy_step = (from).proxy_step; \
    break;                               \
  case nccl::kGroup:                     \
  case nccl::kProxyControl:              \
    break

// The fields of collectives and transfers that do not depend on how functions and types are named.
template <typename To>
void CopyBuffers(const nccl::CollectiveEvent& from, To* to) {
  to->sequence = from.sequence;
  to->send_buffer = from.send_buffer;
  to->receive_buffer = from.receive_buffer;
  to->count = from.count;
  to->root = from.root;
  to->warps = from.warps;
}

template <typename To>
void CopyNames(const nccl::CollectiveEvent& from, To* to) {
  to->function = from.function;
  to->datatype = from.datatype;
  to->algorithm = from.algorithm;
  to->protocol = from.protocol;
}

// The versions up to 3 name the communicator in each event, as long as the release does.
template <typename To>
void CopyCommunicator(const NcclEvent& event, uint64_t release, To* to) {
  to->communicator_name = release <= 3 ? event.communicator_name : nullptr;
  to->communicator_hash = release <= 3 ? event.communicator_hash : 0;
}

template <typename To>
To Head(const NcclEvent& event) {
  To to{};
  to.type = static_cast<decltype(to.type)>(event.type);
  to.parent = event.parent;
  to.rank = event.rank;
  return to;
}

// Each gives false for an event that the version does not have.
bool Translate(const NcclEvent& event, uint64_t release, nccl::EventV1* to) {
  *to = Head<nccl::EventV1>(event);
  switch (event.type) {
    COPY_PROXY(event, *to);
    case nccl::kCollective:
      to->parent = event.collective.group;
      CopyCommunicator(event, release, &to->collective);
      CopyBuffers(event.collective, &to->collective);
      to->collective.function = static_cast<uint8_t>(event.function);
      to->collective.datatype = static_cast<uint8_t>(event.datatype);
      to->collective.operation = release == 1 ? event.operation : 0;
      to->collective.traffic_bytes = release <= 2 ? event.traffic_bytes : 0;
      to->collective.max_channels = event.collective.channels;
      to->collective.algorithm = static_cast<uint8_t>(event.algorithm);
      to->collective.protocol = static_cast<uint8_t>(event.protocol);
      break;
    case nccl::kPointToPoint:
      to->parent = event.point_to_point.group;
      CopyCommunicator(event, release, &to->point_to_point);
      to->point_to_point.function = static_cast<uint8_t>(event.function);
      to->point_to_point.buffer = event.point_to_point.buffer;
      to->point_to_point.datatype = static_cast<uint8_t>(event.datatype);
      to->point_to_point.count = event.point_to_point.count;
      to->point_to_point.peer = event.point_to_point.peer;
      break;
    default:
      return false;
  }
  return true;
}

template <typename To>
void CopyTransfer(const NcclEvent& event, To* to) {
  to->function = event.point_to_point.function;
  to->buffer = event.point_to_point.buffer;
  to->datatype = event.point_to_point.datatype;
  to->count = event.point_to_point.count;
  to->peer = event.point_to_point.peer;
}

bool Translate(const NcclEvent& event, uint64_t release, nccl::EventV2* to) {
  *to = Head<nccl::EventV2>(event);
  switch (event.type) {
    COPY_PROXY(event, *to);
    case nccl::kCollective:
      to->parent = event.collective.group;
      CopyCommunicator(event, release, &to->collective);
      CopyBuffers(event.collective, &to->collective);
      CopyNames(event.collective, &to->collective);
      to->collective.traffic_bytes = release <= 2 ? event.traffic_bytes : 0;
      to->collective.max_channels = event.collective.channels;
      break;
    case nccl::kPointToPoint:
      to->parent = event.point_to_point.group;
      CopyCommunicator(event, release, &to->point_to_point);
      CopyTransfer(event, &to->point_to_point);
      break;
    default:
      return false;
  }
  return true;
}

bool Translate(const NcclEvent& event, uint64_t release, nccl::EventV3* to) {
  *to = Head<nccl::EventV3>(event);
  switch (event.type) {
    COPY_PROXY(event, *to);
    case nccl::kCollective:
      to->parent = event.collective.group;
      CopyCommunicator(event, release, &to->collective);
      CopyBuffers(event.collective, &to->collective);
      CopyNames(event.collective, &to->collective);
      to->collective.max_channels = event.collective.channels;
      break;
    case nccl::kPointToPoint:
      to->parent = event.point_to_point.group;
      CopyCommunicator(event, release, &to->point_to_point);
      CopyTransfer(event, &to->point_to_point);
      break;
    case nccl::kKernelChannel:
      to->kernel_channel.channel = event.kernel_channel.channel;
      break;
    case nccl::kNetPlugin:
      to->net_plugin = event.net_plugin;
      break;
    default:
      return false;
  }
  return true;
}

bool Translate(const NcclEvent& event, uint64_t release, nccl::EventV4* to) {
  *to = Head<nccl::EventV4>(event);
  switch (event.type) {
    COPY_PROXY(event, *to);
    case nccl::kCollective:
      to->parent = event.collective.group;
      CopyBuffers(event.collective, &to->collective);
      CopyNames(event.collective, &to->collective);
      to->collective.channels = event.collective.channels;
      break;
    case nccl::kPointToPoint:
      to->parent = event.point_to_point.group;
      CopyTransfer(event, &to->point_to_point);
      // Releases with a newer interface leave it out.
      to->point_to_point.channels = release == 4 ? event.point_to_point.channels : 0;
      break;
    case nccl::kKernelChannel:
      to->kernel_channel = event.kernel_channel;
      break;
    case nccl::kNetPlugin:
      to->net_plugin = event.net_plugin;
      break;
    default:
      return false;
  }
  return true;
}

bool Translate(const NcclEvent& event, uint64_t, nccl::EventV5* to) {
  *to = Head<nccl::EventV5>(event);
  switch (event.type) {
    COPY_PROXY(event, *to);
    case nccl::kGroupApi:
      to->group_api = event.group_api;
      break;
    case nccl::kCollectiveApi:
      to->collective_api = event.collective_api;
      break;
    case nccl::kPointToPointApi:
      to->point_to_point_api = event.point_to_point_api;
      break;
    case nccl::kKernelLaunch:
      to->kernel_launch = event.kernel_launch;
      break;
    case nccl::kCollective:
      to->collective = event.collective;
      break;
    case nccl::kPointToPoint:
      to->point_to_point = event.point_to_point;
      break;
    case nccl::kKernelChannel:
      to->kernel_channel = event.kernel_channel;
      break;
    case nccl::kNetPlugin:
      to->net_plugin = event.net_plugin;
      break;
    default:
      return false;
  }
  return true;
}

template <typename Plugin, typename Event>
void StartIn(const void* plugin, uint64_t release, void* context, void** handle,
             const NcclEvent& event) {
  Event translated;
  if (Translate(event, release, &translated)) {
    As<Plugin>(plugin).start_event(context, handle, &translated);
  }
}

// Whether a plugin of this version hears of the state.
bool Known(uint64_t version, nccl::EventState state) {
  if (version <= 3)
    return state >= nccl::kProxyStepSendGpuWait && state <= nccl::kProxyControlAppendEnd;
  if (version == 4)
    return state >= nccl::kProxyStepSendGpuWait && state <= nccl::kKernelChannelStop;
  return true;
}

void RecordOld(const nccl::PluginV1& plugin, void* handle, nccl::EventState state,
               const nccl::StateArgsV4* args) {
  nccl::StateArgsV1 old{};
  if (args != nullptr && state >= nccl::kProxyControlIdle) {
    old.proxy_control.appended_ops = args->proxy_control.appended_ops;
  }
  plugin.record_event_state(handle, state, &old);
}

}  // namespace

int NcclProfiler::VersionCode(uint64_t profiler_version) {
  static constexpr int kCodes[] = {22304, 22501, 22606, 22707, 22809, 23007};
  return kCodes[profiler_version - 1];
}

void* NcclProfiler::Open() const {
  const char* given = getenv("NCCL_PROFILER_PLUGIN");
  std::string name = given == nullptr ? "" : given;
  if (strcasecmp(name.c_str(), "none") == 0) return nullptr;
  if (name.empty()) name = "libnccl-profiler.so";
  // A prefix suffices, as in NCCL. The program itself is the plugin then.
  const bool linked = strncasecmp(name.c_str(), "STATIC_PLUGIN", name.size()) == 0;
  if (void* library = dlopen(linked ? nullptr : name.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    return library;
  }
  NCCL_INFO("PROFILER/Plugin: %s", dlerror());
  const bool is_path = name.find('/') != std::string::npos;
  const bool is_library = name.starts_with("lib") && name.ends_with(".so");
  if (is_path || is_library || release_ == 1) return nullptr;
  name = "libnccl-profiler-" + name + ".so";
  void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) NCCL_INFO("PROFILER/Plugin: %s", dlerror());
  return library;
}

void NcclProfiler::Load() {
  std::lock_guard lock(mutex_);
  if (failed_) return;
  if (library_ != nullptr) {
    ++references_;
    return;
  }
  library_ = Open();
  for (uint64_t version = release_; library_ != nullptr && version > 0; --version) {
    plugin_ = dlsym(library_, ("ncclProfiler_v" + std::to_string(version)).c_str());
    if (plugin_ == nullptr) continue;
    version_.store(version, std::memory_order_release);
    ++references_;
    // All versions begin with the name.
    NCCL_INFO("PROFILER/Plugin: Loaded %s (v%d)", *static_cast<const char* const*>(plugin_),
              static_cast<int>(version));
    return;
  }
  if (library_ != nullptr) dlclose(library_);
  library_ = nullptr;
  failed_ = true;
}

void NcclProfiler::Unload() {
  std::lock_guard lock(mutex_);
  if (--references_ != 0 || library_ == nullptr) return;
  version_.store(0, std::memory_order_release);
  dlclose(library_);
  library_ = nullptr;
  plugin_ = nullptr;
}

void NcclProfiler::Init(const Communicator& c, void** context) {
  Load();
  nccl::Result error = nccl::kSuccess;
  const uint64_t version = version_.load();
  switch (version) {
    case 0:
      return;
    case 1:
      error = As<nccl::PluginV1>(plugin_).init(context, &mask_);
      break;
    case 2:
      error = As<nccl::PluginV2>(plugin_).init(context, &mask_);
      break;
    case 3:
      error = As<nccl::PluginV3>(plugin_).init(context, &mask_);
      break;
    case 4:
      error = As<nccl::PluginV4>(plugin_).init(context, &mask_, c.name, c.hash, c.nodes, c.ranks,
                                               c.rank, NcclLog);
      break;
    case 5:
      error = As<nccl::PluginV5>(plugin_).init(context, c.hash, &mask_, c.name, c.nodes, c.ranks,
                                               c.rank, NcclLog);
      break;
    default:
      error = As<nccl::PluginV6>(plugin_).init(context, c.hash, &mask_, c.name, c.nodes, c.ranks,
                                               c.rank, NcclLog);
  }
  if (version == 5 && release_ == 6) {
    mask_ &= ~static_cast<int>(nccl::kCopyCollective | nccl::kCopySync | nccl::kCopyBatch);
  }
  if (error == nccl::kSuccess) return;
  NcclLog(release_ <= 4 ? kLogWarn : kLogInfo, kLogInit, __FILE__, __LINE__,
          "Profiler init failed with error '%d'. Continue without profiler.", error);
  // Each generation has its own way of going on: no more events for anybody; as if nothing had
  // happened; one reference less.
  if (release_ <= 4) version_.store(0);
  if (release_ == 6) Unload();
}

void NcclProfiler::Finalize(void* context) {
  const uint64_t version = version_.load();
  if (version != 0 && (context != nullptr || release_ <= 4)) {
    // `finalize` has one place in versions 1 to 3, and the same one in 4 to 6.
    As<nccl::PluginV1>(plugin_).finalize(context);
  }
  Unload();
}

void NcclProfiler::Start(void* context, void** handle, NcclEvent* event) {
  const uint64_t version = version_.load(std::memory_order_acquire);
  if (version <= 3) *handle = nullptr;
  switch (version) {
    case 0:
      break;
    case 1:
      StartIn<nccl::PluginV1, nccl::EventV1>(plugin_, release_, context, handle, *event);
      break;
    case 2:
      StartIn<nccl::PluginV2, nccl::EventV2>(plugin_, release_, context, handle, *event);
      break;
    case 3:
      StartIn<nccl::PluginV3, nccl::EventV3>(plugin_, release_, context, handle, *event);
      break;
    case 4:
      StartIn<nccl::PluginV4, nccl::EventV4>(plugin_, release_, context, handle, *event);
      break;
    case 5:
      StartIn<nccl::PluginV5, nccl::EventV5>(plugin_, release_, context, handle, *event);
      break;
    default:
      As<nccl::PluginV6>(plugin_).start_event(context, handle, event);
  }
}

void NcclProfiler::Stop(void* handle) {
  if (loaded())
    As<nccl::PluginV1>(plugin_).stop_event(handle);  // has the same place in all versions
}

void NcclProfiler::Record(void* handle, nccl::EventState state, nccl::StateArgsV4* args) {
  const uint64_t version = version_.load(std::memory_order_acquire);
  if (version == 0 || !Known(version, state)) return;
  if (version <= 3) {
    RecordOld(As<nccl::PluginV1>(plugin_), handle, state, args);
    return;
  }
  // A plugin older than the release gets a copy of the arguments, even where there are none.
  nccl::StateArgsV4 copy{};
  if (args != nullptr) copy = *args;
  if (version < release_) args = &copy;
  As<nccl::PluginV6>(plugin_).record_event_state(handle, state, args);
}

void NcclLog(int level, unsigned long, const char*, int, const char* format, ...) {
  static const int wanted = [] {
    const char* debug = getenv("NCCL_DEBUG");
    static constexpr const char* kLevels[] = {"NONE", "VERSION", "WARN", "INFO", "ABORT", "TRACE"};
    for (int i = 0; debug != nullptr && i < 6; ++i) {
      if (strcasecmp(debug, kLevels[i]) == 0) return i;
    }
    return 0;
  }();
  if (level > wanted) return;
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  printf("%d:%d NCCL %s %s\n", getpid(), gettid(), level <= kLogWarn ? "WARN" : "INFO", text);
  fflush(stdout);
}

}  // namespace seqpoint::softgpu
