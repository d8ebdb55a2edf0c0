#include "injection/cupti/callback_ids.h"

#include <cupti.h>

#include "injection/abi/records.h"

namespace seqpoint::inject {

using abi::Op;

#define SEQPOINT_CALL(name, op, params, has_stream, blocks) \
  {CUPTI_DRIVER_TRACE_CBID_##name, Op::op, Params::params, has_stream, blocks, #name},

// clang-format off
constexpr WatchedCall kWatchedCalls[] = {
  SEQPOINT_CALL(cuLaunchKernel, kLaunch, kLaunch, true, false)
  SEQPOINT_CALL(cuLaunchKernelEx, kLaunch, kLaunchEx, true, false)
  SEQPOINT_CALL(cuLaunchCooperativeKernel, kLaunch, kLaunch, true, false)
  SEQPOINT_CALL(cuGraphLaunch, kGraphLaunch, kGraph, true, false)
  SEQPOINT_CALL(cuLaunchKernel_ptsz, kLaunch, kLaunch, true, false)
  SEQPOINT_CALL(cuLaunchKernelEx_ptsz, kLaunch, kLaunchEx, true, false)
  SEQPOINT_CALL(cuLaunchCooperativeKernel_ptsz, kLaunch, kLaunch, true, false)
  SEQPOINT_CALL(cuGraphLaunch_ptsz, kGraphLaunch, kGraph, true, false)
  SEQPOINT_CALL(cuMemcpyHtoD_v2, kCopyH2D, kCopy, false, false)
  SEQPOINT_CALL(cuMemcpyHtoD_v2_ptds, kCopyH2D, kCopy, false, false)
  SEQPOINT_CALL(cuMemcpyHtoDAsync_v2, kCopyH2D, kCopy, true, false)
  SEQPOINT_CALL(cuMemcpyHtoDAsync_v2_ptsz, kCopyH2D, kCopy, true, false)
  SEQPOINT_CALL(cuMemcpyDtoH_v2, kCopyD2H, kCopy, false, true)
  SEQPOINT_CALL(cuMemcpyDtoH_v2_ptds, kCopyD2H, kCopy, false, true)
  SEQPOINT_CALL(cuMemcpyDtoHAsync_v2, kCopyD2H, kCopy, true, false)
  SEQPOINT_CALL(cuMemcpyDtoHAsync_v2_ptsz, kCopyD2H, kCopy, true, false)
  SEQPOINT_CALL(cuMemcpyDtoD_v2, kCopyD2D, kCopy, false, false)
  SEQPOINT_CALL(cuMemcpyDtoD_v2_ptds, kCopyD2D, kCopy, false, false)
  SEQPOINT_CALL(cuMemcpyDtoDAsync_v2, kCopyD2D, kCopy, true, false)
  SEQPOINT_CALL(cuMemcpyDtoDAsync_v2_ptsz, kCopyD2D, kCopy, true, false)
  SEQPOINT_CALL(cuMemcpy, kCopyOther, kCopy, false, true)
  SEQPOINT_CALL(cuMemcpy_ptds, kCopyOther, kCopy, false, true)
  SEQPOINT_CALL(cuMemcpyAsync, kCopyOther, kCopy, true, false)
  SEQPOINT_CALL(cuMemcpyAsync_ptsz, kCopyOther, kCopy, true, false)
  SEQPOINT_CALL(cuMemcpyPeer, kCopyOther, kCopyPeer, false, false)
  SEQPOINT_CALL(cuMemcpyPeerAsync, kCopyOther, kCopyPeer, true, false)
  SEQPOINT_CALL(cuMemcpy2D_v2, kCopyOther, kCopy2D, false, false)
  SEQPOINT_CALL(cuMemcpy2DUnaligned_v2, kCopyOther, kCopy2D, false, false)
  SEQPOINT_CALL(cuMemcpy2DAsync_v2, kCopyOther, kCopy2D, true, false)
  SEQPOINT_CALL(cuMemcpy3D_v2, kCopyOther, kCopy3D, false, false)
  SEQPOINT_CALL(cuMemcpy3DAsync_v2, kCopyOther, kCopy3D, true, false)
  SEQPOINT_CALL(cuMemcpyBatchAsync, kCopyOther, kCopyBatch, false, false)
  SEQPOINT_CALL(cuMemcpyBatchAsync_v2, kCopyOther, kCopyBatch, false, false)
  SEQPOINT_CALL(cuMemsetD8_v2, kMemset, kMemset8, false, false)
  SEQPOINT_CALL(cuMemsetD8Async, kMemset, kMemset8, true, false)
  SEQPOINT_CALL(cuMemsetD2D8_v2, kMemset, kMemset2D8, false, false)
  SEQPOINT_CALL(cuMemsetD2D8Async, kMemset, kMemset2D8, true, false)
  SEQPOINT_CALL(cuMemsetD16_v2, kMemset, kMemset16, false, false)
  SEQPOINT_CALL(cuMemsetD16Async, kMemset, kMemset16, true, false)
  SEQPOINT_CALL(cuMemsetD2D16_v2, kMemset, kMemset2D16, false, false)
  SEQPOINT_CALL(cuMemsetD2D16Async, kMemset, kMemset2D16, true, false)
  SEQPOINT_CALL(cuMemsetD32_v2, kMemset, kMemset32, false, false)
  SEQPOINT_CALL(cuMemsetD32Async, kMemset, kMemset32, true, false)
  SEQPOINT_CALL(cuMemsetD2D32_v2, kMemset, kMemset2D32, false, false)
  SEQPOINT_CALL(cuMemsetD2D32Async, kMemset, kMemset2D32, true, false)
  SEQPOINT_CALL(cuMemcpyPeer_ptds, kCopyOther, kCopyPeer, false, false)
  SEQPOINT_CALL(cuMemcpyPeerAsync_ptsz, kCopyOther, kCopyPeer, true, false)
  SEQPOINT_CALL(cuMemcpy2D_v2_ptds, kCopyOther, kCopy2D, false, false)
  SEQPOINT_CALL(cuMemcpy2DUnaligned_v2_ptds, kCopyOther, kCopy2D, false, false)
  SEQPOINT_CALL(cuMemcpy2DAsync_v2_ptsz, kCopyOther, kCopy2D, true, false)
  SEQPOINT_CALL(cuMemcpy3D_v2_ptds, kCopyOther, kCopy3D, false, false)
  SEQPOINT_CALL(cuMemcpy3DAsync_v2_ptsz, kCopyOther, kCopy3D, true, false)
  SEQPOINT_CALL(cuMemcpyBatchAsync_ptsz, kCopyOther, kCopyBatch, false, false)
  SEQPOINT_CALL(cuMemcpyBatchAsync_v2_ptsz, kCopyOther, kCopyBatch, false, false)
  SEQPOINT_CALL(cuMemsetD8_v2_ptds, kMemset, kMemset8, false, false)
  SEQPOINT_CALL(cuMemsetD8Async_ptsz, kMemset, kMemset8, true, false)
  SEQPOINT_CALL(cuMemsetD2D8_v2_ptds, kMemset, kMemset2D8, false, false)
  SEQPOINT_CALL(cuMemsetD2D8Async_ptsz, kMemset, kMemset2D8, true, false)
  SEQPOINT_CALL(cuMemsetD16_v2_ptds, kMemset, kMemset16, false, false)
  SEQPOINT_CALL(cuMemsetD16Async_ptsz, kMemset, kMemset16, true, false)
  SEQPOINT_CALL(cuMemsetD2D16_v2_ptds, kMemset, kMemset2D16, false, false)
  SEQPOINT_CALL(cuMemsetD2D16Async_ptsz, kMemset, kMemset2D16, true, false)
  SEQPOINT_CALL(cuMemsetD32_v2_ptds, kMemset, kMemset32, false, false)
  SEQPOINT_CALL(cuMemsetD32Async_ptsz, kMemset, kMemset32, true, false)
  SEQPOINT_CALL(cuMemsetD2D32_v2_ptds, kMemset, kMemset2D32, false, false)
  SEQPOINT_CALL(cuMemsetD2D32Async_ptsz, kMemset, kMemset2D32, true, false)
  SEQPOINT_CALL(cuCtxSynchronize, kContextSync, kNone, false, true)
  SEQPOINT_CALL(cuCtxSynchronize_v2, kContextSync, kNone, false, true)
  SEQPOINT_CALL(cuEventSynchronize, kEventSync, kEvent, false, true)
  SEQPOINT_CALL(cuStreamSynchronize, kStreamSync, kStream, true, true)
  SEQPOINT_CALL(cuEventRecord, kEventRecord, kEventStream, true, false)
  SEQPOINT_CALL(cuEventRecordWithFlags, kEventRecord, kEventStream, true, false)
  SEQPOINT_CALL(cuStreamWaitEvent, kStreamWait, kStreamEvent, true, false)
  SEQPOINT_CALL(cuStreamBeginCapture, kNone, kCaptureBegin, true, false)
  SEQPOINT_CALL(cuStreamBeginCapture_v2, kNone, kCaptureBegin, true, false)
  SEQPOINT_CALL(cuStreamBeginCaptureToGraph, kNone, kCaptureBegin, true, false)
  SEQPOINT_CALL(cuStreamEndCapture, kNone, kCaptureEnd, true, false)
  SEQPOINT_CALL(cuStreamSynchronize_ptsz, kStreamSync, kStream, true, true)
  SEQPOINT_CALL(cuEventRecord_ptsz, kEventRecord, kEventStream, true, false)
  SEQPOINT_CALL(cuEventRecordWithFlags_ptsz, kEventRecord, kEventStream, true, false)
  SEQPOINT_CALL(cuStreamWaitEvent_ptsz, kStreamWait, kStreamEvent, true, false)
  SEQPOINT_CALL(cuStreamBeginCapture_ptsz, kNone, kCaptureBegin, true, false)
  SEQPOINT_CALL(cuStreamBeginCapture_v2_ptsz, kNone, kCaptureBegin, true, false)
  SEQPOINT_CALL(cuStreamBeginCaptureToGraph_ptsz, kNone, kCaptureBegin, true, false)
  SEQPOINT_CALL(cuStreamEndCapture_ptsz, kNone, kCaptureEnd, true, false)
};
// clang-format on
#undef SEQPOINT_CALL

constexpr uint32_t kWatchedCallCount = sizeof(kWatchedCalls) / sizeof(kWatchedCalls[0]);

namespace {

constexpr uint32_t kMaxCbid = 1024;
struct CbidIndex {
  uint8_t position[kMaxCbid];  // 1-based; 0: not watched
};
constexpr CbidIndex BuildIndex() {
  CbidIndex index = {};
  for (uint32_t i = 0; i < kWatchedCallCount; ++i) {
    index.position[kWatchedCalls[i].cbid] = static_cast<uint8_t>(i + 1);
  }
  return index;
}
static_assert(kWatchedCallCount < 255);
constexpr CbidIndex kIndex = BuildIndex();

}  // namespace

const WatchedCall* FindWatchedCall(uint32_t driver_cbid) {
  if (driver_cbid >= kMaxCbid || kIndex.position[driver_cbid] == 0) return nullptr;
  return &kWatchedCalls[kIndex.position[driver_cbid] - 1];
}

}  // namespace seqpoint::inject
