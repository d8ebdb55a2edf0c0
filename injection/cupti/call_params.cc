#include "injection/cupti/call_params.h"

namespace seqpoint::inject {
namespace {

using abi::Op;

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
    case Params::kCopy2D:
    case Params::kCopy3D: {
      const PointerParams& copy = As<PointerParams>(params);
      if (watched.has_stream) call->stream = Handle(copy.stream);
      if (copy.description == nullptr) break;
      if (watched.params == Params::kCopy2D) {
        ReadShape(*static_cast<const CUDA_MEMCPY2D*>(copy.description), 1, call);
      } else {
        const auto& shape = *static_cast<const CUDA_MEMCPY3D*>(copy.description);
        ReadShape(shape, shape.Depth, call);
      }
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
      call->bytes = set.count << Shift(watched.params, Params::kMemset8);
      if (watched.has_stream) call->stream = Handle(set.stream);
      break;
    }
    case Params::kMemset2D8:
    case Params::kMemset2D16:
    case Params::kMemset2D32: {
      const Memset2DParams& set = As<Memset2DParams>(params);
      call->bytes = set.width * set.height << Shift(watched.params, Params::kMemset2D8);
      if (watched.has_stream) call->stream = Handle(set.stream);
      break;
    }
    case Params::kGraph:
      call->name = graphs->Name(As<cuGraphLaunch_params>(params).hGraph);
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

}  // namespace seqpoint::inject
