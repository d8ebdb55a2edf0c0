// CUPTI's callback.
#include <errno.h>

#include "injection/cupti/call_params.h"
#include "injection/cupti/callback_ids.h"
#include "injection/process/guest.h"

namespace seqpoint::inject {
namespace {

using abi::Op;

void OnCapture(const WatchedCall& watched, const CUpti_CallbackData& data, ThreadState* thread) {
  const bool enter = data.callbackSite == CUPTI_API_ENTER;
  // A capture counts from before its first call to after its last, so that nothing of ours can fall
  // into it.
  if (watched.params == Params::kCaptureBegin && enter) {
    ++thread->capturing;
    g_guest->borders.OnCaptureBegin(data.context);
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
  g_guest->captures.OnEnd();
}

// Work for a stream that another thread captures, as autograd's launches of the backward pass are.
// The default stream of a thread is captured by that thread alone, if at all.
bool IsCaptured(const Call& call) {
  if (call.stream == 0) return false;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const auto stream = reinterpret_cast<CUstream>(call.stream);  // NOLINT: a handle
  return g_guest->driver.StreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
         status != CU_STREAM_CAPTURE_STATUS_NONE;
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
  // A captured call does not reach the GPU now.
  if (thread->capturing != 0) {
    if (guest->captures.count() != 0) return;
    thread->capturing = 0;  // another thread ended the capture, as relaxed captures may
  }

  const bool enter = data.callbackSite == CUPTI_API_ENTER;
  if (!enter && watched->op == Op::kLaunch && guest->counters.kernels().listing()) {
    guest->counters.kernels().OnLaunched();
  }
  const bool sync = (OpBit(watched->op) & kSyncOps) != 0;
  if ((!enter && !watched->blocks) || data.correlationData == nullptr) return;
  if (enter && watched->blocks) *data.correlationData = guest->clock.NowNs();
  if (enter && sync) return;
  // The id was turned on while the call was under way: nothing promises what the data of its ENTER
  // is then.
  if (!enter && *data.correlationData < guest->callbacks.enabled_ns()) return;

  Call call = {};
  call.op = watched->op;
  call.context_uid = static_cast<uint16_t>(data.contextUid);
  call.context = data.context;
  call.correlation_id = data.correlationId;
  if (watched->blocks) call.begin_ns = *data.correlationData;
  if (!enter) {
    call.end_ns = guest->clock.NowNs();
    // The daemon reads how long the host waited; a zero would say that it did not.
    if (sync && call.end_ns <= call.begin_ns) call.end_ns = call.begin_ns + 1;
  } else if (call.begin_ns == 0 && guest->state.is_learning()) {
    call.begin_ns = guest->clock.NowNs();
  }
  ReadParams(*watched, data, &guest->graphs, &call);
  if (guest->captures.count() != 0 && IsCaptured(call)) return;
  if (enter || sync) {
    guest->router.OnCall(call);
  } else {
    guest->router.OnBlocked(call);
  }
}

void OnResource(uint32_t cbid, const CUpti_ResourceData& data) {
  Guest* guest = g_guest;
  switch (cbid) {
    case CUPTI_CBID_RESOURCE_CONTEXT_CREATED:
      guest->contexts.Add(data.context);
      guest->helper.Start();
      break;
    case CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING:
      guest->borders.OnContextDestroy(data.context);
      guest->counters.ForgetContext(data.context);
      guest->contexts.Remove(data.context);
      guest->helper_wake.Wake();
      break;
    case CUPTI_CBID_RESOURCE_MODULE_UNLOAD_STARTING:
      guest->names.ForgetAddresses();
      guest->launch_names.SetNeeded(guest->cupti.Has(kKeepsNamesOfUnloadedModules));
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
    g_guest->Stop();
    g_guest->activity.GiveUp();
    g_guest->counters.GiveUp();
    g_guest->features.Report(
        abi::Feature::kCupti, abi::FeatureState::kFailed, 0,
        "CUPTI stopped after a fatal error of its own; training goes on, nothing more is recorded "
        "in this process");
  }
  errno = saved_errno;
}

}  // namespace seqpoint::inject
