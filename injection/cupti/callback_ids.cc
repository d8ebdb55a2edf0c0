#include "injection/cupti/callback_ids.h"

#include <cupti.h>

#include "injection/abi/records.h"

namespace seqpoint::inject {

using abi::Op;

// clang-format off
#define SEQPOINT_CALL(name, op, params, has_stream, blocks) \
  {CUPTI_DRIVER_TRACE_CBID_##name, Op::op, Params::params, has_stream, blocks, #name},
// The function and its twin, whose default stream is that of the thread. (A macro of cuda.h may
// have the function's name, which is therefore not handed on to another macro.)
#define SEQPOINT_CALLS(name, twin, op, params, has_stream, blocks) \
  {CUPTI_DRIVER_TRACE_CBID_##name, Op::op, Params::params, has_stream, blocks, #name}, \
  {CUPTI_DRIVER_TRACE_CBID_##name##_##twin, Op::op, Params::params, has_stream, blocks, #name "_" #twin},

constexpr WatchedCall kWatchedCalls[] = {
  SEQPOINT_CALLS(cuLaunchKernel, ptsz, kLaunch, kLaunch, true, false)
  SEQPOINT_CALLS(cuLaunchKernelEx, ptsz, kLaunch, kLaunchEx, true, false)
  SEQPOINT_CALLS(cuLaunchCooperativeKernel, ptsz, kLaunch, kLaunch, true, false)
  SEQPOINT_CALLS(cuGraphLaunch, ptsz, kGraphLaunch, kGraph, true, false)
  SEQPOINT_CALLS(cuMemcpyHtoD_v2, ptds, kCopyH2D, kCopy, false, false)
  SEQPOINT_CALLS(cuMemcpyHtoDAsync_v2, ptsz, kCopyH2D, kCopy, true, false)
  SEQPOINT_CALLS(cuMemcpyDtoH_v2, ptds, kCopyD2H, kCopy, false, true)
  SEQPOINT_CALLS(cuMemcpyDtoHAsync_v2, ptsz, kCopyD2H, kCopy, true, false)
  SEQPOINT_CALLS(cuMemcpyDtoD_v2, ptds, kCopyD2D, kCopy, false, false)
  SEQPOINT_CALLS(cuMemcpyDtoDAsync_v2, ptsz, kCopyD2D, kCopy, true, false)
  SEQPOINT_CALLS(cuMemcpy, ptds, kCopyOther, kCopy, false, true)
  SEQPOINT_CALLS(cuMemcpyAsync, ptsz, kCopyOther, kCopy, true, false)
  SEQPOINT_CALLS(cuMemcpyPeer, ptds, kCopyOther, kCopyPeer, false, false)
  SEQPOINT_CALLS(cuMemcpyPeerAsync, ptsz, kCopyOther, kCopyPeer, true, false)
  SEQPOINT_CALLS(cuMemcpy2D_v2, ptds, kCopyOther, kCopy2D, false, false)
  SEQPOINT_CALLS(cuMemcpy2DUnaligned_v2, ptds, kCopyOther, kCopy2D, false, false)
  SEQPOINT_CALLS(cuMemcpy2DAsync_v2, ptsz, kCopyOther, kCopy2D, true, false)
  SEQPOINT_CALLS(cuMemcpy3D_v2, ptds, kCopyOther, kCopy3D, false, false)
  SEQPOINT_CALLS(cuMemcpy3DAsync_v2, ptsz, kCopyOther, kCopy3D, true, false)
  SEQPOINT_CALLS(cuMemcpyBatchAsync, ptsz, kCopyOther, kCopyBatch, false, false)
  SEQPOINT_CALLS(cuMemcpyBatchAsync_v2, ptsz, kCopyOther, kCopyBatch, false, false)
  SEQPOINT_CALLS(cuMemsetD8_v2, ptds, kMemset, kMemset8, false, false)
  SEQPOINT_CALLS(cuMemsetD8Async, ptsz, kMemset, kMemset8, true, false)
  SEQPOINT_CALLS(cuMemsetD2D8_v2, ptds, kMemset, kMemset2D8, false, false)
  SEQPOINT_CALLS(cuMemsetD2D8Async, ptsz, kMemset, kMemset2D8, true, false)
  SEQPOINT_CALLS(cuMemsetD16_v2, ptds, kMemset, kMemset16, false, false)
  SEQPOINT_CALLS(cuMemsetD16Async, ptsz, kMemset, kMemset16, true, false)
  SEQPOINT_CALLS(cuMemsetD2D16_v2, ptds, kMemset, kMemset2D16, false, false)
  SEQPOINT_CALLS(cuMemsetD2D16Async, ptsz, kMemset, kMemset2D16, true, false)
  SEQPOINT_CALLS(cuMemsetD32_v2, ptds, kMemset, kMemset32, false, false)
  SEQPOINT_CALLS(cuMemsetD32Async, ptsz, kMemset, kMemset32, true, false)
  SEQPOINT_CALLS(cuMemsetD2D32_v2, ptds, kMemset, kMemset2D32, false, false)
  SEQPOINT_CALLS(cuMemsetD2D32Async, ptsz, kMemset, kMemset2D32, true, false)
  SEQPOINT_CALL(cuCtxSynchronize, kContextSync, kNone, false, true)
  SEQPOINT_CALL(cuCtxSynchronize_v2, kContextSync, kNone, false, true)
  SEQPOINT_CALL(cuEventSynchronize, kEventSync, kEvent, false, true)
  SEQPOINT_CALLS(cuStreamSynchronize, ptsz, kStreamSync, kStream, true, true)
  SEQPOINT_CALLS(cuEventRecord, ptsz, kEventRecord, kEventStream, true, false)
  SEQPOINT_CALLS(cuEventRecordWithFlags, ptsz, kEventRecord, kEventStream, true, false)
  SEQPOINT_CALLS(cuStreamWaitEvent, ptsz, kStreamWait, kStreamEvent, true, false)
  SEQPOINT_CALLS(cuStreamBeginCapture, ptsz, kNone, kCaptureBegin, true, false)
  SEQPOINT_CALLS(cuStreamBeginCapture_v2, ptsz, kNone, kCaptureBegin, true, false)
  SEQPOINT_CALLS(cuStreamBeginCaptureToGraph, ptsz, kNone, kCaptureBegin, true, false)
  SEQPOINT_CALLS(cuStreamEndCapture, ptsz, kNone, kCaptureEnd, true, false)
};
// clang-format on
#undef SEQPOINT_CALLS
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
