// Streams, events, launches, copies and graphs of the software libcuda.

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <map>
#include <thread>
#include <utility>

#include "tests/softgpu/driver.h"
#include "tests/softgpu/releases.h"

namespace seqpoint::softgpu {
namespace {

// CUpti_ActivityMemoryKind values.
constexpr uint8_t kMemoryPageable = 1;
constexpr uint8_t kMemoryPinned = 2;
constexpr uint8_t kMemoryDevice = 3;
constexpr uint8_t kMemoryManaged = 5;

// CUpti_ActivitySynchronizationType values.
constexpr uint8_t kSyncEvent = 1;
constexpr uint8_t kSyncStreamWait = 2;
constexpr uint8_t kSyncStream = 3;
constexpr uint8_t kSyncContext = 4;

// CUPTI_SYNCHRONIZATION_INVALID_VALUE
constexpr uint32_t kNoStream = UINT32_MAX;

uint8_t ActivityMemoryKind(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::kPinned:
      return kMemoryPinned;
    case MemoryKind::kDevice:
      return kMemoryDevice;
    case MemoryKind::kManaged:
      return kMemoryManaged;
    case MemoryKind::kPageable:
      break;
  }
  return kMemoryPageable;
}

bool OnDevice(MemoryKind kind) {
  return kind == MemoryKind::kDevice || kind == MemoryKind::kManaged;
}

// Host functions run one after another on a thread of their own, as with the real driver.
class HostFunctions {
 public:
  explicit HostFunctions(Clock* clock) : clock_(clock) {
    std::thread([this] { Loop(); }).detach();
  }

  void Run(uint64_t time_ns, void (*fn)(void*), void* data) {
    std::lock_guard lock(mutex_);
    queue_.emplace(time_ns, Item{fn, data});
    changed_.notify_all();
  }

  // Returns when every function due by `time_ns` has run.
  void WaitFor(uint64_t time_ns) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] {
      return running_ns_ > time_ns && (queue_.empty() || queue_.begin()->first > time_ns);
    });
  }

 private:
  struct Item {
    void (*fn)(void*);
    void* data;
  };
  static constexpr uint64_t kIdle = UINT64_MAX;
  static constexpr auto kPoll = std::chrono::microseconds(100);
  static constexpr int kStuckPolls = 20;

  void Loop() {
    std::unique_lock lock(mutex_);
    uint64_t last_ns = 0;
    int polls = 0;
    for (;;) {
      changed_.wait(lock, [this] { return !queue_.empty(); });
      auto next = queue_.begin();
      uint64_t now = clock_->NowNs();
      if (next->first > now) {
        // Virtual time stands still while the program waits for this function by other means than
        // CUDA's: then nobody but us can move it.
        polls = now == last_ns && g_hooks.waits_for_ranks == 0 ? polls + 1 : 0;
        last_ns = now;
        if (clock_->is_virtual() && polls >= kStuckPolls) clock_->WaitUntil(next->first);
        changed_.wait_for(lock, kPoll);
        continue;
      }
      polls = 0;
      running_ns_ = next->first;
      Item item = next->second;
      queue_.erase(next);
      lock.unlock();
      item.fn(item.data);
      lock.lock();
      running_ns_ = kIdle;
      changed_.notify_all();
    }
  }

  Clock* const clock_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::multimap<uint64_t, Item> queue_;  // by the time at which they are due
  uint64_t running_ns_ = kIdle;
};

std::atomic<HostFunctions*> g_host_functions{nullptr};

// Waits until the GPU's work up to `time` is done, host functions included.
void WaitUntil(Driver* driver, Instant time) {
  driver->clock.WaitUntil(time);
  if (HostFunctions* functions = g_host_functions.load()) functions->WaitFor(time.ns);
}

CUresult WaitForStream(Driver* driver, Stream* stream) {
  if (stream->capture != nullptr) {
    stream->capture->invalidated = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  uint64_t start = driver->clock.NowNs();
  Charge(driver, driver->config.cpu_sync_ns);
  WaitUntil(driver, driver->model.StreamTail(stream));
  ReportSync(driver, stream->context, stream->id, reinterpret_cast<CUstream>(stream), kSyncStream,
             0, start);
  return CUDA_SUCCESS;
}

CUresult WaitForContext(Driver* driver, Context* context) {
  if (InvalidateCaptures(driver, context)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  uint64_t start = driver->clock.NowNs();
  Charge(driver, driver->config.cpu_sync_ns);
  WaitUntil(driver, driver->model.ContextTail(context));
  ReportSync(driver, context, kNoStream, nullptr, kSyncContext, 0, start);
  return CUDA_SUCCESS;
}

CUresult WaitForEvent(Driver* driver, Event* event) {
  uint64_t start = driver->clock.NowNs();
  Charge(driver, driver->config.cpu_sync_ns);
  if (event->recorded) WaitUntil(driver, event->time);
  Context* context = event->context == nullptr ? t_state.current : event->context;
  if (context != nullptr) {
    ReportSync(driver, context, event->stream_id, nullptr, kSyncEvent, event->id, start);
  }
  return CUDA_SUCCESS;
}

CUresult StreamWait(Driver* driver, Stream* stream, Event* event) {
  Charge(driver, driver->config.cpu_event_ns);
  if (event->capture != nullptr) {
    std::lock_guard lock(driver->mutex);
    if (driver->captures.count(event->capture) == 0) return CUDA_ERROR_CAPTURED_EVENT;
    stream->capture = event->capture;  // joins
    return CUDA_SUCCESS;
  }
  uint64_t start = driver->clock.NowNs();
  driver->model.WaitEvent(stream, event);
  ReportSync(driver, stream->context, stream->id, reinterpret_cast<CUstream>(stream),
             kSyncStreamWait, event->id, start);
  return CUDA_SUCCESS;
}

CUresult RecordEvent(Driver* driver, Stream* stream, Event* event) {
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Charge(driver, driver->config.cpu_event_ns);
  event->capture = stream->capture;
  if (stream->capture != nullptr) return CUDA_SUCCESS;
  driver->model.Record(stream, event);
  if ((g_hooks.operations.load(std::memory_order_relaxed) >> static_cast<int>(OpKind::kEvent)) &
      1) {
    Operation op = NewOperation(*stream);
    op.kind = OpKind::kEvent;
    op.start_ns = op.end_ns = event->time.ns;
    op.event_id = event->id;
    Report(op);
  }
  return CUDA_SUCCESS;
}

// Runs `body(driver, context)` when the calling thread has a context.
template <typename Body>
CUresult WithContext(Body&& body) {
  Driver* driver;
  Context* context;
  if (CUresult r = RequireContext(&driver, &context); r != CUDA_SUCCESS) [[unlikely]]
    return r;
  return body(driver, context);
}

CUresult LaunchOn(CUfunction function, const LaunchShape& shape, CUstream stream,
                  bool per_thread_default) {
  return WithContext([&](Driver* driver, Context* context) -> CUresult {
    if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    for (int i = 0; i < 3; ++i) {
      if (shape.grid[i] == 0 || shape.block[i] == 0) return CUDA_ERROR_INVALID_VALUE;
    }
    if (static_cast<uint64_t>(shape.block[0]) * shape.block[1] * shape.block[2] > 1024) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    Charge(driver,
           driver->config.cpu_launch_ns + g_hooks.launch_extra_ns.load(std::memory_order_relaxed));
    t_state.submits_work = true;
    GraphNode node;
    node.type = GraphNode::Type::kKernel;
    node.kernel = reinterpret_cast<Kernel*>(function);
    node.shape = shape;
    node.work = t_state.has_work ? t_state.work : driver->model.DefaultWork(shape);
    t_state.has_work = false;
    node.joint = std::exchange(t_state.joint, nullptr);
    return Submit(driver, ResolveStream(context, stream, per_thread_default), node);
  });
}

CUresult CopyOn(void* dst, const void* src, uint64_t bytes, CopyKind kind, CUstream stream,
                bool async, bool per_thread_default) {
  return WithContext([&](Driver* driver, Context* context) -> CUresult {
    if (bytes == 0) return CUDA_SUCCESS;
    if (dst == nullptr || src == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Charge(driver, driver->config.cpu_copy_ns);
    t_state.submits_work = true;
    Stream* target = ResolveStream(context, stream, per_thread_default);
    GraphNode node;
    node.type = GraphNode::Type::kCopy;
    node.dst = dst;
    node.src = src;
    node.bytes = bytes;
    node.copy_kind = kind;
    node.async = async;
    // A copy out to pageable memory returns when it is done, even an asynchronous one.
    bool waits =
        !async || (kind == CopyKind::kDtoH && KindOf(driver, dst) == MemoryKind::kPageable);
    if (!async && target->capture != nullptr) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    CUresult result = Submit(driver, target, node);
    if (result == CUDA_SUCCESS && waits && target->capture == nullptr) {
      driver->clock.WaitUntil(driver->model.StreamTail(target));
    }
    return result;
  });
}

CopyKind InferKind(Driver* driver, const void* dst, const void* src) {
  bool to = OnDevice(KindOf(driver, dst));
  bool from = OnDevice(KindOf(driver, src));
  if (to) return from ? CopyKind::kDtoD : CopyKind::kHtoD;
  return from ? CopyKind::kDtoH : CopyKind::kHtoH;
}

CUresult MemsetOn(void* dst, uint32_t value, uint32_t value_bytes, uint64_t count, CUstream stream,
                  bool per_thread_default) {
  return WithContext([&](Driver* driver, Context* context) -> CUresult {
    if (count == 0) return CUDA_SUCCESS;
    if (dst == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Charge(driver, driver->config.cpu_memset_ns);
    t_state.submits_work = true;
    GraphNode node;
    node.type = GraphNode::Type::kMemset;
    node.dst = dst;
    node.value = value;
    node.value_bytes = value_bytes;
    node.bytes = count;
    return Submit(driver, ResolveStream(context, stream, per_thread_default), node);
  });
}

CUresult CreateStream(CUstream* out, unsigned int flags, int priority) {
  return WithContext([&](Driver* driver, Context* context) -> CUresult {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Charge(driver, driver->config.cpu_alloc_ns);
    auto* stream = new Stream;
    driver->model.InitStream(stream, context, flags, priority,
                             (flags & CU_STREAM_NON_BLOCKING) != 0 ? Stream::Sync::kNonBlocking
                                                                   : Stream::Sync::kBlocking);
    *out = reinterpret_cast<CUstream>(stream);
    RaiseResource({.cbid = CUPTI_CBID_RESOURCE_STREAM_CREATED,
                   .context = reinterpret_cast<CUcontext>(context),
                   .stream = *out});
    return CUDA_SUCCESS;
  });
}

CUresult ElapsedMs(float* ms, CUevent start, CUevent end) {
  Driver* driver = GetDriver();
  if (driver == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  auto* a = reinterpret_cast<Event*>(start);
  auto* b = reinterpret_cast<Event*>(end);
  if (a == nullptr || b == nullptr || !a->recorded || !b->recorded) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  uint64_t now = driver->clock.NowNs();
  if (a->time.ns > now || b->time.ns > now) return CUDA_ERROR_NOT_READY;
  *ms =
      static_cast<float>(static_cast<double>(static_cast<int64_t>(b->time.ns - a->time.ns)) * 1e-6);
  return CUDA_SUCCESS;
}

bool GraphTraceWanted() {
  return (g_hooks.operations.load(std::memory_order_acquire) >> static_cast<int>(OpKind::kGraph)) &
         1;
}

CUresult Instantiate(CUgraphExec* out, CUgraph graph) {
  Driver* driver = GetDriver();
  if (driver == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (out == nullptr || graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto* source = reinterpret_cast<Graph*>(graph);
  Charge(driver, driver->config.cpu_alloc_ns + 500 * source->nodes.size());
  auto* exec = new GraphExec;
  exec->id = source->id;
  exec->source = graph;
  exec->nodes = source->nodes;
  exec->graph_trace_on = GraphTraceWanted();
  exec->node_kinds_on = g_hooks.operations.load(std::memory_order_acquire) != 0;
  *out = reinterpret_cast<CUgraphExec>(exec);
  RaiseGraph(CUPTI_CBID_RESOURCE_GRAPHEXEC_CREATED, graph, *out);
  return CUDA_SUCCESS;
}

CUresult LaunchGraph(CUgraphExec handle, CUstream stream_handle, bool per_thread_default) {
  return WithContext([&](Driver* driver, Context* context) -> CUresult {
    auto* exec = reinterpret_cast<GraphExec*>(handle);
    if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Charge(driver, driver->config.cpu_graph_launch_ns);
    t_state.submits_work = true;
    Stream* stream = ResolveStream(context, stream_handle, per_thread_default);
    // While graphs are traced as a whole their nodes leave no records.
    const bool whole = GraphTraceWanted();
    if (whole && !exec->graph_trace_on &&
        releases::CrashOnEarlyGraphs(driver->config.cupti_version)) {
      raise(SIGSEGV);
    }
    uint64_t start = std::max(driver->clock.NowNs() + driver->config.launch_latency_ns,
                              driver->model.StreamTail(stream).ns);
    for (const GraphNode& node : exec->nodes) {
      Execute(driver, stream, node, exec->id, !whole, !exec->node_kinds_on);
    }
    if (whole && exec->graph_trace_on) {
      Operation op = NewOperation(*stream);
      op.kind = OpKind::kGraph;
      op.start_ns = start;
      op.end_ns = std::max(start, driver->model.StreamTail(stream).ns);
      op.graph_id = exec->id;
      Report(op);
    }
    return CUDA_SUCCESS;
  });
}

}  // namespace

CUresult Submit(Driver* driver, Stream* stream, const GraphNode& node) {
  if (stream->capture != nullptr) {
    if (stream->capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    stream->capture->nodes.push_back(node);
    stream->capture->nodes.back().id = driver->next_node_id.fetch_add(1);
    return CUDA_SUCCESS;
  }
  Execute(driver, stream, node, 0, true);
  return CUDA_SUCCESS;
}

void Execute(Driver* driver, Stream* stream, const GraphNode& node, uint32_t graph_id,
             bool reported, bool as_kernel) {
  Operation op = NewOperation(*stream);
  op.graph_id = graph_id;
  op.graph_node_id = node.id;
  op.async = node.async;
  switch (node.type) {
    case GraphNode::Type::kKernel:
      if (node.joint != nullptr) {
        JointLaunch launch{stream, node.kernel, node.work, op, 0, 0, reported, graph_id != 0};
        driver->model.BeginJoint(node.shape, &launch);
        node.joint->Reached(launch);
        return;
      }
      driver->model.Launch(stream, node.kernel, node.shape, node.work, &op);
      break;
    case GraphNode::Type::kCopy:
      driver->model.Copy(stream, node.copy_kind, node.dst, node.src, node.bytes, &op);
      if (node.copy_kind == CopyKind::kPtoP) {
        const Context& from = node.src_context != nullptr ? *node.src_context : *stream->context;
        const Context& to = node.dst_context != nullptr ? *node.dst_context : *stream->context;
        op.src_device_id = static_cast<uint32_t>(from.device);
        op.src_context_id = from.id;
        op.dst_device_id = static_cast<uint32_t>(to.device);
        op.dst_context_id = to.id;
      }
      if (g_hooks.operations.load(std::memory_order_relaxed) != 0) {
        op.src_kind = ActivityMemoryKind(KindOf(driver, node.src));
        op.dst_kind = ActivityMemoryKind(KindOf(driver, node.dst));
      }
      break;
    case GraphNode::Type::kMemset:
      driver->model.Memset(stream, node.dst, node.value, node.value_bytes, node.bytes, &op);
      op.dst_kind = kMemoryDevice;
      break;
    case GraphNode::Type::kHost:
      RunHostFunction(driver, stream, node.host, node.host_data);
      return;
    case GraphNode::Type::kEmpty:
      return;
  }
  if (!reported) return;
  if (as_kernel && op.kind != OpKind::kKernel) {
    op.name = op.kind == OpKind::kMemset ? "memset_node" : "memcpy_node";
    op.kind = OpKind::kKernel;
    std::fill_n(op.grid, 3, 1);
    std::fill_n(op.block, 3, 1);
  }
  Report(op);
}

void RunHostFunction(Driver* driver, Stream* stream, void (*fn)(void*), void* data) {
  static std::once_flag once;
  std::call_once(once, [driver] { g_host_functions = new HostFunctions(&driver->clock); });
  g_host_functions.load()->Run(driver->model.StreamTail(stream).ns, fn, data);
}

}  // namespace seqpoint::softgpu

using namespace seqpoint::softgpu;

DRIVER_API(cuStreamCreate, (CUstream * stream, unsigned int flags), (stream, flags),
           { return CreateStream(stream, flags, 0); })

DRIVER_API(cuStreamCreateWithPriority, (CUstream * stream, unsigned int flags, int priority),
           (stream, flags, priority), { return CreateStream(stream, flags, priority); })

DRIVER_API(cuStreamDestroy_v2, (CUstream stream), (stream), {
  return WithContext([&](Driver* driver, Context* context) -> CUresult {
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    RaiseResource({.cbid = CUPTI_CBID_RESOURCE_STREAM_DESTROY_STARTING,
                   .context = reinterpret_cast<CUcontext>(context),
                   .stream = stream});
    auto* s = reinterpret_cast<Stream*>(stream);
    driver->model.DestroyStream(s);
    delete s;
    return CUDA_SUCCESS;
  });
})

STREAM_API(cuStreamSynchronize, (CUstream stream), (stream), {
  return WithContext([&](Driver* driver, Context* context) {
    return WaitForStream(driver, ResolveStream(context, stream, kPerThread));
  });
})

STREAM_API(cuStreamQuery, (CUstream stream), (stream), {
  return WithContext([&](Driver* driver, Context* context) {
    Charge(driver, driver->config.cpu_query_ns);
    uint64_t tail = driver->model.StreamTail(ResolveStream(context, stream, kPerThread)).ns;
    return tail <= driver->clock.NowNs() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  });
})

STREAM_API(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned int flags),
           (stream, event, flags), {
             return WithContext([&](Driver* driver, Context* context) -> CUresult {
               if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
               return StreamWait(driver, ResolveStream(context, stream, kPerThread),
                                 reinterpret_cast<Event*>(event));
             });
           })

STREAM_API(cuStreamGetId, (CUstream stream, unsigned long long* id), (stream, id), {
  return WithContext([&](Driver*, Context* context) {
    *id = ResolveStream(context, stream, kPerThread)->id;
    return CUDA_SUCCESS;
  });
})

STREAM_API(cuStreamGetPriority, (CUstream stream, int* priority), (stream, priority), {
  return WithContext([&](Driver*, Context* context) {
    *priority = ResolveStream(context, stream, kPerThread)->priority;
    return CUDA_SUCCESS;
  });
})

STREAM_API(cuStreamGetFlags, (CUstream stream, unsigned int* flags), (stream, flags), {
  return WithContext([&](Driver*, Context* context) {
    *flags = ResolveStream(context, stream, kPerThread)->flags;
    return CUDA_SUCCESS;
  });
})

DRIVER_API(cuStreamGetCtx, (CUstream stream, CUcontext* out), (stream, out), {
  return WithContext([&](Driver*, Context* context) {
    *out = reinterpret_cast<CUcontext>(ResolveStream(context, stream)->context);
    return CUDA_SUCCESS;
  });
})

STREAM_API(cuStreamIsCapturing, (CUstream stream, CUstreamCaptureStatus* status), (stream, status),
           {
             return WithContext([&](Driver*, Context* context) {
               const Graph* graph = ResolveStream(context, stream, kPerThread)->capture;
               *status = graph == nullptr     ? CU_STREAM_CAPTURE_STATUS_NONE
                         : graph->invalidated ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                              : CU_STREAM_CAPTURE_STATUS_ACTIVE;
               return CUDA_SUCCESS;
             });
           })

DRIVER_API(cuEventCreate, (CUevent * event, unsigned int flags), (event, flags), {
  return WithContext([&](Driver* driver, Context*) -> CUresult {
    if (event == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Charge(driver, driver->config.cpu_event_ns);
    auto* e = new Event;
    e->id = driver->next_event_id.fetch_add(1);
    e->flags = flags;
    *event = reinterpret_cast<CUevent>(e);
    return CUDA_SUCCESS;
  });
})

DRIVER_API(cuEventDestroy_v2, (CUevent event), (event), {
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  delete reinterpret_cast<Event*>(event);
  return CUDA_SUCCESS;
})

STREAM_API(cuEventRecord, (CUevent event, CUstream stream), (event, stream), {
  return WithContext([&](Driver* driver, Context* context) {
    return RecordEvent(driver, ResolveStream(context, stream, kPerThread),
                       reinterpret_cast<Event*>(event));
  });
})

STREAM_API(cuEventRecordWithFlags, (CUevent event, CUstream stream, unsigned int flags),
           (event, stream, flags), {
             return WithContext([&](Driver* driver, Context* context) {
               return RecordEvent(driver, ResolveStream(context, stream, kPerThread),
                                  reinterpret_cast<Event*>(event));
             });
           })

DRIVER_API(cuEventSynchronize, (CUevent event), (event), {
  if (GetDriver() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return WaitForEvent(GetDriver(), reinterpret_cast<Event*>(event));
})

DRIVER_API(cuEventQuery, (CUevent event), (event), {
  Driver* driver = GetDriver();
  if (driver == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Charge(driver, driver->config.cpu_query_ns);
  auto* e = reinterpret_cast<Event*>(event);
  return !e->recorded || e->time.ns <= driver->clock.NowNs() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
})

DRIVER_API(cuEventElapsedTime, (float* ms, CUevent start, CUevent end), (ms, start, end),
           { return ElapsedMs(ms, start, end); })

DRIVER_API(cuEventElapsedTime_v2, (float* ms, CUevent start, CUevent end), (ms, start, end),
           { return ElapsedMs(ms, start, end); })

extern "C" CUresult CUDAAPI cuCtxSynchronize() {
  return RunDriverApi(CUPTI_DRIVER_TRACE_CBID_cuCtxSynchronize, "cuCtxSynchronize", 0, nullptr,
                      [] { return WithContext(WaitForContext); });
}

LAUNCH_API(cuLaunchKernel,
           (CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
            unsigned int by, unsigned int bz, unsigned int shared_bytes, CUstream stream,
            void** args, void** extra),
           (f, gx, gy, gz, bx, by, bz, shared_bytes, stream, args, extra), {
             return LaunchOn(f, {{gx, gy, gz}, {bx, by, bz}, shared_bytes}, stream, kPerThread);
           })

LAUNCH_API(cuLaunchCooperativeKernel,
           (CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
            unsigned int by, unsigned int bz, unsigned int shared_bytes, CUstream stream,
            void** args),
           (f, gx, gy, gz, bx, by, bz, shared_bytes, stream, args), {
             return LaunchOn(f, {{gx, gy, gz}, {bx, by, bz}, shared_bytes}, stream, kPerThread);
           })

LAUNCH_API(cuLaunchKernelEx,
           (const CUlaunchConfig* config, CUfunction f, void** args, void** extra),
           (config, f, args, extra), {
             if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
             return LaunchOn(f,
                             {{config->gridDimX, config->gridDimY, config->gridDimZ},
                              {config->blockDimX, config->blockDimY, config->blockDimZ},
                              config->sharedMemBytes},
                             config->hStream, kPerThread);
           })

STREAM_API(cuLaunchHostFunc, (CUstream stream, CUhostFn fn, void* data), (stream, fn, data), {
  return WithContext([&](Driver* driver, Context* context) -> CUresult {
    if (fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Charge(driver, driver->config.cpu_launch_ns);
    GraphNode node;
    node.type = GraphNode::Type::kHost;
    node.host = fn;
    node.host_data = data;
    return Submit(driver, ResolveStream(context, stream, kPerThread), node);
  });
})

#define DEVICE(p) reinterpret_cast<void*>(p)

DRIVER_API(cuMemcpyHtoD_v2, (CUdeviceptr dst, const void* src, size_t bytes), (dst, src, bytes),
           { return CopyOn(DEVICE(dst), src, bytes, CopyKind::kHtoD, nullptr, false, false); })

DRIVER_API(cuMemcpyDtoH_v2, (void* dst, CUdeviceptr src, size_t bytes), (dst, src, bytes),
           { return CopyOn(dst, DEVICE(src), bytes, CopyKind::kDtoH, nullptr, false, false); })

DRIVER_API(cuMemcpyDtoD_v2, (CUdeviceptr dst, CUdeviceptr src, size_t bytes), (dst, src, bytes), {
  return CopyOn(DEVICE(dst), DEVICE(src), bytes, CopyKind::kDtoD, nullptr, true, false);
})

STREAM_API(cuMemcpyHtoDAsync_v2, (CUdeviceptr dst, const void* src, size_t bytes, CUstream stream),
           (dst, src, bytes, stream),
           { return CopyOn(DEVICE(dst), src, bytes, CopyKind::kHtoD, stream, true, kPerThread); })

STREAM_API(cuMemcpyDtoHAsync_v2, (void* dst, CUdeviceptr src, size_t bytes, CUstream stream),
           (dst, src, bytes, stream),
           { return CopyOn(dst, DEVICE(src), bytes, CopyKind::kDtoH, stream, true, kPerThread); })

STREAM_API(cuMemcpyDtoDAsync_v2, (CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream),
           (dst, src, bytes, stream), {
             return CopyOn(DEVICE(dst), DEVICE(src), bytes, CopyKind::kDtoD, stream, true,
                           kPerThread);
           })

DRIVER_API(cuMemcpy, (CUdeviceptr dst, CUdeviceptr src, size_t bytes), (dst, src, bytes), {
  if (GetDriver() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  return CopyOn(DEVICE(dst), DEVICE(src), bytes, InferKind(GetDriver(), DEVICE(dst), DEVICE(src)),
                nullptr, false, false);
})

STREAM_API(cuMemcpyAsync, (CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream),
           (dst, src, bytes, stream), {
             if (GetDriver() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
             return CopyOn(DEVICE(dst), DEVICE(src), bytes,
                           InferKind(GetDriver(), DEVICE(dst), DEVICE(src)), stream, true,
                           kPerThread);
           })

STREAM_API(cuMemcpyPeerAsync,
           (CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src, CUcontext src_context,
            size_t bytes, CUstream stream),
           (dst, dst_context, src, src_context, bytes, stream), {
             return WithContext([&](Driver* driver, Context* context) -> CUresult {
               if (dst == 0 || src == 0) return CUDA_ERROR_INVALID_VALUE;
               Charge(driver, driver->config.cpu_copy_ns);
               t_state.submits_work = true;
               GraphNode node;
               node.type = GraphNode::Type::kCopy;
               node.dst = DEVICE(dst);
               node.src = DEVICE(src);
               node.bytes = bytes;
               node.copy_kind = CopyKind::kPtoP;
               node.src_context = reinterpret_cast<Context*>(src_context);
               node.dst_context = reinterpret_cast<Context*>(dst_context);
               return Submit(driver, ResolveStream(context, stream, kPerThread), node);
             });
           })

DRIVER_API(cuMemsetD8_v2, (CUdeviceptr dst, unsigned char value, size_t count), (dst, value, count),
           { return MemsetOn(DEVICE(dst), value, 1, count, nullptr, false); })

DRIVER_API(cuMemsetD32_v2, (CUdeviceptr dst, unsigned int value, size_t count), (dst, value, count),
           { return MemsetOn(DEVICE(dst), value, 4, count, nullptr, false); })

STREAM_API(cuMemsetD8Async, (CUdeviceptr dst, unsigned char value, size_t count, CUstream stream),
           (dst, value, count, stream),
           { return MemsetOn(DEVICE(dst), value, 1, count, stream, kPerThread); })

STREAM_API(cuMemsetD32Async, (CUdeviceptr dst, unsigned int value, size_t count, CUstream stream),
           (dst, value, count, stream),
           { return MemsetOn(DEVICE(dst), value, 4, count, stream, kPerThread); })

STREAM_API(cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode mode), (stream, mode), {
  return WithContext([&](Driver* driver, Context* context) -> CUresult {
    Stream* s = ResolveStream(context, stream, kPerThread);
    if (s->sync == Stream::Sync::kLegacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (s->capture != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
    auto* graph = new Graph;
    graph->id = driver->next_graph_id.fetch_add(1);
    graph->origin = s;
    graph->capture_mode = mode;
    graph->capture_thread = &t_state;
    s->capture = graph;
    {
      std::lock_guard lock(driver->mutex);
      driver->captures.insert(graph);
    }
    RaiseGraph(CUPTI_CBID_RESOURCE_GRAPH_CREATED, reinterpret_cast<CUgraph>(graph), nullptr);
    return CUDA_SUCCESS;
  });
})

STREAM_API(cuStreamEndCapture, (CUstream stream, CUgraph* out), (stream, out), {
  return WithContext([&](Driver* driver, Context* context) -> CUresult {
    Stream* s = ResolveStream(context, stream, kPerThread);
    Graph* graph = s->capture;
    if (graph == nullptr || graph->origin != s) return CUDA_ERROR_ILLEGAL_STATE;
    std::scoped_lock lock(driver->mutex, driver->model.mutex());
    driver->captures.erase(graph);
    for (Stream* other : context->streams) {
      if (other->capture == graph) other->capture = nullptr;
    }
    // The graph stays: an event that was recorded in the capture may still name it.
    *out = graph->invalidated ? nullptr : reinterpret_cast<CUgraph>(graph);
    return graph->invalidated ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
  });
})

DRIVER_API(cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode * mode), (mode), {
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::swap(*mode, t_state.capture_mode);
  return CUDA_SUCCESS;
})

DRIVER_API(cuGraphCreate, (CUgraph * out, unsigned int flags), (out, flags), {
  Driver* driver = GetDriver();
  if (driver == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  auto* graph = new Graph;
  graph->id = driver->next_graph_id.fetch_add(1);
  *out = reinterpret_cast<CUgraph>(graph);
  RaiseGraph(CUPTI_CBID_RESOURCE_GRAPH_CREATED, *out, nullptr);
  return CUDA_SUCCESS;
})

DRIVER_API(cuGraphDestroy, (CUgraph graph), (graph), {
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  RaiseGraph(CUPTI_CBID_RESOURCE_GRAPH_DESTROY_STARTING, graph, nullptr);
  delete reinterpret_cast<Graph*>(graph);
  return CUDA_SUCCESS;
})

DRIVER_API(cuGraphInstantiateWithFlags,
           (CUgraphExec * out, CUgraph graph, unsigned long long flags), (out, graph, flags),
           { return Instantiate(out, graph); })

DRIVER_API(cuGraphExecDestroy, (CUgraphExec exec), (exec), {
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto* e = reinterpret_cast<GraphExec*>(exec);
  RaiseGraph(CUPTI_CBID_RESOURCE_GRAPHEXEC_DESTROY_STARTING, e->source, exec);
  delete e;
  return CUDA_SUCCESS;
})

DRIVER_API(cuGraphGetNodes, (CUgraph graph, CUgraphNode* nodes, size_t* count),
           (graph, nodes, count), {
             if (graph == nullptr || count == nullptr) return CUDA_ERROR_INVALID_VALUE;
             auto* g = reinterpret_cast<Graph*>(graph);
             for (size_t i = 0; nodes != nullptr && i < *count; ++i) {
               nodes[i] =
                   i < g->nodes.size() ? reinterpret_cast<CUgraphNode>(g->nodes[i].id) : nullptr;
             }
             *count = g->nodes.size();
             return CUDA_SUCCESS;
           })

DRIVER_API(cuGraphUpload, (CUgraphExec exec, CUstream stream), (exec, stream),
           { return CUDA_SUCCESS; })

STREAM_API(cuGraphLaunch, (CUgraphExec exec, CUstream stream), (exec, stream),
           { return LaunchGraph(exec, stream, kPerThread); })
