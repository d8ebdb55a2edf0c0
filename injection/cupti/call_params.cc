#include "injection/cupti/call_params.h"

namespace seqpoint::inject {
namespace {

using abi::Op;

uint64_t Handle(const void* handle) { return reinterpret_cast<uint64_t>(handle); }

// Several driver functions share one layout: each struct below stands for those of all functions of
// its kind. They differ in names only, and those without a stream end before it.
using CopyParams = cuMemcpyHtoDAsync_v2_params;
using MemsetParams = cuMemsetD32Async_params;
using Memset2DParams = cuMemsetD2D32Async_params;
static_assert(offsetof(MemsetParams, N) == offsetof(cuMemsetD8Async_params, N));
static_assert(offsetof(Memset2DParams, Width) == offsetof(cuMemsetD2D8Async_params, Width));

template <typename T>
const T& As(const void* params) {
  return *static_cast<const T*>(params);
}

Op Direction(CUmemorytype from, CUmemorytype to) {
  if (from == CU_MEMORYTYPE_HOST && to == CU_MEMORYTYPE_DEVICE) return Op::kCopyH2D;
  if (from == CU_MEMORYTYPE_DEVICE && to == CU_MEMORYTYPE_HOST) return Op::kCopyD2H;
  if (from == CU_MEMORYTYPE_DEVICE && to == CU_MEMORYTYPE_DEVICE) return Op::kCopyD2D;
  return Op::kCopyOther;
}

// The configuration of a launch, in either form.
template <typename Launch>
void ReadLaunch(const Launch& launch, Call* call) {
  call->grid_x = launch.gridDimX;
  call->grid_y = launch.gridDimY;
  call->grid_z = launch.gridDimZ;
  call->block_x = launch.blockDimX;
  call->block_y = launch.blockDimY;
  call->block_z = launch.blockDimZ;
  call->stream = Handle(launch.hStream);
}

template <typename Shape>
void ReadShape(const Shape& shape, size_t depth, Call* call) {
  call->bytes = shape.WidthInBytes * shape.Height * depth;
  call->op = Direction(shape.srcMemoryType, shape.dstMemoryType);
}

// Values of 8, 16 and 32 bits follow each other in Params.
int Shift(Params params, Params of_8_bits) {
  return static_cast<int>(params) - static_cast<int>(of_8_bits);
}

}  // namespace

void ReadParams(const WatchedCall& watched, const CUpti_CallbackData& data, GraphNames* graphs,
                Call* call) {
  const void* params = data.functionParams;
  if (params == nullptr) return;
  const auto read_stream = [&](const auto& with_stream) {
    if (watched.has_stream) call->stream = Handle(with_stream.hStream);
  };
  switch (watched.params) {
    case Params::kLaunch:
      call->name = data.symbolName;
      ReadLaunch(As<cuLaunchKernel_params>(params), call);
      break;
    case Params::kLaunchEx: {
      call->name = data.symbolName;
      const CUlaunchConfig* config = As<cuLaunchKernelEx_params>(params).config;
      if (config != nullptr) ReadLaunch(*config, call);
      break;
    }
    case Params::kCopy:
      call->bytes = As<CopyParams>(params).ByteCount;
      read_stream(As<CopyParams>(params));
      break;
    case Params::kCopyPeer:
      call->bytes = As<cuMemcpyPeerAsync_params>(params).ByteCount;
      read_stream(As<cuMemcpyPeerAsync_params>(params));
      break;
    case Params::kCopy2D: {
      const auto& copy = As<cuMemcpy2DAsync_v2_params>(params);
      if (copy.pCopy != nullptr) ReadShape(*copy.pCopy, 1, call);
      read_stream(copy);
      break;
    }
    case Params::kCopy3D: {
      const auto& copy = As<cuMemcpy3DAsync_v2_params>(params);
      if (copy.pCopy != nullptr) ReadShape(*copy.pCopy, copy.pCopy->Depth, call);
      read_stream(copy);
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
    case Params::kMemset32:
      call->bytes = As<MemsetParams>(params).N << Shift(watched.params, Params::kMemset8);
      read_stream(As<MemsetParams>(params));
      break;
    case Params::kMemset2D8:
    case Params::kMemset2D16:
    case Params::kMemset2D32: {
      const Memset2DParams& set = As<Memset2DParams>(params);
      call->bytes = set.Width * set.Height << Shift(watched.params, Params::kMemset2D8);
      read_stream(set);
      break;
    }
    case Params::kGraph:
      call->name = graphs->Name(As<cuGraphLaunch_params>(params).hGraph);
      read_stream(As<cuGraphLaunch_params>(params));
      break;
    case Params::kStream:
      read_stream(As<cuStreamSynchronize_params>(params));
      break;
    case Params::kEventStream:
      call->event = Handle(As<cuEventRecord_params>(params).hEvent);
      read_stream(As<cuEventRecord_params>(params));
      break;
    case Params::kStreamEvent:
      read_stream(As<cuStreamWaitEvent_params>(params));
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

}  // namespace seqpoint::inject
