// A profiler as small as can be, for CUDA_INJECTION64_PATH: counts what it sees and prints it at
// exit to the file TEST_TOOL_OUT.

#include <cupti.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>

namespace {

struct Tool {
  std::mutex mutex;
  std::map<std::string, int> calls;    // name and site
  std::map<std::string, int> kernels;  // name
  std::map<uint32_t, int> launch_ids;  // seen in callbacks
  int nested_with_other_id = 0;
  int unknown_ids = 0;
  int graph_nodes = 0;
  uint32_t runtime_id = 0;
};

Tool& TheTool() {
  static auto* tool = new Tool;
  return *tool;
}

void CUPTIAPI OnCallback(void*, CUpti_CallbackDomain domain, CUpti_CallbackId, const void* data) {
  auto* call = static_cast<const CUpti_CallbackData*>(data);
  Tool& tool = TheTool();
  std::lock_guard lock(tool.mutex);
  bool enter = call->callbackSite == CUPTI_API_ENTER;
  ++tool.calls[std::string(call->functionName) + (enter ? " enter" : " exit")];
  if (domain == CUPTI_CB_DOMAIN_RUNTIME_API) {
    tool.runtime_id = enter ? call->correlationId : 0;
  } else if (tool.runtime_id != call->correlationId) {
    ++tool.nested_with_other_id;
  }
  if (enter) ++tool.launch_ids[call->correlationId];
}

void CUPTIAPI OnRequest(uint8_t** buffer, size_t* bytes, size_t* max_records) {
  *bytes = 1 << 16;
  *max_records = 0;
  *buffer = static_cast<uint8_t*>(aligned_alloc(8, *bytes));
}

void CUPTIAPI OnComplete(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  Tool& tool = TheTool();
  std::lock_guard lock(tool.mutex);
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
    if (record->kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) continue;
    auto* kernel = reinterpret_cast<CUpti_ActivityKernel10*>(record);
    ++tool.kernels[kernel->name];
    tool.graph_nodes += kernel->graphNodeId != 0;
    tool.unknown_ids += tool.launch_ids.count(kernel->correlationId) == 0;
  }
  free(buffer);
}

void Report() {
  cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  Tool& tool = TheTool();
  std::lock_guard lock(tool.mutex);
  FILE* out = fopen(getenv("TEST_TOOL_OUT"), "w");
  if (out == nullptr) return;
  for (const auto& [name, count] : tool.calls) fprintf(out, "call %s %d\n", name.c_str(), count);
  for (const auto& [name, count] : tool.kernels) {
    fprintf(out, "kernel %s %d\n", name.c_str(), count);
  }
  fprintf(out, "nested with other id %d\nunknown ids %d\ngraph nodes %d\n",
          tool.nested_with_other_id, tool.unknown_ids, tool.graph_nodes);
  fclose(out);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
  CUpti_SubscriberHandle handle;
  if (cuptiSubscribe(&handle, OnCallback, nullptr) != CUPTI_SUCCESS) return 0;
  cuptiEnableCallback(1, handle, CUPTI_CB_DOMAIN_RUNTIME_API,
                      CUPTI_RUNTIME_TRACE_CBID___cudaLaunchKernel_v13000);
  cuptiEnableCallback(1, handle, CUPTI_CB_DOMAIN_RUNTIME_API,
                      CUPTI_RUNTIME_TRACE_CBID_cudaGraphLaunch_v10000);
  cuptiEnableCallback(1, handle, CUPTI_CB_DOMAIN_DRIVER_API,
                      CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel);
  cuptiEnableCallback(1, handle, CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch);
  cuptiActivityRegisterCallbacks(OnRequest, OnComplete);
  cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  atexit(Report);
  return 1;
}
