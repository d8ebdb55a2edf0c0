// The binary interface between NCCL and its profiler plugins, versions 1 to 6.
//
// A plugin exports variables ncclProfiler_v1 to ncclProfiler_v6; NCCL takes the newest that it
// knows. Each version has a descriptor of events, arguments of state changes, and a table of
// functions. The layouts are those of NCCL's public headers (src/include/plugin/profiler); the
// numbers in the assertions come from compiling these headers.
//
// NCCL calls a plugin from several threads: the threads that call NCCL, and its progress threads. A
// descriptor and its strings are valid during the call. Every function returns 0 for success.
//
// | version | first release | what it added |
// |---|---|---|
// | 1 | 2.23 | group, collective, point-to-point, proxy events |
// | 2 | 2.24 | names in place of numbers |
// | 3 | 2.26 | kernel channels, events of network plugins |
// | 4 | 2.27 | communicator at init, GPU timestamps of kernel channels |
// | 5 | 2.28 | API calls and kernel launches |
// | 6 | 2.29 | copy engine collectives |
#ifndef SEQPOINT_INJECTION_NCCL_PROFILER_ABI_H_
#define SEQPOINT_INJECTION_NCCL_PROFILER_ABI_H_

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

namespace seqpoint::nccl {

// ncclResult_t; other values are errors. A plugin's error has an effect at init only.
using Result = int;
inline constexpr Result kSuccess = 0;

// Bits of the activation mask and values of a descriptor's type. A version's plugin sees the events
// that its table says.
enum EventType : uint64_t {
  kGroup = 1 << 0,          // 1: the operations of one kernel
  kCollective = 1 << 1,     // 1: one collective, start and stop when it is enqueued
  kPointToPoint = 1 << 2,   // 1: one send or receive, likewise
  kProxyOp = 1 << 3,        // 1: a transfer over the network
  kProxyStep = 1 << 4,      // 1: a piece of it
  kProxyControl = 1 << 5,   // 1: the progress thread itself
  kKernelChannel = 1 << 6,  // 3: an operation's share of the kernel on one channel, while it runs
  kNetPlugin = 1 << 7,      // 3: events of a network plugin
  kGroupApi = 1 << 8,       // 5: from the first call of a group to the end of ncclGroupEnd
  kCollectiveApi = 1 << 9,  // 5: a call like ncclAllReduce
  kPointToPointApi = 1 << 10,  // 5: ncclSend or ncclRecv
  kKernelLaunch = 1 << 11,     // 5: the launch of the kernel
  kCopyCollective = 1 << 12,   // 6: a collective by copy engines
  kCopySync = 1 << 13,         // 6
  kCopyBatch = 1 << 14,        // 6
};

// States of events (recordEventState). Values 0 to 7 are those of proxy operations up to version 3.
enum EventState : int {
  kProxyStepSendGpuWait = 8,
  kProxyStepSendWait = 9,
  kProxyStepRecvWait = 10,
  kProxyStepRecvFlushWait = 11,
  kProxyStepRecvGpuWait = 12,
  kProxyControlIdle = 13,
  kProxyControlActive = 14,
  kProxyControlSleep = 15,
  kProxyControlWakeup = 16,
  kProxyControlAppend = 17,
  kProxyControlAppendEnd = 18,
  kProxyOpInProgress = 19,      // from version 4 on
  kProxyStepSendPeerWait = 20,  // 4
  kNetPluginUpdate = 21,        // 4
  kKernelChannelStop = 22,      // 4
  kGroupApiStartStop = 23,      // 5: ncclGroupStart, or the start of a lone call, is over
  kGroupApiEndStart = 24,       // 5: ncclGroupEnd begins
};

// NCCL's log. `level`: 1 version, 2 warning, 3 information, 5 trace.
using Logger = void (*)(int level, unsigned long flags, const char* file, int line,
                        const char* format, ...);

// Parts of descriptors that several versions share.
struct ProxyOpEvent {
  pid_t pid;  // the process that the operation belongs to
  uint8_t channel;
  int peer;
  int steps;
  int chunk_bytes;
  int is_send;
};

struct ProxyStepEvent {
  int step;
};

struct KernelChannelEvent {
  uint8_t channel;
  uint64_t gpu_time_ns;  // the GPU's global timer at the start; from version 4 on
};

struct NetPluginEvent {
  int64_t id;
  void* data;
};

struct EventV1 {
  uint8_t type;
  void* parent;
  int rank;
  union {
    struct {
      const char* communicator_name;
      uint64_t communicator_hash;
      uint64_t sequence;  // within the communicator, of this function
      uint8_t function;
      const void* send_buffer;
      void* receive_buffer;
      size_t count;
      int root;
      uint8_t datatype;
      uint32_t operation;
      size_t traffic_bytes;
      uint8_t max_channels;
      uint8_t warps;
      uint8_t algorithm;
      uint8_t protocol;
      int is_collnet;
      int is_nvls;
    } collective;
    struct {
      const char* communicator_name;
      uint64_t communicator_hash;
      uint8_t function;
      void* buffer;
      uint8_t datatype;
      size_t count;
      int peer;
    } point_to_point;
    ProxyOpEvent proxy_op;
    ProxyStepEvent proxy_step;
  };
};

struct EventV2 {
  uint8_t type;
  void* parent;
  int rank;
  union {
    struct {
      const char* communicator_name;
      uint64_t communicator_hash;
      uint64_t sequence;
      const char* function;
      const void* send_buffer;
      void* receive_buffer;
      size_t count;
      int root;
      const char* datatype;
      size_t traffic_bytes;
      uint8_t max_channels;
      uint8_t warps;
      const char* algorithm;
      const char* protocol;
    } collective;
    struct {
      const char* communicator_name;
      uint64_t communicator_hash;
      const char* function;
      void* buffer;
      const char* datatype;
      size_t count;
      int peer;
    } point_to_point;
    ProxyOpEvent proxy_op;
    ProxyStepEvent proxy_step;
  };
};

struct EventV3 {
  uint8_t type;
  void* parent;
  int rank;
  union {
    struct {
      const char* communicator_name;
      uint64_t communicator_hash;
      uint64_t sequence;
      const char* function;
      const void* send_buffer;
      void* receive_buffer;
      size_t count;
      int root;
      const char* datatype;
      uint8_t max_channels;
      uint8_t warps;
      const char* algorithm;
      const char* protocol;
    } collective;
    struct {
      const char* communicator_name;
      uint64_t communicator_hash;
      const char* function;
      void* buffer;
      const char* datatype;
      size_t count;
      int peer;
    } point_to_point;
    ProxyOpEvent proxy_op;
    ProxyStepEvent proxy_step;
    struct {
      uint8_t channel;
    } kernel_channel;
    NetPluginEvent net_plugin;
  };
};

struct EventV4 {
  uint8_t type;
  void* parent;
  int rank;
  union {
    struct {
      uint64_t sequence;
      const char* function;
      const void* send_buffer;
      void* receive_buffer;
      size_t count;
      int root;
      const char* datatype;
      uint8_t channels;
      uint8_t warps;
      const char* algorithm;
      const char* protocol;
    } collective;
    struct {
      const char* function;
      void* buffer;
      const char* datatype;
      size_t count;
      int peer;
      uint8_t channels;
    } point_to_point;
    ProxyOpEvent proxy_op;
    ProxyStepEvent proxy_step;
    KernelChannelEvent kernel_channel;
    NetPluginEvent net_plugin;
  };
};

// Versions 5 and 6 have one layout for the events of version 5.
struct GroupApiEvent {
  bool graph_captured;
  int depth;
};

struct CollectiveApiEvent {
  const char* function;
  size_t count;
  const char* datatype;
  int root;
  void* stream;
  bool graph_captured;
};

struct PointToPointApiEvent {
  const char* function;
  size_t count;
  const char* datatype;
  void* stream;
  bool graph_captured;
};

struct KernelLaunchEvent {
  void* stream;
};

struct CollectiveEvent {
  uint64_t sequence;
  const char* function;
  const void* send_buffer;
  void* receive_buffer;
  size_t count;
  int root;
  const char* datatype;
  uint8_t channels;
  uint8_t warps;
  const char* algorithm;
  const char* protocol;
  void* group;  // the group event, which is the parent up to version 4
};

struct PointToPointEvent {
  const char* function;
  void* buffer;
  const char* datatype;
  size_t count;
  int peer;
  uint8_t channels;
  void* group;
};

struct EventV5 {
  uint64_t type;
  void* parent;
  int rank;
  union {
    GroupApiEvent group_api;
    CollectiveApiEvent collective_api;
    PointToPointApiEvent point_to_point_api;
    KernelLaunchEvent kernel_launch;
    CollectiveEvent collective;
    PointToPointEvent point_to_point;
    ProxyOpEvent proxy_op;
    ProxyStepEvent proxy_step;
    KernelChannelEvent kernel_channel;
    NetPluginEvent net_plugin;
  };
};

struct EventV6 {
  uint64_t type;
  void* parent;
  int rank;
  union {
    GroupApiEvent group_api;
    CollectiveApiEvent collective_api;
    PointToPointApiEvent point_to_point_api;
    KernelLaunchEvent kernel_launch;
    CollectiveEvent collective;
    PointToPointEvent point_to_point;
    ProxyOpEvent proxy_op;
    ProxyStepEvent proxy_step;
    KernelChannelEvent kernel_channel;
    NetPluginEvent net_plugin;
    struct {
      uint64_t sequence;
      const char* function;
      const void* send_buffer;
      void* receive_buffer;
      size_t count;
      int root;
      const char* datatype;
      const char* sync_strategy;
      bool intra_batch_sync;
      uint32_t batch_size;
      uint32_t batches;
      uint32_t copy_sequence;
      void* stream;
    } copy_collective;
    struct {
      bool is_complete;
      int ranks;
    } copy_sync;
    struct {
      int operations;
      size_t total_bytes;
      bool uses_intra_sync;
    } copy_batch;
  };
};

union StateArgsV1 {  // versions 1 to 3
  struct {
    size_t transferred_bytes;
    int steps;
  } proxy_op;
  struct {
    int appended_ops;
  } proxy_control;
};

union StateArgsV4 {  // versions 4 to 6
  struct {
    size_t transferred_bytes;
  } proxy_step;
  struct {
    int appended_ops;
  } proxy_control;
  struct {
    void* data;
  } net_plugin;
  struct {
    uint64_t gpu_time_ns;  // the GPU's global timer at the end
  } kernel_channel;
};

// The tables that a plugin exports. `context` and event handles are the plugin's own; a handle may
// be null. `mask` belongs to NCCL and the plugin may write it at any time.
template <typename Event, typename StateArgs>
struct PluginWithoutCommunicator {
  const char* name;
  Result (*init)(void** context, int* mask);
  Result (*start_event)(void* context, void** handle, Event* event);
  Result (*stop_event)(void* handle);
  Result (*record_event_state)(void* handle, EventState state, StateArgs* args);
  Result (*finalize)(void* context);
};
using PluginV1 = PluginWithoutCommunicator<EventV1, StateArgsV1>;
using PluginV2 = PluginWithoutCommunicator<EventV2, StateArgsV1>;
using PluginV3 = PluginWithoutCommunicator<EventV3, StateArgsV1>;

struct PluginV4 {
  const char* name;
  Result (*init)(void** context, int* mask, const char* communicator_name,
                 uint64_t communicator_hash, int nodes, int ranks, int rank, Logger logger);
  Result (*start_event)(void* context, void** handle, EventV4* event);
  Result (*stop_event)(void* handle);
  Result (*record_event_state)(void* handle, EventState state, StateArgsV4* args);
  Result (*finalize)(void* context);
};

template <typename Event>
struct PluginWithId {
  const char* name;
  Result (*init)(void** context, uint64_t communicator_hash, int* mask,
                 const char* communicator_name, int nodes, int ranks, int rank, Logger logger);
  Result (*start_event)(void* context, void** handle, Event* event);
  Result (*stop_event)(void* handle);
  Result (*record_event_state)(void* handle, EventState state, StateArgsV4* args);
  Result (*finalize)(void* context);
};
using PluginV5 = PluginWithId<EventV5>;
using PluginV6 = PluginWithId<EventV6>;

// The layouts, as NCCL 2.30 has them on x86-64 Linux.

// Parts that all versions have.
template <typename Event>
constexpr bool kHasCommonLayout = offsetof(Event, parent) == 8 && offsetof(Event, rank) == 16 &&
                                  offsetof(Event, collective) == 24 &&
                                  offsetof(Event, proxy_op.pid) == 24 &&
                                  offsetof(Event, proxy_op.channel) == 28 &&
                                  offsetof(Event, proxy_op.peer) == 32 &&
                                  offsetof(Event, proxy_op.steps) == 36 &&
                                  offsetof(Event, proxy_op.chunk_bytes) == 40 &&
                                  offsetof(Event, proxy_op.is_send) == 44 &&
                                  offsetof(Event, proxy_step.step) == 24;

// Operations up to version 3, which name the communicator.
template <typename Event>
constexpr bool kHasOldLayout = offsetof(Event, collective.sequence) == 40 &&
                               offsetof(Event, collective.function) == 48 &&
                               offsetof(Event, collective.send_buffer) == 56 &&
                               offsetof(Event, collective.receive_buffer) == 64 &&
                               offsetof(Event, collective.count) == 72 &&
                               offsetof(Event, collective.root) == 80 &&
                               offsetof(Event, collective.communicator_name) == 24 &&
                               offsetof(Event, collective.communicator_hash) == 32 &&
                               offsetof(Event, point_to_point.function) == 40 &&
                               offsetof(Event, point_to_point.buffer) == 48 &&
                               offsetof(Event, point_to_point.count) == 64 &&
                               offsetof(Event, point_to_point.datatype) == 56 &&
                               offsetof(Event, point_to_point.peer) == 72 &&
                               offsetof(Event, point_to_point.communicator_name) == 24 &&
                               offsetof(Event, point_to_point.communicator_hash) == 32;

// Operations and channels from version 4 on.
template <typename Event>
constexpr bool kHasLayoutSince4 =
    offsetof(Event, collective.sequence) == 24 && offsetof(Event, collective.function) == 32 &&
    offsetof(Event, collective.send_buffer) == 40 &&
    offsetof(Event, collective.receive_buffer) == 48 && offsetof(Event, collective.count) == 56 &&
    offsetof(Event, collective.root) == 64 && offsetof(Event, collective.datatype) == 72 &&
    offsetof(Event, collective.warps) == 81 && offsetof(Event, collective.algorithm) == 88 &&
    offsetof(Event, collective.protocol) == 96 && offsetof(Event, collective.channels) == 80 &&
    offsetof(Event, point_to_point.function) == 24 &&
    offsetof(Event, point_to_point.buffer) == 32 && offsetof(Event, point_to_point.count) == 48 &&
    offsetof(Event, point_to_point.datatype) == 40 && offsetof(Event, point_to_point.peer) == 56 &&
    offsetof(Event, point_to_point.channels) == 60 &&
    offsetof(Event, kernel_channel.channel) == 24 &&
    offsetof(Event, kernel_channel.gpu_time_ns) == 32 && offsetof(Event, net_plugin.id) == 24 &&
    offsetof(Event, net_plugin.data) == 32;

// API calls and groups from version 5 on.
template <typename Event>
constexpr bool kHasLayoutSince5 = offsetof(Event, collective.group) == 104 &&
                                  offsetof(Event, point_to_point.group) == 64 &&
                                  offsetof(Event, group_api.graph_captured) == 24 &&
                                  offsetof(Event, group_api.depth) == 28 &&
                                  offsetof(Event, collective_api.function) == 24 &&
                                  offsetof(Event, collective_api.count) == 32 &&
                                  offsetof(Event, collective_api.datatype) == 40 &&
                                  offsetof(Event, collective_api.root) == 48 &&
                                  offsetof(Event, collective_api.stream) == 56 &&
                                  offsetof(Event, collective_api.graph_captured) == 64 &&
                                  offsetof(Event, point_to_point_api.function) == 24 &&
                                  offsetof(Event, point_to_point_api.count) == 32 &&
                                  offsetof(Event, point_to_point_api.datatype) == 40 &&
                                  offsetof(Event, point_to_point_api.stream) == 48 &&
                                  offsetof(Event, point_to_point_api.graph_captured) == 56 &&
                                  offsetof(Event, kernel_launch.stream) == 24;

// The same in all versions.
template <typename Plugin>
constexpr bool kHasPluginLayout = sizeof(Plugin) == 48 && offsetof(Plugin, init) == 8 &&
                                  offsetof(Plugin, start_event) == 16 &&
                                  offsetof(Plugin, stop_event) == 24 &&
                                  offsetof(Plugin, record_event_state) == 32 &&
                                  offsetof(Plugin, finalize) == 40;

static_assert(kHasPluginLayout<PluginV1>);
static_assert(kHasCommonLayout<EventV1> && kHasOldLayout<EventV1> && sizeof(EventV1) == 120);
static_assert(offsetof(EventV1, collective.datatype) == 84 &&
              offsetof(EventV1, collective.warps) == 105 &&
              offsetof(EventV1, collective.algorithm) == 106 &&
              offsetof(EventV1, collective.protocol) == 107 &&
              offsetof(EventV1, collective.max_channels) == 104 &&
              offsetof(EventV1, collective.operation) == 88 &&
              offsetof(EventV1, collective.traffic_bytes) == 96 &&
              offsetof(EventV1, collective.is_collnet) == 108 &&
              offsetof(EventV1, collective.is_nvls) == 112);
static_assert(sizeof(StateArgsV1) == 16 && offsetof(StateArgsV1, proxy_op.steps) == 8);
static_assert(kHasPluginLayout<PluginV2>);
static_assert(kHasCommonLayout<EventV2> && kHasOldLayout<EventV2> && sizeof(EventV2) == 128);
static_assert(offsetof(EventV2, collective.datatype) == 88 &&
              offsetof(EventV2, collective.warps) == 105 &&
              offsetof(EventV2, collective.algorithm) == 112 &&
              offsetof(EventV2, collective.protocol) == 120 &&
              offsetof(EventV2, collective.max_channels) == 104 &&
              offsetof(EventV2, collective.traffic_bytes) == 96);
static_assert(kHasPluginLayout<PluginV3>);
static_assert(kHasCommonLayout<EventV3> && kHasOldLayout<EventV3> && sizeof(EventV3) == 120);
static_assert(offsetof(EventV3, collective.datatype) == 88 &&
              offsetof(EventV3, collective.warps) == 97 &&
              offsetof(EventV3, collective.algorithm) == 104 &&
              offsetof(EventV3, collective.protocol) == 112 &&
              offsetof(EventV3, collective.max_channels) == 96 &&
              offsetof(EventV3, kernel_channel.channel) == 24);
static_assert(kHasPluginLayout<PluginV4>);
static_assert(kHasCommonLayout<EventV4> && kHasLayoutSince4<EventV4> && sizeof(EventV4) == 104);
static_assert(sizeof(StateArgsV4) == 8 && offsetof(StateArgsV4, kernel_channel.gpu_time_ns) == 0);
static_assert(kHasPluginLayout<PluginV5>);
static_assert(kHasCommonLayout<EventV5> && kHasLayoutSince4<EventV5> && kHasLayoutSince5<EventV5> &&
              sizeof(EventV5) == 112);
static_assert(kHasPluginLayout<PluginV6>);
static_assert(kHasCommonLayout<EventV6> && kHasLayoutSince4<EventV6> && kHasLayoutSince5<EventV6> &&
              sizeof(EventV6) == 112);
static_assert(offsetof(EventV6, copy_collective.sync_strategy) == 80 &&
              offsetof(EventV6, copy_collective.intra_batch_sync) == 88 &&
              offsetof(EventV6, copy_collective.batch_size) == 92 &&
              offsetof(EventV6, copy_collective.batches) == 96 &&
              offsetof(EventV6, copy_collective.copy_sequence) == 100 &&
              offsetof(EventV6, copy_collective.stream) == 104 &&
              offsetof(EventV6, copy_sync.ranks) == 28 &&
              offsetof(EventV6, copy_batch.total_bytes) == 32 &&
              offsetof(EventV6, copy_batch.uses_intra_sync) == 40);

}  // namespace seqpoint::nccl

#endif  // SEQPOINT_INJECTION_NCCL_PROFILER_ABI_H_
