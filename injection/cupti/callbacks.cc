#include "injection/cupti/callbacks.h"

#include <errno.h>
#include <string.h>

#include "injection/cupti/callback_ids.h"
#include "injection/process/guest.h"

namespace seqpoint::inject {
namespace {

using abi::Op;

constexpr CUpti_CallbackId kResources[] = {
    CUPTI_CBID_RESOURCE_CONTEXT_CREATED,
    CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING,
    CUPTI_CBID_RESOURCE_MODULE_UNLOAD_STARTING,
    CUPTI_CBID_RESOURCE_GRAPHEXEC_DESTROY_STARTING,
};

constexpr uint32_t kAllCopies =
    1u << static_cast<uint32_t>(Op::kCopyH2D) | 1u << static_cast<uint32_t>(Op::kCopyD2H) |
    1u << static_cast<uint32_t>(Op::kCopyD2D) | 1u << static_cast<uint32_t>(Op::kCopyOther);

uint64_t Handle(const void* handle) { return reinterpret_cast<uint64_t>(handle); }

// Parameters of several driver functions that share one layout; the functions' own structs differ
// in name only. Field names as in generated_cuda_meta.h.
template <typename T>
const T& As(const void* params) {
  return *static_cast<const T*>(params);
}
struct CopyParams {
  uint64_t to, from;
  size_t bytes;
  CUstream stream;
};
struct PeerParams {
  uint64_t to;
  CUcontext to_context;
  uint64_t from;
  CUcontext from_context;
  size_t bytes;
  CUstream stream;
};
struct MemsetParams {
  uint64_t to, value;
  size_t count;
  CUstream stream;
};
struct Memset2DParams {
  uint64_t to;
  size_t pitch;
  uint64_t value;
  size_t width, height;
  CUstream stream;
};
struct PointerParams {
  const void* description;
  CUstream stream;
};
static_assert(sizeof(CopyParams) == sizeof(cuMemcpyHtoDAsync_v2_params));
static_assert(sizeof(PeerParams) == sizeof(cuMemcpyPeerAsync_params));
static_assert(sizeof(MemsetParams) == sizeof(cuMemsetD8Async_params));
static_assert(sizeof(Memset2DParams) == sizeof(cuMemsetD2D8Async_params));
static_assert(offsetof(MemsetParams, count) == offsetof(cuMemsetD8Async_params, N));
static_assert(offsetof(Memset2DParams, width) == offsetof(cuMemsetD2D8Async_params, Width));

Op Direction(CUmemorytype from, CUmemorytype to) {
  if (from == CU_MEMORYTYPE_HOST && to == CU_MEMORYTYPE_DEVICE) return Op::kCopyH2D;
  if (from == CU_MEMORYTYPE_DEVICE && to == CU_MEMORYTYPE_HOST) return Op::kCopyD2H;
  if (from == CU_MEMORYTYPE_DEVICE && to == CU_MEMORYTYPE_DEVICE) return Op::kCopyD2D;
  return Op::kCopyOther;
}

void ReadLaunch(const CUpti_CallbackData& data, const cuLaunchKernel_params& params, Call* call) {
  call->name = data.symbolName;
  call->grid_x = params.gridDimX;
  call->grid_y = params.gridDimY;
  call->grid_z = params.gridDimZ;
  call->block_x = params.blockDimX;
  call->block_y = params.blockDimY;
  call->block_z = params.blockDimZ;
  call->stream = Handle(params.hStream);
}

// Fills in what the parameters of a call tell.
void ReadParams(const WatchedCall& watched, const CUpti_CallbackData& data, Call* call) {
  const void* params = data.functionParams;
  if (params == nullptr) return;
  switch (watched.params) {
    case Params::kLaunch:
      ReadLaunch(data, As<cuLaunchKernel_params>(params), call);
      break;
    case Params::kLaunchEx: {
      call->name = data.symbolName;
      const CUlaunchConfig* config = As<cuLaunchKernelEx_params>(params).config;
      if (config == nullptr) break;
      call->grid_x = config->gridDimX;
      call->grid_y = config->gridDimY;
      call->grid_z = config->gridDimZ;
      call->block_x = config->blockDimX;
      call->block_y = config->blockDimY;
      call->block_z = config->blockDimZ;
      call->stream = Handle(config->hStream);
      break;
    }
    case Params::kCopy: {
      const CopyParams& copy = As<CopyParams>(params);
      call->bytes = copy.bytes;
      if (watched.has_stream) call->stream = Handle(copy.stream);
      break;
    }
    case Params::kCopyPeer: {
      const PeerParams& copy = As<PeerParams>(params);
      call->bytes = copy.bytes;
      if (watched.has_stream) call->stream = Handle(copy.stream);
      break;
    }
    case Params::kCopy2D: {
      const PointerParams& copy = As<PointerParams>(params);
      if (watched.has_stream) call->stream = Handle(copy.stream);
      if (copy.description == nullptr) break;
      const CUDA_MEMCPY2D& shape = *static_cast<const CUDA_MEMCPY2D*>(copy.description);
      call->bytes = shape.WidthInBytes * shape.Height;
      call->op = Direction(shape.srcMemoryType, shape.dstMemoryType);
      break;
    }
    case Params::kCopy3D: {
      const PointerParams& copy = As<PointerParams>(params);
      if (watched.has_stream) call->stream = Handle(copy.stream);
      if (copy.description == nullptr) break;
      const CUDA_MEMCPY3D& shape = *static_cast<const CUDA_MEMCPY3D*>(copy.description);
      call->bytes = shape.WidthInBytes * shape.Height * shape.Depth;
      call->op = Direction(shape.srcMemoryType, shape.dstMemoryType);
      break;
    }
    case Params::kCopyBatch: {
      // The stream stands behind fields that differ between the versions of the function.
      const cuMemcpyBatchAsync_params& copy = As<cuMemcpyBatchAsync_params>(params);
      for (size_t i = 0; copy.sizes != nullptr && i < copy.count; ++i) call->bytes += copy.sizes[i];
      break;
    }
    case Params::kMemset8:
    case Params::kMemset16:
    case Params::kMemset32: {
      const MemsetParams& set = As<MemsetParams>(params);
      const int shift = watched.params == Params::kMemset8    ? 0
                        : watched.params == Params::kMemset16 ? 1
                                                              : 2;
      call->bytes = set.count << shift;
      if (watched.has_stream) call->stream = Handle(set.stream);
      break;
    }
    case Params::kMemset2D8:
    case Params::kMemset2D16:
    case Params::kMemset2D32: {
      const Memset2DParams& set = As<Memset2DParams>(params);
      const int shift = watched.params == Params::kMemset2D8    ? 0
                        : watched.params == Params::kMemset2D16 ? 1
                                                                : 2;
      call->bytes = set.width * set.height << shift;
      if (watched.has_stream) call->stream = Handle(set.stream);
      break;
    }
    case Params::kGraph:
      call->name = g_guest->graphs.Name(As<cuGraphLaunch_params>(params).hGraph);
      call->stream = Handle(As<cuGraphLaunch_params>(params).hStream);
      break;
    case Params::kStream:
      call->stream = Handle(As<cuStreamSynchronize_params>(params).hStream);
      break;
    case Params::kEventStream:
      call->stream = Handle(As<cuEventRecord_params>(params).hStream);
      call->event = Handle(As<cuEventRecord_params>(params).hEvent);
      break;
    case Params::kStreamEvent:
      call->stream = Handle(As<cuStreamWaitEvent_params>(params).hStream);
      break;
    case Params::kEvent:
      call->event = Handle(As<cuEventSynchronize_params>(params).hEvent);
      break;
    case Params::kNone:
    case Params::kCaptureBegin:
    case Params::kCaptureEnd:
      break;
  }
}

bool IsSync(Op op) {
  return op == Op::kStreamSync || op == Op::kEventSync || op == Op::kContextSync;
}

void OnCapture(const WatchedCall& watched, const CUpti_CallbackData& data, ThreadState* thread) {
  const bool enter = data.callbackSite == CUPTI_API_ENTER;
  // A capture counts from before its first call to after its last, so that nothing of ours can fall
  // into it.
  if (watched.params == Params::kCaptureBegin && enter) {
    ++thread->capturing;
    g_guest->stream.OnCaptureBegin(data.context);
    return;
  }
  if (enter) return;
  // An end that was refused because nothing is captured there ends nothing; any other error of an
  // end leaves no capture behind.
  const CUresult result = data.functionReturnValue == nullptr
                              ? CUDA_SUCCESS
                              : *static_cast<const CUresult*>(data.functionReturnValue);
  const bool began = watched.params == Params::kCaptureBegin && result == CUDA_SUCCESS;
  const bool no_end = watched.params == Params::kCaptureEnd && result == CUDA_ERROR_ILLEGAL_STATE;
  if (began || no_end) return;
  if (thread->capturing > 0) --thread->capturing;
  g_guest->stream.OnCaptureEnd();
}

void OnDriverCall(uint32_t cbid, const CUpti_CallbackData& data) {
  const WatchedCall* watched = FindWatchedCall(cbid);
  if (watched == nullptr) return;
  ThreadState* thread = Thread();
  if (thread->inside != 0) return;
  Guest* guest = g_guest;
  if (watched->op == Op::kNone) {
    OnCapture(*watched, data, thread);
    return;
  }
  // What is captured into a graph does not reach the GPU now.
  if (thread->capturing != 0) {
    if (guest->stream.captures() != 0) return;
    thread->capturing = 0;  // another thread ended the capture, as relaxed captures may
  }

  const bool enter = data.callbackSite == CUPTI_API_ENTER;
  if (!enter && watched->op == Op::kLaunch && guest->counters.kernels().listing()) {
    guest->counters.kernels().OnLaunched();
  }
  const bool sync = IsSync(watched->op);
  if ((!enter && !watched->blocks) || data.correlationData == nullptr) return;
  if (enter && watched->blocks) *data.correlationData = guest->clock.NowNs();
  if (enter && sync) return;
  // The id was turned on while the call was under way. What the data of its ENTER would be then is
  // not promised.
  if (!enter && *data.correlationData < guest->callbacks.enabled_ns()) return;

  Call call = {};
  call.op = watched->op;
  call.context_uid = static_cast<uint16_t>(data.contextUid);
  call.context = data.context;
  call.correlation_id = data.correlationId;
  if (watched->blocks) call.begin_ns = *data.correlationData;
  if (!enter && !sync) {
    call.end_ns = guest->clock.NowNs();
    ReadParams(*watched, data, &call);
    guest->stream.OnBlocked(call);
    return;
  }
  if (sync) {
    call.end_ns = guest->clock.NowNs();
    // The daemon is told how long the host waited; a zero would say that it did not.
    if (call.end_ns <= call.begin_ns) call.end_ns = call.begin_ns + 1;
  } else if (call.begin_ns == 0 && guest->stream.learning()) {
    call.begin_ns = guest->clock.NowNs();
  }
  ReadParams(*watched, data, &call);
  guest->stream.OnCall(call);
}

void OnResource(uint32_t cbid, const CUpti_ResourceData& data) {
  Guest* guest = g_guest;
  switch (cbid) {
    case CUPTI_CBID_RESOURCE_CONTEXT_CREATED:
      guest->AddContext(data.context);
      guest->helper.Start();
      break;
    case CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING:
      guest->stream.OnContextDestroy(data.context);
      guest->counters.ForgetContext(data.context);
      guest->RemoveContext(data.context);
      guest->helper.Wake();
      break;
    case CUPTI_CBID_RESOURCE_MODULE_UNLOAD_STARTING:
      guest->names.ForgetAddresses();
      guest->modules_went.store(guest->cupti.Has(kKeepsNamesOfUnloadedModules));
      break;
    case CUPTI_CBID_RESOURCE_GRAPHEXEC_DESTROY_STARTING:
      if (data.resourceDescriptor != nullptr) {
        guest->graphs.Forget(
            static_cast<const CUpti_GraphData*>(data.resourceDescriptor)->graphExec);
      }
      break;
    default:
      break;
  }
}

}  // namespace

void OnCuptiCallback(void*, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void* data) {
  if (g_guest == nullptr || data == nullptr) return;
  if (domain == CUPTI_CB_DOMAIN_DRIVER_API) {
    OnDriverCall(id, *static_cast<const CUpti_CallbackData*>(data));
    return;
  }
  const int saved_errno = errno;
  if (domain == CUPTI_CB_DOMAIN_RESOURCE) {
    if (Thread()->inside == 0) OnResource(id, *static_cast<const CUpti_ResourceData*>(data));
  } else if (domain == CUPTI_CB_DOMAIN_STATE && id == CUPTI_CBID_STATE_FATAL_ERROR) {
    g_guest->stream.Stop();
    g_guest->activity.GiveUp();
    g_guest->counters.GiveUp();
    g_guest->features.Report(
        abi::Feature::kCupti, abi::FeatureState::kFailed, 0,
        "CUPTI stopped after a fatal error of its own; training goes on, nothing more is recorded "
        "in this process");
  }
  errno = saved_errno;
}

void Callbacks::Init(const Cupti* cupti, Features* features) {
  cupti_ = cupti;
  features_ = features;
}

uint32_t Callbacks::SubscribeOnce() {
  strcpy(holder_, "another tool (Nsight, a debugger or a framework's profiler)");
  CallWatch::Scope watch(&g_guest->call_watch, "cuptiSubscribe");
  if (cupti_->Subscribe_v2 == nullptr || cupti_->Has(kSeparatesSubscribeV2)) {
    return cupti_->Subscribe(&subscriber_, OnCuptiCallback, nullptr);
  }
  CUpti_SubscriberParams params = {};
  params.structSize = CUpti_SubscriberParams_STRUCT_SIZE;
  params.subscriberName = "SeqPoint Profiler";
  char name[sizeof(holder_)] = {};
  params.oldSubscriberName = name;
  params.oldSubscriberSize = sizeof(name);
  const uint32_t result = cupti_->Subscribe_v2(&subscriber_, OnCuptiCallback, nullptr, &params);
  if (name[0] != '\0') memcpy(holder_, name, sizeof(name) - 1);
  return result;
}

uint32_t Callbacks::Subscribe(bool report_holder) {
  if (subscriber_ != nullptr) return CUPTI_SUCCESS;
  const uint32_t result = SubscribeOnce();
  if (result != CUPTI_SUCCESS) {
    subscriber_ = nullptr;
    if (result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED) {
      if (!report_holder) return result;
      features_->Report(abi::Feature::kCallbacks, abi::FeatureState::kIgnored, result,
                        "CUPTI is held by %s, and it serves one tool at a time; stop that tool to "
                        "profile this process: CUPTI is asked for again every few seconds",
                        holder_);
    } else {
      features_->Report(abi::Feature::kCallbacks, abi::FeatureState::kFailed, result,
                        "cuptiSubscribe gave %u (%s); is there a CUDA driver, and does "
                        "`nvidia-smi` work?",
                        result, cupti_->ResultName(result));
    }
    return result;
  }
  g_guest->names.ForgetAddresses();  // modules may have gone while nobody watched
  CallWatch::Scope watch(&g_guest->call_watch, "cuptiEnableCallback");
  for (const CUpti_CallbackId id : kResources) {
    const uint32_t enabled = cupti_->EnableCallback(1, subscriber_, CUPTI_CB_DOMAIN_RESOURCE, id);
    // Without news of contexts nothing else works; an id that only this CUPTI lacks is no loss.
    if (enabled == CUPTI_SUCCESS || id != CUPTI_CBID_RESOURCE_CONTEXT_CREATED) continue;
    features_->Report(abi::Feature::kCallbacks, abi::FeatureState::kFailed, enabled,
                      "cuptiEnableCallback gave %u (%s): the program's calls are not seen; its "
                      "iterations can be found by NVTX ranges or marks only",
                      enabled, cupti_->ResultName(enabled));
    Unsubscribe();
    return enabled;
  }
  cupti_->EnableCallback(1, subscriber_, CUPTI_CB_DOMAIN_STATE, CUPTI_CBID_STATE_FATAL_ERROR);
  enabled_ops_ = 0;
  captures_watched_ = false;
  features_->Report(abi::Feature::kCallbacks, abi::FeatureState::kReady, 0,
                    "watching the CUDA driver's calls");
  return CUPTI_SUCCESS;
}

void Callbacks::Unsubscribe() {
  if (subscriber_ == nullptr) return;
  CallWatch::Scope watch(&g_guest->call_watch, "cuptiUnsubscribe");
  cupti_->Unsubscribe(subscriber_);
  subscriber_ = nullptr;
  enabled_ops_ = 0;
}

bool Callbacks::StillOurs() {
  CallWatch::Scope watch(&g_guest->call_watch, "cuptiEnableCallback");
  if (subscriber_ == nullptr) return false;
  // An id that is on: nothing changes, but a handle that CUPTI does not know is refused.
  if (cupti_->EnableCallback(1, subscriber_, CUPTI_CB_DOMAIN_RESOURCE,
                             CUPTI_CBID_RESOURCE_CONTEXT_CREATED) == CUPTI_SUCCESS) {
    return true;
  }
  subscriber_ = nullptr;
  enabled_ops_ = 0;
  return false;
}

uint32_t Callbacks::MeasurePriceNs(decltype(&::cuDriverGetVersion) harmless) {
  CallWatch::Scope watch(&g_guest->call_watch, "cuptiEnableCallback");
  constexpr int kCalls = 200;
  constexpr int kTimes = 3;
  if (subscriber_ == nullptr || harmless == nullptr) return 0;
  InsideScope inside;
  uint64_t best_ns[2] = {UINT64_MAX, UINT64_MAX};
  for (int time = 0; time < 2 * kTimes; ++time) {
    const uint32_t watched = time % 2;
    cupti_->EnableCallback(watched, subscriber_, CUPTI_CB_DOMAIN_DRIVER_API,
                           CUPTI_DRIVER_TRACE_CBID_cuDriverGetVersion);
    int version = 0;
    const uint64_t begin_ns = MonotonicNs();
    for (int i = 0; i < kCalls; ++i) harmless(&version);
    const uint64_t took_ns = MonotonicNs() - begin_ns;
    if (took_ns < best_ns[watched]) best_ns[watched] = took_ns;
  }
  cupti_->EnableCallback(0, subscriber_, CUPTI_CB_DOMAIN_DRIVER_API,
                         CUPTI_DRIVER_TRACE_CBID_cuDriverGetVersion);
  if (best_ns[1] <= best_ns[0]) return 1;
  return static_cast<uint32_t>((best_ns[1] - best_ns[0]) / kCalls);
}

void Callbacks::EnableOps(uint32_t ops) {
  if (subscriber_ == nullptr) return;
  CallWatch::Scope watch(&g_guest->call_watch, "cuptiEnableCallback");
  const uint32_t changed = ops ^ enabled_ops_;
  if ((changed & ops) != 0) {
    enabled_ns_.store(g_guest->clock.NowNs(), std::memory_order_relaxed);
  }
  for (uint32_t i = 0; i < kWatchedCallCount; ++i) {
    const WatchedCall& call = kWatchedCalls[i];
    const uint32_t bit = 1u << static_cast<uint32_t>(call.op);
    // Stream captures are rare and always watched. Copies whose direction stands in their
    // parameters may be any kind of copy.
    const bool capture = call.op == Op::kNone;
    const uint32_t relevant = call.op == Op::kCopyOther ? kAllCopies : bit;
    if (capture ? captures_watched_ : (changed & relevant) == 0) continue;
    // An older CUPTI refuses ids that it does not know; such calls cannot occur there either.
    cupti_->EnableCallback(capture || (ops & relevant) != 0, subscriber_,
                           CUPTI_CB_DOMAIN_DRIVER_API, call.cbid);
  }
  captures_watched_ = true;
  enabled_ops_ = ops;
}

}  // namespace seqpoint::inject
