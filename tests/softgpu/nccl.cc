// The functions of the software NCCL. docs/internals/software-gpu.md says what they do.
//
// A handle is looked up at every call: one that was destroyed or aborted is an invalid argument,
// and what an aborting thread takes from a waiting one lives until that one has returned.

#include "tests/softgpu/nccl_abi.h"

#include <cuda.h>
#include <sys/random.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tests/softgpu/nccl_communicator.h"
#include "tests/softgpu/nccl_group.h"
#include "tests/softgpu/noise.h"

namespace seqpoint::softgpu {
namespace {

constexpr unsigned kConfigMagic = 0xcafebeef;
constexpr uint64_t kIdMagic = 0x314449474e535153;
constexpr const char* kAbsent = "communicator";

// The content of a ncclUniqueId. Its other bytes are zero.
struct UniqueId {
  uint64_t magic;
  uint64_t random[2];  // names the shared memory
  uint64_t hash;       // of the communicator: the same in every run
};
static_assert(sizeof(UniqueId) <= sizeof(ncclUniqueId));

// Leaked: exit handlers may call in.
struct Registry {
  std::mutex mutex;
  std::map<ncclComm_t, std::shared_ptr<NcclCommunicator>> communicators;
  uint64_t unique_ids = 0;
  int operators = 0;
};

Registry& GetRegistry() {
  static auto* registry = new Registry;
  return *registry;
}

std::shared_ptr<NcclCommunicator> Find(ncclComm_t handle) {
  std::lock_guard lock(GetRegistry().mutex);
  auto it = GetRegistry().communicators.find(handle);
  return it == GetRegistry().communicators.end() ? nullptr : it->second;
}

std::shared_ptr<NcclCommunicator> Take(ncclComm_t handle) {
  std::lock_guard lock(GetRegistry().mutex);
  auto node = GetRegistry().communicators.extract(handle);
  return node.empty() ? nullptr : std::move(node.mapped());
}

ncclComm_t Register(std::shared_ptr<NcclCommunicator> communicator) {
  auto handle = reinterpret_cast<ncclComm_t>(communicator.get());
  std::lock_guard lock(GetRegistry().mutex);
  GetRegistry().communicators[handle] = std::move(communicator);
  return handle;
}

ncclResult_t BadCommunicator(const char* function) {
  return NcclFail(ncclInvalidArgument, std::string(function) + " : comm argument is no " + kAbsent);
}

// The context of the calling thread, or the primary one of device 0 where there is none.
CUcontext CurrentContext() {
  cuInit(0);
  CUcontext context = NcclHooks().current_context();
  if (context != nullptr) return context;
  if (cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS) return nullptr;
  cuCtxSetCurrent(context);
  return context;
}

// The name in a configuration, which older releases do not have. Empty: none.
std::string NameIn(const ncclConfig_t* config) {
  constexpr size_t kHasName = offsetof(ncclConfig_t, commName) + sizeof(config->commName);
  if (config == nullptr || config->size < kHasName || config->commName == nullptr) return "";
  return config->commName;
}

bool IsValid(const ncclConfig_t* config) {
  return config == nullptr || config->magic == kConfigMagic;
}

ncclResult_t InitRank(ncclComm_t* out, int ranks, const ncclUniqueId& unique_id, int rank,
                      const ncclConfig_t* config) {
  if (out == nullptr) return NcclFail(ncclInvalidArgument, "ncclCommInitRank : comm is NULL");
  *out = nullptr;
  UniqueId id{};
  memcpy(&id, unique_id.internal, sizeof(id));
  if (id.magic != kIdMagic) {
    return NcclFail(ncclInvalidArgument, "ncclCommInitRank : the id is not of ncclGetUniqueId");
  }
  if (ranks < 1 || ranks > NcclSegment::kMaxRanks || rank < 0 || rank >= ranks) {
    return NcclFail(ncclInvalidArgument, "Invalid rank requested : " + std::to_string(rank) + "/" +
                                             std::to_string(ranks));
  }
  if (!IsValid(config)) {
    return NcclFail(ncclInvalidArgument,
                    "ncclConfig_t argument not initialized via NCCL_CONFIG_INITIALIZER");
  }
  CUcontext context = CurrentContext();
  if (context == nullptr) return NcclFail(ncclUnhandledCudaError, "no CUDA context");
  char segment[64];
  snprintf(segment, sizeof(segment), "/swgpu-nccl-%016llx%016llx",
           static_cast<unsigned long long>(id.random[0]),
           static_cast<unsigned long long>(id.random[1]));
  const NcclMeeting meeting{segment, id.hash, ranks, rank, NameIn(config)};
  return NcclGroupRun([=] {
    std::shared_ptr<NcclCommunicator> communicator;
    const ncclResult_t result = NcclCommunicator::Create(meeting, context, &communicator);
    if (result == ncclSuccess) *out = Register(std::move(communicator));
    return result;
  });
}

ncclResult_t Check(const NcclCommunicator& c, const NcclTask& task) {
  const auto fail = [&](const std::string& what) {
    return NcclFail(ncclInvalidArgument, std::string(Name(task.function)) + " : " + what);
  };
  if (task.root < 0 || task.root >= c.ranks) {
    return fail("invalid root " + std::to_string(task.root) + " (root should be in the 0.." +
                std::to_string(c.ranks) + " range)");
  }
  if (task.type < 0 || task.type >= ncclNumTypes) {
    return fail("invalid type " + std::to_string(task.type));
  }
  if (task.op < 0 || task.op >= ncclNumOps + GetRegistry().operators) {
    return fail("invalid reduction operation " + std::to_string(task.op));
  }
  return ncclSuccess;
}

// A collective on one rank: a copy, unless it is in place.
ncclResult_t CopyAlone(const NcclCommunicator& c, const NcclTask& task) {
  if (task.send == task.receive) return ncclSuccess;
  ContextScope scope(c.context);
  const CUresult result = cuMemcpyDtoDAsync(reinterpret_cast<CUdeviceptr>(task.receive),
                                            reinterpret_cast<CUdeviceptr>(task.send),
                                            task.count * BytesOf(task.type), task.stream);
  return result == CUDA_SUCCESS ? ncclSuccess : ncclUnhandledCudaError;
}

uint64_t RanksOfTraffic(NcclFunction function, int ranks) {
  switch (function) {
    case NcclFunction::kAllReduce:
      return 2;
    case NcclFunction::kAllGather:
    case NcclFunction::kReduceScatter:
      return static_cast<uint64_t>(ranks);
    default:
      return 1;
  }
}

ncclResult_t AddCollective(const std::shared_ptr<NcclCommunicator>& c, const NcclTask& api) {
  if (api.count == 0) return ncclSuccess;
  if (c->ranks == 1) return CopyAlone(*c, api);
  NcclTask task = api;
  task.bytes = api.count * BytesOf(api.type);
  // These move bytes, whatever they mean.
  if (api.function == NcclFunction::kAllGather || api.function == NcclFunction::kBroadcast) {
    task.count = task.bytes;
    task.type = ncclInt8;
  }
  task.traffic_bytes = task.bytes * RanksOfTraffic(api.function, c->ranks);
  const bool is_share =
      api.function == NcclFunction::kAllGather || api.function == NcclFunction::kReduceScatter;
  task.choice = c->law->Collective(
      api.function, is_share ? task.bytes * static_cast<uint64_t>(c->ranks) : task.bytes);
  return NcclGroupAdd(c, api, task);
}

ncclResult_t AddTransfer(const std::shared_ptr<NcclCommunicator>& c, NcclFunction function,
                         const void* send, void* receive, int peer, const NcclTask& api) {
  NcclTask task = api;
  task.function = function;
  task.send = send;
  task.receive = receive;
  task.root = peer;
  task.bytes = task.traffic_bytes = api.count * BytesOf(api.type);
  task.choice.channels = c->law->TransferChannels(task.bytes);
  task.choice.transfer_ns = c->law->base_ns() + c->law->TransferNs(c->rank, peer, task.bytes);
  NcclTask told = api;
  told.function = function;
  return NcclGroupAdd(c, told, task);
}

// The part of a buffer that belongs to `rank`.
template <typename Byte>
Byte* Part(Byte* buffer, int rank, const NcclTask& api) {
  using Char = std::conditional_t<std::is_const_v<Byte>, const char, char>;
  return static_cast<Char*>(buffer) + static_cast<size_t>(rank) * api.count * BytesOf(api.type);
}

ncclResult_t AddTransfers(const std::shared_ptr<NcclCommunicator>& c, const NcclTask& api) {
  const auto send = [&](int peer, const void* from) {
    return AddTransfer(c, NcclFunction::kSend, from, nullptr, peer, api);
  };
  const auto receive = [&](int peer, void* to) {
    return AddTransfer(c, NcclFunction::kRecv, nullptr, to, peer, api);
  };
  ncclResult_t result = ncclSuccess;
  switch (api.function) {
    case NcclFunction::kSend:
      return send(api.root, api.send);
    case NcclFunction::kRecv:
      return receive(api.root, api.receive);
    case NcclFunction::kGather:
      result = send(api.root, api.send);
      for (int r = 0; r < c->ranks && c->rank == api.root && result == ncclSuccess; ++r) {
        result = receive(r, Part(api.receive, r, api));
      }
      return result;
    case NcclFunction::kScatter:
      for (int r = 0; r < c->ranks && c->rank == api.root && result == ncclSuccess; ++r) {
        result = send(r, Part(api.send, r, api));
      }
      return result == ncclSuccess ? receive(api.root, api.receive) : result;
    default:  // AlltoAll
      for (int r = 0; r < c->ranks && result == ncclSuccess; ++r) {
        result = send(r, Part(api.send, r, api));
        if (result == ncclSuccess) result = receive(r, Part(api.receive, r, api));
      }
      return result;
  }
}

// One collective, send or receive, as the program calls it.
ncclResult_t Call(NcclFunction function, const void* send, void* receive, size_t count,
                  ncclDataType_t type, ncclRedOp_t op, int root, ncclComm_t comm,
                  cudaStream_t stream) {
  const std::shared_ptr<NcclCommunicator> c = Find(comm);
  if (c == nullptr) return BadCommunicator(Name(function));
  const NcclTask api{function, send, receive, count, type, op, root, stream};
  return NcclGroupCall([&] {
    if (const ncclResult_t result = Check(*c, api); result != ncclSuccess) return result;
    return api.is_transfer() ? AddTransfers(c, api) : AddCollective(c, api);
  });
}

const char* const kErrorStrings[] = {
    "no error",
    "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
    "unhandled system error (run with NCCL_DEBUG=INFO for details)",
    "internal error - please report this issue to the NCCL developers",
    "invalid argument (run with NCCL_DEBUG=WARN for details)",
    "invalid usage (run with NCCL_DEBUG=WARN for details)",
    "remote process exited or there was a network error",
    "NCCL operation in progress",
    "operation timed out",
};

}  // namespace
}  // namespace seqpoint::softgpu

using namespace seqpoint::softgpu;

// Every function has a second name, under which a tool that replaces the first one reaches it.
// NOLINTBEGIN(readability-identifier-naming)
#pragma GCC diagnostic ignored "-Wmissing-attributes"  // what GCC finds out about the first one
#define NCCL_API(result, name, signature)                                                   \
  extern "C" __attribute__((visibility("default"))) result name signature;                  \
  extern "C" __attribute__((visibility("default"), alias(#name))) result p##name signature; \
  extern "C" result name signature

NCCL_API(ncclResult_t, ncclGetVersion, (int* version)) {
  if (version == nullptr) return ncclInvalidArgument;
  *version = NcclProfiler::VersionCode(NcclConfig().nccl_profiler_version);
  return ncclSuccess;
}

NCCL_API(ncclResult_t, ncclGetUniqueId, (ncclUniqueId * out)) {
  if (out == nullptr) return NcclFail(ncclInvalidArgument, "ncclGetUniqueId : uniqueId is NULL");
  UniqueId id{kIdMagic, {}, 0};
  if (getrandom(id.random, sizeof(id.random), 0) != sizeof(id.random)) return ncclSystemError;
  // The seed may be one for all ranks. Then the rank tells apart what several processes create.
  const char* rank = getenv("RANK");
  std::lock_guard lock(GetRegistry().mutex);
  id.hash = Mix(NcclConfig().seed,
                Mix(++GetRegistry().unique_ids, rank == nullptr ? 0 : strtoull(rank, nullptr, 10)));
  memset(out, 0, sizeof(*out));
  memcpy(out->internal, &id, sizeof(id));
  return ncclSuccess;
}

NCCL_API(ncclResult_t, ncclCommInitRank,
         (ncclComm_t * comm, int ranks, ncclUniqueId id, int rank)) {
  return InitRank(comm, ranks, id, rank, nullptr);
}

NCCL_API(ncclResult_t, ncclCommInitRankConfig,
         (ncclComm_t * comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config)) {
  return InitRank(comm, ranks, id, rank, config);
}

NCCL_API(ncclResult_t, ncclCommInitRankScalable,
         (ncclComm_t * comm, int ranks, int rank, int ids, ncclUniqueId* id,
          ncclConfig_t* config)) {
  if (ids < 1 || id == nullptr) return ncclInvalidArgument;
  return InitRank(comm, ranks, id[0], rank, config);
}

NCCL_API(ncclResult_t, ncclCommInitAll, (ncclComm_t * comms, int devices, const int* list)) {
  if (comms == nullptr || devices < 1) return ncclInvalidArgument;
  ncclUniqueId id;
  if (const ncclResult_t result = ncclGetUniqueId(&id); result != ncclSuccess) return result;
  cuInit(0);
  CUcontext former = NcclHooks().current_context();
  NcclGroupStart();
  ncclResult_t result = ncclSuccess;
  for (int i = 0; i < devices && result == ncclSuccess; ++i) {
    CUcontext context = nullptr;
    const int device = list == nullptr ? i : list[i];
    if (cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS) {
      result = NcclFail(ncclUnhandledCudaError, "no device " + std::to_string(device));
      break;
    }
    cuCtxSetCurrent(context);
    result = InitRank(&comms[i], devices, id, i, nullptr);
  }
  const ncclResult_t ended = NcclGroupEnd();
  cuCtxSetCurrent(former);
  return result != ncclSuccess ? result : ended;
}

NCCL_API(ncclResult_t, ncclCommSplit,
         (ncclComm_t comm, int color, int key, ncclComm_t* out, ncclConfig_t* config)) {
  const std::shared_ptr<NcclCommunicator> c = Find(comm);
  if (c == nullptr) return BadCommunicator("ncclCommSplit");
  if (out == nullptr || color < NCCL_SPLIT_NOCOLOR || !IsValid(config)) return ncclInvalidArgument;
  *out = nullptr;
  std::string name = NameIn(config);
  if (name.empty() && c->name() != nullptr) name = c->name();
  return NcclGroupRun([=] {
    std::shared_ptr<NcclCommunicator> part;
    const ncclResult_t result = c->Split(color, key, name, &part);
    if (part != nullptr) *out = Register(std::move(part));
    return result;
  });
}

NCCL_API(ncclResult_t, ncclCommFinalize, (ncclComm_t comm)) {
  const std::shared_ptr<NcclCommunicator> c = Find(comm);
  if (c == nullptr) return BadCommunicator("ncclCommFinalize");
  c->Drain();
  return ncclSuccess;
}

NCCL_API(ncclResult_t, ncclCommDestroy, (ncclComm_t comm)) {
  if (comm == nullptr) return ncclSuccess;
  const std::shared_ptr<NcclCommunicator> c = Take(comm);
  if (c == nullptr) return BadCommunicator("ncclCommDestroy");
  c->Drain();
  c->Close();
  return ncclSuccess;
}

NCCL_API(ncclResult_t, ncclCommAbort, (ncclComm_t comm)) {
  if (comm == nullptr) return ncclSuccess;
  const std::shared_ptr<NcclCommunicator> c = Take(comm);
  if (c == nullptr) return BadCommunicator("ncclCommAbort");
  c->Abort();
  c->Close();
  return ncclSuccess;
}

NCCL_API(ncclResult_t, ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t* error)) {
  const std::shared_ptr<NcclCommunicator> c = Find(comm);
  if (c == nullptr) return BadCommunicator("ncclGetAsyncError");
  if (error == nullptr) return ncclInvalidArgument;
  const Config& config = NcclConfig();
  const bool is_due = config.nccl_async_error != 0 &&
                      c->WaitingMs() >= config.nccl_async_error_ms &&
                      c->segment->waiting_since_ns() != 0;
  *error = is_due ? static_cast<ncclResult_t>(config.nccl_async_error) : ncclSuccess;
  return ncclSuccess;
}

NCCL_API(ncclResult_t, ncclCommCount, (const ncclComm_t comm, int* count)) {
  const std::shared_ptr<NcclCommunicator> c = Find(comm);
  if (c == nullptr || count == nullptr) return BadCommunicator("ncclCommCount");
  *count = c->ranks;
  return ncclSuccess;
}

NCCL_API(ncclResult_t, ncclCommCuDevice, (const ncclComm_t comm, int* device)) {
  const std::shared_ptr<NcclCommunicator> c = Find(comm);
  if (c == nullptr || device == nullptr) return BadCommunicator("ncclCommCuDevice");
  *device = c->device;
  return ncclSuccess;
}

NCCL_API(ncclResult_t, ncclCommUserRank, (const ncclComm_t comm, int* rank)) {
  const std::shared_ptr<NcclCommunicator> c = Find(comm);
  if (c == nullptr || rank == nullptr) return BadCommunicator("ncclCommUserRank");
  *rank = c->rank;
  return ncclSuccess;
}

NCCL_API(const char*, ncclGetErrorString, (ncclResult_t result)) {
  return result >= 0 && result <= ncclTimeout ? kErrorStrings[result] : "unknown result code";
}

NCCL_API(const char*, ncclGetLastError, (ncclComm_t)) { return NcclLastError(); }

NCCL_API(ncclResult_t, ncclMemAlloc, (void** memory, size_t bytes)) {
  if (memory == nullptr || bytes == 0) return ncclInvalidArgument;
  if (CurrentContext() == nullptr) return ncclUnhandledCudaError;
  CUdeviceptr pointer = 0;
  if (cuMemAlloc(&pointer, bytes) != CUDA_SUCCESS) return ncclUnhandledCudaError;
  *memory = reinterpret_cast<void*>(pointer);
  return ncclSuccess;
}

NCCL_API(ncclResult_t, ncclMemFree, (void* memory)) {
  if (memory == nullptr) return ncclInvalidArgument;
  const CUresult result = cuMemFree(reinterpret_cast<CUdeviceptr>(memory));
  return result == CUDA_SUCCESS ? ncclSuccess : ncclUnhandledCudaError;
}

// Registered buffers change nothing here, as no data moves.
NCCL_API(ncclResult_t, ncclCommRegister,
         (const ncclComm_t comm, void* buffer, size_t, void** handle)) {
  if (Find(comm) == nullptr || handle == nullptr) return BadCommunicator("ncclCommRegister");
  *handle = buffer;
  return ncclSuccess;
}

NCCL_API(ncclResult_t, ncclCommDeregister, (const ncclComm_t comm, void*)) {
  return Find(comm) == nullptr ? BadCommunicator("ncclCommDeregister") : ncclSuccess;
}

NCCL_API(ncclResult_t, ncclCommWindowRegister,
         (ncclComm_t comm, void* buffer, size_t, ncclWindow_t* window, int)) {
  if (Find(comm) == nullptr || window == nullptr) return BadCommunicator("ncclCommWindowRegister");
  *window = static_cast<ncclWindow_t>(buffer);
  return ncclSuccess;
}

NCCL_API(ncclResult_t, ncclCommWindowDeregister, (ncclComm_t comm, ncclWindow_t)) {
  return Find(comm) == nullptr ? BadCommunicator("ncclCommWindowDeregister") : ncclSuccess;
}

NCCL_API(ncclResult_t, ncclRedOpCreatePreMulSum,
         (ncclRedOp_t * op, void* scalar, ncclDataType_t, ncclScalarResidence_t, ncclComm_t comm)) {
  if (Find(comm) == nullptr) return BadCommunicator("ncclRedOpCreatePreMulSum");
  if (op == nullptr || scalar == nullptr) return ncclInvalidArgument;
  std::lock_guard lock(GetRegistry().mutex);
  *op = static_cast<ncclRedOp_t>(ncclNumOps + GetRegistry().operators++);
  return ncclSuccess;
}

NCCL_API(ncclResult_t, ncclRedOpDestroy, (ncclRedOp_t op, ncclComm_t comm)) {
  if (Find(comm) == nullptr) return BadCommunicator("ncclRedOpDestroy");
  return op >= ncclNumOps ? ncclSuccess : NcclFail(ncclInvalidArgument, "operator is builtin");
}

NCCL_API(ncclResult_t, ncclAllReduce,
         (const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t op,
          ncclComm_t comm, cudaStream_t stream)) {
  return Call(NcclFunction::kAllReduce, send, receive, count, type, op, 0, comm, stream);
}

NCCL_API(ncclResult_t, ncclBroadcast,
         (const void* send, void* receive, size_t count, ncclDataType_t type, int root,
          ncclComm_t comm, cudaStream_t stream)) {
  return Call(NcclFunction::kBroadcast, send, receive, count, type, ncclSum, root, comm, stream);
}

NCCL_API(ncclResult_t, ncclBcast,
         (void* buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
          cudaStream_t stream)) {
  return ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}

NCCL_API(ncclResult_t, ncclReduce,
         (const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t op,
          int root, ncclComm_t comm, cudaStream_t stream)) {
  return Call(NcclFunction::kReduce, send, receive, count, type, op, root, comm, stream);
}

NCCL_API(ncclResult_t, ncclAllGather,
         (const void* send, void* receive, size_t count, ncclDataType_t type, ncclComm_t comm,
          cudaStream_t stream)) {
  return Call(NcclFunction::kAllGather, send, receive, count, type, ncclSum, 0, comm, stream);
}

NCCL_API(ncclResult_t, ncclReduceScatter,
         (const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t op,
          ncclComm_t comm, cudaStream_t stream)) {
  return Call(NcclFunction::kReduceScatter, send, receive, count, type, op, 0, comm, stream);
}

NCCL_API(ncclResult_t, ncclAlltoAll,
         (const void* send, void* receive, size_t count, ncclDataType_t type, ncclComm_t comm,
          cudaStream_t stream)) {
  return Call(NcclFunction::kAlltoAll, send, receive, count, type, ncclSum, 0, comm, stream);
}

NCCL_API(ncclResult_t, ncclGather,
         (const void* send, void* receive, size_t count, ncclDataType_t type, int root,
          ncclComm_t comm, cudaStream_t stream)) {
  return Call(NcclFunction::kGather, send, receive, count, type, ncclSum, root, comm, stream);
}

NCCL_API(ncclResult_t, ncclScatter,
         (const void* send, void* receive, size_t count, ncclDataType_t type, int root,
          ncclComm_t comm, cudaStream_t stream)) {
  return Call(NcclFunction::kScatter, send, receive, count, type, ncclSum, root, comm, stream);
}

NCCL_API(ncclResult_t, ncclSend,
         (const void* send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
          cudaStream_t stream)) {
  return Call(NcclFunction::kSend, send, nullptr, count, type, ncclSum, peer, comm, stream);
}

NCCL_API(ncclResult_t, ncclRecv,
         (void* receive, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
          cudaStream_t stream)) {
  return Call(NcclFunction::kRecv, nullptr, receive, count, type, ncclSum, peer, comm, stream);
}

NCCL_API(ncclResult_t, ncclGroupStart, ()) {
  NcclGroupStart();
  return ncclSuccess;
}

NCCL_API(ncclResult_t, ncclGroupEnd, ()) { return NcclGroupEnd(); }
// NOLINTEND(readability-identifier-naming)

extern "C" __attribute__((visibility("default"))) void swgpu_nccl_link(int a, int b,
                                                                       double factor) {
  using seqpoint::softgpu::GetRegistry;
  seqpoint::softgpu::SetNcclLink(a, b, factor);
  std::lock_guard lock(GetRegistry().mutex);
  for (const auto& [handle, communicator] : GetRegistry().communicators) communicator->RenewLaw();
}
