#include "injection/nccl/plugin.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "injection/nccl/activation_masks.h"
#include "injection/nccl/communicator_table.h"
#include "injection/nccl/plugin_chain.h"
#include "injection/process/guest.h"

namespace seqpoint::inject {
namespace {

using abi::Feature;
using abi::FeatureState;
using nccl::kSuccess;
using nccl::Result;

// Version 1 has numbers where later ones have names: NCCL 2.23's enumerations.
constexpr const char* kFunctions[] = {"Broadcast", "Reduce",   "AllGather", "ReduceScatter",
                                      "AllReduce", "SendRecv", "Send",      "Recv"};
constexpr const char* kDatatypes[] = {"ncclInt8",    "ncclUint8",   "ncclInt32",   "ncclUint32",
                                      "ncclInt64",   "ncclUint64",  "ncclFloat16", "ncclFloat32",
                                      "ncclFloat64", "ncclBfloat16"};
constexpr const char* kAlgorithms[] = {
    "TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT"};
constexpr const char* kProtocols[] = {"LL", "LL128", "SIMPLE"};

template <size_t kCount>
const char* NameIn(const char* const (&names)[kCount], uint8_t number) {
  return number < kCount ? names[number] : "Unknown";
}

const char* FunctionName(uint8_t number) { return NameIn(kFunctions, number); }
const char* FunctionName(const char* name) { return name; }
const char* DatatypeName(uint8_t number) { return NameIn(kDatatypes, number); }
const char* DatatypeName(const char* name) { return name; }
const char* AlgorithmName(uint8_t number) { return NameIn(kAlgorithms, number); }
const char* AlgorithmName(const char* name) { return name; }
const char* ProtocolName(uint8_t number) { return NameIn(kProtocols, number); }
const char* ProtocolName(const char* name) { return name; }

// A version's types, and its init with the arguments of all versions.
struct Communicator {
  uint64_t hash = 0;
  const char* name = nullptr;
  int nodes = 0;
  int ranks = 0;
  int rank = -1;
  nccl::Logger logger = nullptr;
};

template <int kNumber, typename PluginType, typename EventType, typename ArgsType>
struct VersionOf {
  static constexpr int kVersion = kNumber;
  using Plugin = PluginType;
  using Event = EventType;
  using Args = ArgsType;

  static const Plugin& Theirs() {
    return *static_cast<const Plugin*>(g_plugin_chain.table(kVersion));
  }
  static Result InitTheirs(void** context, int* mask, const Communicator& c) {
    if constexpr (kVersion <= 3) {
      return Theirs().init(context, mask);
    } else if constexpr (kVersion == 4) {
      return Theirs().init(context, mask, c.name, c.hash, c.nodes, c.ranks, c.rank, c.logger);
    } else {
      return Theirs().init(context, c.hash, mask, c.name, c.nodes, c.ranks, c.rank, c.logger);
    }
  }
};
using V1 = VersionOf<1, nccl::PluginV1, nccl::EventV1, nccl::StateArgsV1>;
using V2 = VersionOf<2, nccl::PluginV2, nccl::EventV2, nccl::StateArgsV1>;
using V3 = VersionOf<3, nccl::PluginV3, nccl::EventV3, nccl::StateArgsV1>;
using V4 = VersionOf<4, nccl::PluginV4, nccl::EventV4, nccl::StateArgsV4>;
using V5 = VersionOf<5, nccl::PluginV5, nccl::EventV5, nccl::StateArgsV4>;
using V6 = VersionOf<6, nccl::PluginV6, nccl::EventV6, nccl::StateArgsV4>;

// Null in a forked child, and before the process is profiled.
Guest* CurrentGuest() { return __atomic_load_n(&g_guest, __ATOMIC_ACQUIRE); }

template <typename V>
Result Init(void** context, int* mask, const Communicator& c) {
  const int saved_errno = errno;
  const NcclHandle handle =
      g_communicator_table.Open({c.name, c.hash, c.rank, c.ranks, c.nodes}, V::kVersion, mask);
  *context = handle.Pack();
  Guest* guest = CurrentGuest();
  // Once, so that it hides no failure that comes later.
  if (g_plugin_chain.Retain() && guest != nullptr && guest->ring.active()) {
    ReportNcclReady(guest, V::kVersion);
  }
  CommunicatorTable::Entry* entry = g_communicator_table.Find(handle);
  if (entry != nullptr && g_plugin_chain.loaded()) {
    errno = saved_errno;
    entry->theirs = V::InitTheirs(&entry->their_context, g_plugin_chain.mask(), c) == kSuccess;
    g_plugin_chain.UpdateMask();
  }
  if (entry != nullptr) g_activation_masks.Add(mask, V::kVersion);
  errno = saved_errno;
  return kSuccess;
}

template <typename V>
Result Finalize(void* context) {
  const int saved_errno = errno;
  const NcclHandle handle = NcclHandle::Unpack(context);
  if (CommunicatorTable::Entry* entry = g_communicator_table.Find(handle); entry != nullptr) {
    if (entry->theirs && g_plugin_chain.Ends(entry->their_context)) {
      V::Theirs().finalize(entry->their_context);
      g_plugin_chain.UpdateMask();
    }
    g_activation_masks.Remove(entry->mask);
    if (Guest* guest = CurrentGuest(); guest != nullptr) guest->communicators.Flush(handle);
    g_communicator_table.Close(handle);
  }
  g_plugin_chain.Release();
  errno = saved_errno;
  return kSuccess;
}

template <typename Event, typename Told>
void AddCommunicator(const Event& event, const Told& told, Operation* operation) {
  if constexpr (requires { told.communicator_hash; }) {
    operation->communicator = {told.communicator_name, told.communicator_hash, event.rank, 0, 0};
  }
}

template <typename Event>
Operation CollectiveOf(const Event& event) {
  const auto& told = event.collective;
  Operation operation;
  operation.function = FunctionName(told.function);
  operation.datatype = DatatypeName(told.datatype);
  operation.algorithm = AlgorithmName(told.algorithm);
  operation.protocol = ProtocolName(told.protocol);
  operation.elements = told.count;
  operation.sequence = told.sequence;
  if constexpr (requires { told.channels; }) operation.channels = told.channels;
  AddCommunicator(event, told, &operation);
  return operation;
}

template <typename Event>
Operation TransferOf(const Event& event) {
  const auto& told = event.point_to_point;
  Operation operation;
  operation.function = FunctionName(told.function);
  operation.datatype = DatatypeName(told.datatype);
  operation.elements = told.count;
  operation.peer = told.peer;
  if constexpr (requires { told.channels; }) operation.channels = told.channels;
  AddCommunicator(event, told, &operation);
  return operation;
}

NcclHandle Known(const void* handle) {
  const NcclHandle ours = NcclHandle::Unpack(handle);
  if (ours.kind != NcclHandle::Kind::kNone || !g_plugin_chain.loaded()) return ours;
  return g_plugin_chain.Recall(handle);
}

// Our handle of the event; null: it needs none.
template <typename V>
void* Record(void* context, const typename V::Event& event) {
  // NCCL asks up to 2.27 for the operations of a group that has a handle.
  if (event.type == nccl::kGroup) {
    return V::kVersion <= 4 ? NcclHandle{NcclHandle::Kind::kGroup, 0, 0}.Pack() : nullptr;
  }
  Guest* guest = CurrentGuest();
  if (guest == nullptr) return nullptr;
  const NcclHandle communicator = NcclHandle::Unpack(context);
  switch (event.type) {
    case nccl::kCollective:
      return guest->communicators.OnOperation(communicator, CollectiveOf(event));
    case nccl::kPointToPoint:
      return guest->communicators.OnOperation(communicator, TransferOf(event));
    case nccl::kKernelChannel:
      if constexpr (V::kVersion >= 4) {
        return guest->communicators.channels().OnStart(Known(event.parent),
                                                       event.kernel_channel.gpu_time_ns);
      }
      return nullptr;
    default:
      return nullptr;
  }
}

// Operations, and what may be their parents.
bool IsRemembered(uint64_t type) {
  return (type & (nccl::kGroup | nccl::kGroupApi | nccl::kCollective | nccl::kPointToPoint |
                  nccl::kCollectiveApi | nccl::kPointToPointApi | nccl::kKernelChannel)) != 0;
}

void* NotOurs(void* handle) { return IsOurs(handle) ? nullptr : handle; }

// The user's plugin gets the event with its own handles. `ours`: our handle, which NCCL gets where
// the plugin gives none.
template <typename V>
Result StartTheirs(void* context, void** handle, const typename V::Event& event, void* ours) {
  // Alone, an event that is not shown leaves NCCL's variable as it is: NCCL 2.28 to 2.30 stop the
  // handle of a collective's call that they stopped before. A channel that is not shown has none.
  void* const before = NotOurs(*handle);
  *handle = ours != nullptr || event.type == nccl::kKernelChannel ? ours : before;
  const CommunicatorTable::Entry* entry = g_communicator_table.Find(NcclHandle::Unpack(context));
  const int mask = g_plugin_chain.MaskFor(event.type, event.parent);
  if (entry == nullptr || !entry->theirs || !g_plugin_chain.Shows(event.type, event.parent, mask)) {
    return kSuccess;
  }
  typename V::Event shown = event;
  shown.parent = NotOurs(shown.parent);
  if constexpr (requires { shown.collective.group; }) {
    if (event.type == nccl::kCollective) {
      shown.collective.group = NotOurs(shown.collective.group);
    } else if (event.type == nccl::kPointToPoint) {
      shown.point_to_point.group = NotOurs(shown.point_to_point.group);
    }
  }
  void* theirs = before;
  const Result result = V::Theirs().start_event(entry->their_context, &theirs, &shown);
  g_plugin_chain.UpdateMask();
  *handle = theirs != nullptr ? theirs : ours;
  if (theirs == nullptr) return result;
  if (IsRemembered(event.type)) g_plugin_chain.Remember(theirs, ours, mask);
  return result;
}

template <typename V>
Result Start(void* context, void** handle, typename V::Event* event) {
  void* const ours = Record<V>(context, *event);
  if (g_plugin_chain.loaded()) return StartTheirs<V>(context, handle, *event, ours);
  *handle = ours;
  return kSuccess;
}

template <typename V>
Result Stop(void* handle) {
  if (IsOurs(handle) || !g_plugin_chain.loaded()) return kSuccess;
  const Result result = V::Theirs().stop_event(handle);
  g_plugin_chain.UpdateMask();
  return result;
}

template <typename V>
Result OnState(void* handle, nccl::EventState state, typename V::Args* args) {
  if constexpr (V::kVersion >= 4) {
    Guest* guest = CurrentGuest();
    if (state == nccl::kKernelChannelStop && args != nullptr && guest != nullptr) {
      guest->communicators.channels().OnStop(Known(handle), args->kernel_channel.gpu_time_ns);
    }
  }
  if (IsOurs(handle) || !g_plugin_chain.loaded()) return kSuccess;
  const Result result = V::Theirs().record_event_state(handle, state, args);
  g_plugin_chain.UpdateMask();
  return result;
}

template <typename V>
Result InitWithoutId(void** context, int* mask) {
  return Init<V>(context, mask, {});
}

Result InitV4(void** context, int* mask, const char* name, uint64_t hash, int nodes, int ranks,
              int rank, nccl::Logger logger) {
  return Init<V4>(context, mask, {hash, name, nodes, ranks, rank, logger});
}

template <typename V>
Result InitWithId(void** context, uint64_t hash, int* mask, const char* name, int nodes, int ranks,
                  int rank, nccl::Logger logger) {
  return Init<V>(context, mask, {hash, name, nodes, ranks, rank, logger});
}

constexpr char kName[] = "SeqPoint";

template <typename V>
constexpr typename V::Plugin TableOf(decltype(V::Plugin::init) init) {
  return {kName, init, Start<V>, Stop<V>, OnState<V>, Finalize<V>};
}

const nccl::PluginV1 kV1 = TableOf<V1>(InitWithoutId<V1>);
const nccl::PluginV2 kV2 = TableOf<V2>(InitWithoutId<V2>);
const nccl::PluginV3 kV3 = TableOf<V3>(InitWithoutId<V3>);
const nccl::PluginV4 kV4 = TableOf<V4>(InitV4);
const nccl::PluginV5 kV5 = TableOf<V5>(InitWithId<V5>);
const nccl::PluginV6 kV6 = TableOf<V6>(InitWithId<V6>);

}  // namespace

void ReportNcclReady(Guest* guest, int version) {
  const char* const name = g_plugin_chain.name();
  const char* const error = g_plugin_chain.error();
  const bool chained = g_plugin_chain.loaded();
  guest->features.Report(Feature::kNccl, FeatureState::kReady, static_cast<uint32_t>(version),
                         "NCCL tells its operations (profiler interface version %d)%s%s%s%s",
                         version, chained ? ", and " : "", chained ? name : "",
                         chained            ? " is called as well"
                         : error[0] != '\0' ? "; your plugin: "
                                            : "",
                         chained ? "" : error);
}

const void* NcclPluginTable(int version) {
  const int saved_errno = errno;
  const void* const tables[] = {nullptr, &kV1, &kV2, &kV3, &kV4, &kV5, &kV6};
  const void* table = g_plugin_chain.Offers(version) ? tables[version] : nullptr;
  errno = saved_errno;
  return table;
}

}  // namespace seqpoint::inject
