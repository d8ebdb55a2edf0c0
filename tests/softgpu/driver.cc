#include "tests/softgpu/driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "tests/softgpu/swgpu.h"

namespace seqpoint::softgpu {

thread_local constinit ThreadState t_state __attribute__((tls_model("initial-exec"))){};
Hooks g_hooks;
std::atomic<Driver*> g_driver{nullptr};

namespace {

pid_t g_owner = 0;

void Begin(ApiCall* call) {
  Driver* driver = GetDriver();
  call->parent = t_state.call;
  t_state.call = call;
  call->interest = g_hooks.Wanted(call->domain, call->cbid).load(std::memory_order_relaxed);
  if (call->parent != nullptr && !t_state.in_callback) {
    call->correlation_id = call->parent->correlation_id;
  } else if (driver != nullptr) {
    do {  // 0 means "no id", also after the ids wrapped
      call->correlation_id = driver->next_correlation_id.fetch_add(1, std::memory_order_relaxed);
    } while (call->correlation_id == 0);
  }
  if (call->interest == 0) return;
  call->context = reinterpret_cast<CUcontext>(t_state.current);
  call->context_id = t_state.current == nullptr ? 0 : t_state.current->id;
  bool outer = t_state.in_callback;
  t_state.in_callback = true;
  g_hooks.enter(call);
  t_state.in_callback = outer;
}

void End(ApiCall* call) {
  // Who becomes interested while the call is under way sees its end alone. What correlationData
  // holds then is not promised.
  if ((call->interest & kInterestCallback) == 0) {
    call->interest |= g_hooks.Wanted(call->domain, call->cbid).load() & kInterestCallback;
    call->correlation_data = 1;
  }
  if (call->interest != 0) {
    call->context = reinterpret_cast<CUcontext>(t_state.current);
    call->context_id = t_state.current == nullptr ? 0 : t_state.current->id;
    bool outer = t_state.in_callback;
    t_state.in_callback = true;
    g_hooks.exit(call);
    t_state.in_callback = outer;
  }
  t_state.call = call->parent;
}

uint64_t NowNs() {
  Driver* driver = GetDriver();
  return driver == nullptr ? 0 : driver->clock.NowNs();
}

void WriteTruth() {
  Driver* driver = GetDriver();
  if (driver == nullptr || getpid() != g_owner || driver->config.truth_file.empty()) return;
  FILE* file = fopen(driver->config.truth_file.c_str(), "w");
  if (file == nullptr) {
    fprintf(stderr, "softgpu: cannot write SWGPU_TRUTH=%s\n", driver->config.truth_file.c_str());
    return;
  }
  auto write = [file](const Counters& c) {
    fprintf(file,
            "{\"launches\": %llu, \"time_ns\": %.0f, \"dram_read_bytes\": %.17g, "
            "\"dram_write_bytes\": %.17g, \"instructions\": %.17g, \"tensor_cycles\": %.17g, "
            "\"sm_active_cycles\": %.17g}",
            static_cast<unsigned long long>(c.launches), c.time_ns, c.dram_read_bytes,
            c.dram_write_bytes, c.instructions, c.tensor_cycles, c.sm_active_cycles);
  };
  std::map<std::string, Counters> kernels;
  {
    std::scoped_lock lock(driver->mutex, driver->model.mutex());
    for (const auto& module : driver->modules) {
      for (const auto& [name, kernel] : module->kernels) {
        if (kernel->truth.launches > 0) kernels[name].Add(kernel->truth);
      }
    }
  }
  fputs("{\"kernels\": {", file);
  const char* separator = "\n  ";
  for (const auto& [name, counters] : kernels) {
    fprintf(file, "%s\"", separator);
    for (char c : name) fprintf(file, c == '"' || c == '\\' ? "\\%c" : "%c", c);
    fputs("\": ", file);
    write(counters);
    separator = ",\n  ";
  }
  fputs("},\n \"totals\": ", file);
  write(driver->model.Totals());
  if (auto* write_nccl = g_hooks.write_nccl_truth.load()) write_nccl(file);
  fprintf(file, ",\n \"digest\": \"%016llx\"}\n",
          static_cast<unsigned long long>(driver->model.Digest()));
  fclose(file);
}

void LoadInjection() {
  const char* path = getenv("CUDA_INJECTION64_PATH");
  if (path == nullptr || *path == '\0') return;
  // Like the real driver: a library that does not load, or lacks the entry, is passed over.
  void* handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return;
  auto* entry = reinterpret_cast<int (*)()>(dlsym(handle, "InitializeInjection"));
  if (entry != nullptr) entry();
}

CUresult Initialize() {
  static std::mutex mutex;
  static bool injecting = false;
  std::unique_lock lock(mutex);
  if (g_owner != 0 && getpid() != g_owner) return CUDA_ERROR_NOT_INITIALIZED;
  if (GetDriver() == nullptr) {
    g_owner = getpid();
    g_driver.store(new Driver, std::memory_order_release);
    // After a fork the GPU belongs to the parent alone.
    pthread_atfork(nullptr, nullptr, [] { g_driver.store(nullptr); });
    atexit(WriteTruth);
  }
  if (!injecting) {
    injecting = true;
    lock.unlock();
    LoadInjection();
    if (g_hooks.resources.load(std::memory_order_relaxed))
      RaiseResource({.cbid = CUPTI_CBID_RESOURCE_CU_INIT_FINISHED});
  }
  return CUDA_SUCCESS;
}

}  // namespace

Driver::Driver()
    : config(ProcessConfig()),
      clock(config.virtual_clock(), config.speed_cap),
      model(config, &clock),
      cpu_noise(LogNormalFactors(config.noise_cpu)),
      primaries(config.gpu_count, nullptr),
      allocated_bytes(config.gpu_count, 0),
      next_correlation_id(static_cast<uint32_t>(config.cupti_first_correlation_id)) {}

void Charge(Driver* driver, uint64_t ns) {
  if (!driver->clock.is_virtual()) return;
  uint64_t& random = t_state.random;
  random = random * 6364136223846793005 + (driver->config.seed | 1);
  double factor = driver->cpu_noise[(random >> 40) % driver->cpu_noise.size()];
  factor *= driver->host_slowness.load(std::memory_order_relaxed);
  driver->clock.Spend(static_cast<uint64_t>(static_cast<double>(ns) * factor));
}

CUresult RequireContext(Driver** driver, Context** context) {
  *driver = GetDriver();
  if (*driver == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  *context = t_state.current;
  return *context == nullptr ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

Stream* ResolveStream(Context* context, CUstream stream, bool per_thread_default) {
  if (stream == nullptr) return per_thread_default ? &context->per_thread : &context->legacy;
  if (stream == CU_STREAM_LEGACY) return &context->legacy;
  if (stream == CU_STREAM_PER_THREAD) return &context->per_thread;
  return reinterpret_cast<Stream*>(stream);
}

bool InvalidateCaptures(Driver* driver, const Context* context) {
  std::lock_guard lock(driver->mutex);
  bool any = false;
  for (Graph* graph : driver->captures) {
    if (graph->origin->context != context) continue;
    graph->invalidated = true;
    any = true;
  }
  return any;
}

bool InvalidateUnsafeCaptures(Driver* driver) {
  if (t_state.capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return false;
  std::lock_guard lock(driver->mutex);
  bool any = false;
  for (Graph* graph : driver->captures) {
    const bool own = graph->capture_thread == &t_state;
    const bool guarded = own ? graph->capture_mode != CU_STREAM_CAPTURE_MODE_RELAXED
                             : graph->capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                                   t_state.capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (!guarded) continue;
    graph->invalidated = true;
    any = true;
  }
  return any;
}

MemoryKind KindOf(Driver* driver, const void* pointer) {
  std::lock_guard lock(driver->mutex);
  auto address = reinterpret_cast<uintptr_t>(pointer);
  auto it = driver->allocations.upper_bound(address);
  if (it == driver->allocations.begin()) return MemoryKind::kPageable;
  --it;
  return address < it->first + it->second.bytes ? it->second.kind : MemoryKind::kPageable;
}

Operation NewOperation(const Stream& stream) {
  Operation op{};
  op.device_id = static_cast<uint32_t>(stream.context->device);
  op.context_id = stream.context->id;
  op.stream_id = stream.id;
  op.correlation_id = t_state.call == nullptr ? 0 : t_state.call->correlation_id;
  return op;
}

void Report(const Operation& op) {
  uint32_t wanted = g_hooks.operations.load(std::memory_order_acquire);
  if ((wanted >> static_cast<uint32_t>(op.kind)) & 1) g_hooks.operation(op);
}

void ReportSync(Driver* driver, Context* context, uint32_t stream_id, CUstream stream, uint8_t type,
                uint32_t event_id, uint64_t start_ns) {
  Operation op{};
  op.kind = OpKind::kSync;
  op.start_ns = start_ns;
  op.end_ns = driver->clock.NowNs();
  op.device_id = static_cast<uint32_t>(context->device);
  op.context_id = context->id;
  op.stream_id = stream_id;
  op.correlation_id = t_state.call == nullptr ? 0 : t_state.call->correlation_id;
  op.sync_type = type;
  op.event_id = event_id;
  op.context = reinterpret_cast<CUcontext>(context);
  op.stream = stream;
  Report(op);
}

void RaiseResource(const ResourceEvent& event) {
  if (!g_hooks.resources.load(std::memory_order_acquire)) return;
  bool outer = t_state.in_callback;
  t_state.in_callback = true;
  g_hooks.resource(event);
  t_state.in_callback = outer;
}

void RaiseGraph(uint32_t cbid, CUgraph graph, CUgraphExec exec) {
  RaiseResource({.cbid = cbid,
                 .context = reinterpret_cast<CUcontext>(t_state.current),
                 .graph = graph,
                 .graph_exec = exec});
}

}  // namespace seqpoint::softgpu

using namespace seqpoint::softgpu;

extern "C" Hooks* swgpu_get_hooks() {
  static Hooks* hooks = [] {
    g_hooks.config = &ProcessConfig();
    g_hooks.begin = Begin;
    g_hooks.end = End;
    g_hooks.now_ns = NowNs;
    g_hooks.charge_ns = [](uint64_t ns) {
      if (Driver* driver = GetDriver()) Charge(driver, ns);
    };
    g_hooks.overhead_ns = [](uint64_t ns) {
      Driver* driver = GetDriver();
      if (driver != nullptr && t_state.submits_work) driver->clock.Spend(ns);
    };
    g_hooks.context_id = [](CUcontext context) {
      return context == nullptr ? 0u : reinterpret_cast<Context*>(context)->id;
    };
    g_hooks.stream_id = [](CUcontext context, CUstream stream) {
      auto* c = context == nullptr ? t_state.current : reinterpret_cast<Context*>(context);
      return c == nullptr ? 0u : ResolveStream(c, stream)->id;
    };
    g_hooks.context_device = [](CUcontext context) {
      auto* c = context == nullptr ? t_state.current : reinterpret_cast<Context*>(context);
      return c == nullptr ? -1 : c->device;
    };
    g_hooks.current_context = [] { return reinterpret_cast<CUcontext>(t_state.current); };
    g_hooks.drain = [](CUcontext context) {
      Driver* driver = GetDriver();
      auto* c = context == nullptr ? t_state.current : reinterpret_cast<Context*>(context);
      if (driver != nullptr && c != nullptr) {
        driver->clock.WaitUntil(driver->model.ContextTail(c));
      }
    };
    g_hooks.synchronize_context = [](CUcontext context) {
      Driver* driver = GetDriver();
      auto* c = context == nullptr ? t_state.current : reinterpret_cast<Context*>(context);
      if (driver == nullptr || c == nullptr) return false;
      if (InvalidateCaptures(driver, c)) return false;
      driver->clock.WaitUntil(driver->model.ContextTail(c));
      return true;
    };
    g_hooks.allocate = [] {
      Driver* driver = GetDriver();
      return driver != nullptr && !InvalidateUnsafeCaptures(driver);
    };
    g_hooks.counters = [](CUcontext context) {
      Driver* driver = GetDriver();
      auto* c = context == nullptr ? t_state.current : reinterpret_cast<Context*>(context);
      return driver == nullptr || c == nullptr ? Counters{} : driver->model.ContextCounters(c);
    };
    g_hooks.sample_kernels = [](CUcontext context, std::vector<KernelSample>* samples,
                                uint32_t passes) {
      Driver* driver = GetDriver();
      auto* c = context == nullptr ? t_state.current : reinterpret_cast<Context*>(context);
      if (driver != nullptr && c != nullptr) driver->model.SampleKernels(c, samples, passes);
    };
    g_hooks.watch_device = [](int device, bool on) {
      if (Driver* driver = GetDriver()) driver->model.WatchDevice(device, on);
    };
    g_hooks.slow_device = [](int device, double factor) {
      if (Driver* driver = GetDriver()) driver->model.SlowDevice(device, factor);
    };
    g_hooks.take_kernels = [](int device) {
      Driver* driver = GetDriver();
      return driver == nullptr ? std::vector<KernelSample>() : driver->model.TakeKernels(device);
    };
    g_hooks.next_launch_is_joint = [](JointKernel* kernel) { t_state.joint = kernel; };
    g_hooks.end_joint = [](const JointLaunch& begun, uint64_t end_ns, uint64_t transfer_ns) {
      Driver* driver = GetDriver();
      if (driver == nullptr) return;
      JointLaunch launch = begun;
      driver->model.EndJoint(end_ns, transfer_ns, &launch);
      if (launch.reported) Report(launch.op);
    };
    g_hooks.meet_clocks = [](uint64_t time_ns) {
      if (Driver* driver = GetDriver()) driver->model.MeetClocks(time_ns);
    };
    g_hooks.wait_until = [](uint64_t time_ns) {
      if (Driver* driver = GetDriver()) driver->clock.WaitUntil(time_ns);
    };
    g_hooks.for_each_context = [](void (*visit)(CUcontext, uint32_t, int, void*), void* data) {
      Driver* driver = GetDriver();
      if (driver == nullptr) return;
      std::lock_guard lock(driver->mutex);
      for (Context* c : driver->contexts) {
        visit(reinterpret_cast<CUcontext>(c), c->id, c->device, data);
      }
    };
    return &g_hooks;
  }();
  return hooks;
}

extern "C" CUresult CUDAAPI cuInit(unsigned int flags) {
  swgpu_get_hooks();
  if (CUresult result = Initialize(); result != CUDA_SUCCESS) return result;
  const cuInit_params params{flags};
  return RunDriverApi(CUPTI_DRIVER_TRACE_CBID_cuInit, "cuInit", params, nullptr,
                      [&] { return flags == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; });
}

extern "C" {

void swgpu_next_launch_work(const SwgpuWork* work) {
  t_state.work = *work;
  t_state.has_work = true;
}

void swgpu_host_work(uint64_t ns) {
  Driver* driver = GetDriver();
  if (driver == nullptr) return;
  if (driver->clock.is_virtual()) {
    Charge(driver, ns);
  } else {
    driver->clock.Work(ns);
  }
}

uint64_t swgpu_now_ns() { return NowNs(); }

void swgpu_totals(SwgpuTotals* totals) {
  Driver* driver = GetDriver();
  Counters c = driver == nullptr ? Counters{} : driver->model.Totals();
  *totals = {c.launches,     c.time_ns,       c.dram_read_bytes, c.dram_write_bytes,
             c.instructions, c.tensor_cycles, c.sm_active_cycles};
}

void swgpu_slow_kernels(const char* part, double factor) {
  if (Driver* driver = GetDriver()) driver->model.SlowKernels(part, factor);
}

void swgpu_slow_host(double factor) {
  if (Driver* driver = GetDriver()) driver->host_slowness = factor;
}

int swgpu_event_times(const void* event, uint64_t* ns, uint64_t* alone_ns) {
  const auto* e = static_cast<const Event*>(event);
  if (e == nullptr || !e->recorded) return 0;
  *ns = e->time.ns;
  *alone_ns = e->time.alone_ns;
  return 1;
}

uint64_t swgpu_digest() {
  Driver* driver = GetDriver();
  return driver == nullptr ? 0 : driver->model.Digest();
}

}  // extern "C"
