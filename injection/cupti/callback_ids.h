// Which driver calls we watch and how to read their parameters. Driver level only: a runtime call
// nests its driver call with the same correlation id, so watching both would see everything twice,
// and only the driver call shows grid and block. CUPTI numbers are stable once given; new ones are
// appended, so the table also fits older versions of CUPTI, which refuse what they do not know.
// Threading: constant data.
#ifndef SEQPOINT_INJECTION_CUPTI_CALLBACK_IDS_H_
#define SEQPOINT_INJECTION_CUPTI_CALLBACK_IDS_H_

#include <stdint.h>

#include "injection/abi/records.h"

namespace seqpoint::inject {

// How the parameters of a call are laid out.
enum class Params : uint8_t {
  kLaunch,     // cuLaunchKernel and cuLaunchCooperativeKernel
  kLaunchEx,   // cuLaunchKernelEx
  kCopy,       // dst, src, bytes [, stream]: all the linear copies
  kCopyPeer,   // dst, context, src, context, bytes [, stream]
  kCopy2D,     // pointer to CUDA_MEMCPY2D [, stream]
  kCopy3D,     // pointer to CUDA_MEMCPY3D [, stream]
  kCopyBatch,  // dsts, srcs, sizes, count, ..., stream
  kMemset8,    // dst, value, count [, stream]
  kMemset16,
  kMemset32,
  kMemset2D8,  // dst, pitch, value, width, height [, stream]
  kMemset2D16,
  kMemset2D32,
  kGraph,        // graph, stream
  kNone,         // nothing to read
  kStream,       // stream
  kEvent,        // event
  kEventStream,  // event, stream [, flags]
  kStreamEvent,  // stream, event, flags
  kCaptureBegin,
  kCaptureEnd,
};

struct WatchedCall {
  uint16_t cbid;  // CUPTI_DRIVER_TRACE_CBID_*
  abi::Op op;     // kNone: not part of the stream (stream capture)
  Params params;
  bool has_stream;   // the parameters end with a stream; else the default stream
  bool blocks;       // the call returns only when the GPU is done: watched at its exit
  const char* name;  // as cuptiGetCallbackName gives it
};

extern const WatchedCall kWatchedCalls[];
extern const uint32_t kWatchedCallCount;

// Null for a call that is not watched.
const WatchedCall* FindWatchedCall(uint32_t driver_cbid);

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_CUPTI_CALLBACK_IDS_H_
