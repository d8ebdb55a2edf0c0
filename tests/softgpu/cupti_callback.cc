// Callback API of the software libcupti: subscription, domains, API and resource callbacks.

#include <dlfcn.h>
#include <pthread.h>
#include <time.h>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <iterator>

#include "tests/softgpu/cupti_state.h"
#include "tests/softgpu/releases.h"

namespace seqpoint::softgpu {
namespace {

struct CallbackName {
  uint32_t cbid;
  const char* name;
};

constexpr CallbackName kDriverNames[] = {
#include "driver_names.inc"
};
constexpr CallbackName kRuntimeNames[] = {
#include "runtime_names.inc"
};

void CallSubscriber(CuptiState* state, CUpti_CallbackDomain domain, uint32_t cbid,
                    const void* data) {
  Subscriber* subscriber = state->subscriber.load(std::memory_order_acquire);
  if (subscriber != nullptr) subscriber->callback(subscriber->user, domain, cbid, data);
}

void RaiseFatalError(CuptiState* state) {
  if (state->failed.exchange(true)) return;
  if (state->state[CUPTI_CBID_STATE_FATAL_ERROR]) {
    CUpti_StateData data{};
    data.notification.result = CUPTI_ERROR_HARDWARE;
    data.notification.message = "software GPU: fatal error asked for by cupti.fatal_after";
    CallSubscriber(state, CUPTI_CB_DOMAIN_STATE, CUPTI_CBID_STATE_FATAL_ERROR, &data);
  }
  std::lock_guard lock(state->mutex);
  state->subscriber = nullptr;
  DisableAllActivity(state);
  for (uint32_t id = 0; id < kMaxCallbackId; ++id) {
    state->hooks->driver[id] = 0;
    state->hooks->runtime[id] = 0;
  }
  UpdateInterest(state);
}

void CallApi(CuptiState* state, ApiCall* call, CUpti_ApiCallbackSite site) {
  CUpti_CallbackData data{};
  data.callbackSite = site;
  data.functionName = call->name;
  data.functionParams = call->params;
  data.functionReturnValue = const_cast<void*>(call->return_value);
  data.symbolName = call->symbol;
  data.context = call->context;
  data.contextUid = call->context_id;
  data.correlationData = &call->correlation_data;
  data.correlationId = call->correlation_id;
  CallSubscriber(state, static_cast<CUpti_CallbackDomain>(call->domain), call->cbid, &data);
  state->hooks->overhead_ns(state->config->cupti_callback_ns);
}

void OnEnter(ApiCall* call) {
  CuptiState* state = GetState();
  if (state->config->cupti_fatal_after > 0 &&
      state->api_calls.fetch_add(1) + 1 == state->config->cupti_fatal_after) {
    RaiseFatalError(state);
  }
  if ((call->interest & kInterestCallback) != 0) CallApi(state, call, CUPTI_API_ENTER);
  if ((call->interest & kInterestRecord) != 0) call->start_ns = state->NowNs();
}

void OnExit(ApiCall* call) {
  CuptiState* state = GetState();
  if ((call->interest & kInterestRecord) != 0) {
    uint32_t result = 0;
    memcpy(&result, call->return_value, sizeof(result));
    RecordApiCall(state, *call, state->NowNs(), result);
  }
  if ((call->interest & kInterestCallback) != 0) CallApi(state, call, CUPTI_API_EXIT);
}

void OnResource(const ResourceEvent& event) {
  CuptiState* state = GetState();
  if (!state->resource[event.cbid]) return;
  CUpti_ModuleResourceData module{};
  module.moduleId = event.module_id;
  module.pCubin = static_cast<const char*>(event.image);
  CUpti_GraphData graph{};
  graph.graph = event.graph;
  graph.graphExec = event.graph_exec;
  CUpti_ResourceData data{};
  data.context = event.context;
  data.resourceHandle.stream = event.stream;
  if (event.cbid == CUPTI_CBID_RESOURCE_MODULE_LOADED) data.resourceDescriptor = &module;
  if (event.cbid >= CUPTI_CBID_RESOURCE_GRAPH_CREATED) data.resourceDescriptor = &graph;
  CallSubscriber(state, CUPTI_CB_DOMAIN_RESOURCE, event.cbid, &data);
}

void OnOperation(const Operation& op) {
  CuptiState* state = GetState();
  RecordOperation(op);
  if (op.kind != OpKind::kSync) return;
  uint32_t cbid = 0;
  if (op.sync_type == CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE) {
    cbid = CUPTI_CBID_SYNCHRONIZE_STREAM_SYNCHRONIZED;
  } else if (op.sync_type == CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE) {
    cbid = CUPTI_CBID_SYNCHRONIZE_CONTEXT_SYNCHRONIZED;
  }
  if (cbid == 0 || !state->synchronize[cbid]) return;
  CUpti_SynchronizeData data{op.context, op.stream};
  CallSubscriber(state, CUPTI_CB_DOMAIN_SYNCHRONIZE, cbid, &data);
}

// CUPTI's own clock on WSL (cupti_activity.h, cuptiActivityRegisterTimestampCallback).
uint64_t RawNs() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC_RAW, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(t.tv_nsec);
}

CuptiState* Attach() {
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (driver == nullptr) return nullptr;
  auto* get = reinterpret_cast<Hooks* (*)()>(dlsym(driver, "swgpu_get_hooks"));
  if (get == nullptr) return nullptr;
  auto* state = new CuptiState;
  state->hooks = get();
  state->config = state->hooks->config;
  if (state->config->cupti_raw_clock) {
    state->timestamp_anchor = RawNs();
    state->timestamp_anchor_ns = SystemNs();
    state->timestamp = RawNs;
  }
  state->hooks->enter = OnEnter;
  state->hooks->exit = OnExit;
  state->hooks->operation = OnOperation;
  state->hooks->resource = OnResource;
  pthread_atfork(nullptr, nullptr, [] { GetState()->forked = true; });
  return state;
}

std::atomic<bool>* SmallDomain(CuptiState* state, CUpti_CallbackDomain domain) {
  switch (domain) {
    case CUPTI_CB_DOMAIN_RESOURCE:
      return state->resource;
    case CUPTI_CB_DOMAIN_SYNCHRONIZE:
      return state->synchronize;
    case CUPTI_CB_DOMAIN_STATE:
      return state->state;
    default:
      return nullptr;
  }
}

void SetApiInterest(std::atomic<uint8_t>& cell, uint8_t bit, bool enable) {
  if (enable) {
    cell.fetch_or(bit);
  } else {
    cell.fetch_and(static_cast<uint8_t>(~bit));
  }
}

uint32_t LastCallbackId(CUpti_CallbackDomain domain) {
  switch (domain) {
    case CUPTI_CB_DOMAIN_DRIVER_API:
      return CUPTI_DRIVER_TRACE_CBID_SIZE;
    case CUPTI_CB_DOMAIN_RUNTIME_API:
      return CUPTI_RUNTIME_TRACE_CBID_SIZE;
    default:
      return kSmallDomainIds;
  }
}

CUptiResult CheckSubscriber(CuptiState* state, CUpti_SubscriberHandle handle) {
  if (state == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  Subscriber* subscriber = state->subscriber.load();
  if (handle == nullptr || reinterpret_cast<Subscriber*>(handle) != subscriber) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  return CUPTI_SUCCESS;
}

void EnableOne(CuptiState* state, bool enable, CUpti_CallbackDomain domain, uint32_t cbid) {
  if (domain == CUPTI_CB_DOMAIN_DRIVER_API) {
    SetApiInterest(state->hooks->driver[cbid], kInterestCallback, enable);
  } else if (domain == CUPTI_CB_DOMAIN_RUNTIME_API) {
    SetApiInterest(state->hooks->runtime[cbid], kInterestCallback, enable);
  } else {
    SmallDomain(state, domain)[cbid] = enable;
  }
}

bool KnownDomain(CuptiState* state, CUpti_CallbackDomain domain) {
  return domain == CUPTI_CB_DOMAIN_DRIVER_API || domain == CUPTI_CB_DOMAIN_RUNTIME_API ||
         SmallDomain(state, domain) != nullptr;
}

CUptiResult Subscribe(CUpti_SubscriberHandle* handle, CUpti_CallbackFunc callback, void* user,
                      CUpti_SubscriberParams* params) {
  CuptiState* state = GetState();
  if (state == nullptr || state->failed) return CUPTI_ERROR_UNKNOWN;
  if (handle == nullptr || callback == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  if (params != nullptr && params->structSize != CUpti_SubscriberParams_STRUCT_SIZE) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  if (state->config->cupti_subscribe_result != 0) {
    return static_cast<CUptiResult>(state->config->cupti_subscribe_result);
  }
  std::lock_guard lock(state->mutex);
  if (params != nullptr && !state->Uses(CuptiState::Api::kV2)) {
    return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  }
  const bool held = !state->config->cupti_held_by.empty();
  if (held || state->subscriber.load() != nullptr) {
    if (params != nullptr && params->oldSubscriberName != nullptr) {
      snprintf(params->oldSubscriberName, params->oldSubscriberSize, "%s",
               held ? state->config->cupti_held_by.c_str() : state->subscriber_name.c_str());
    }
    return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  }
  state->subscriber_name =
      params != nullptr && params->subscriberName != nullptr ? params->subscriberName : "";
  auto* subscriber = new Subscriber{callback, user};
  state->subscriber.store(subscriber, std::memory_order_release);
  *handle = reinterpret_cast<CUpti_SubscriberHandle>(subscriber);
  return CUPTI_SUCCESS;
}

}  // namespace

uint64_t CuptiState::NowNs() const {
  CUpti_TimestampCallbackFunc own = timestamp.load(std::memory_order_relaxed);
  if (own != nullptr) return own();
  uint64_t now = hooks->now_ns();
  return now != 0 ? now : SystemNs();
}

uint64_t SystemNs() {
  timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(t.tv_nsec);
}

CuptiState* GetState() {
  static CuptiState* state = Attach();
  return state;
}

bool CuptiState::Uses(Api wanted) {
  if (!releases::SeparateV1AndV2(config->cupti_version)) return true;
  Api none = Api::kNone;
  return api.compare_exchange_strong(none, wanted) || none == wanted;
}

void Hang(uint64_t ms) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(ms);
  while (ms == 0 || std::chrono::steady_clock::now() < until) usleep(1000);
}

CUptiResult PlayedFailure(const char* function) {
  if (GetState() == nullptr) return CUPTI_SUCCESS;
  const Config& config = *GetState()->config;
  if (config.cupti_hang == function) {
    static std::atomic<uint64_t> hang_calls{0};
    if (hang_calls.fetch_add(1) == config.cupti_fail_after) Hang(config.cupti_hang_ms);
  }
  if (config.cupti_fail.empty() || config.cupti_fail != function) return CUPTI_SUCCESS;
  static std::atomic<uint64_t> calls{0};
  if (calls.fetch_add(1) < config.cupti_fail_after) return CUPTI_SUCCESS;
  return static_cast<CUptiResult>(config.cupti_fail_result);
}

void UpdateInterest(CuptiState* state) {
  Hooks* hooks = state->hooks;
  bool armed = false;
  for (uint32_t id = 0; id < kMaxCallbackId; ++id) {
    armed |= (hooks->driver[id].load() | hooks->runtime[id].load()) != 0;
  }
  bool resources = std::any_of(std::begin(state->resource), std::end(state->resource),
                               [](const std::atomic<bool>& on) { return on.load(); });
  bool synchronize = std::any_of(std::begin(state->synchronize), std::end(state->synchronize),
                                 [](const std::atomic<bool>& on) { return on.load(); });
  uint32_t operations = 0;
  auto want = [&](CUpti_ActivityKind kind, OpKind op) {
    if (state->KindEnabled(kind)) operations |= 1u << static_cast<uint32_t>(op);
  };
  want(CUPTI_ACTIVITY_KIND_KERNEL, OpKind::kKernel);
  want(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, OpKind::kKernel);
  want(CUPTI_ACTIVITY_KIND_MEMCPY, OpKind::kMemcpy);
  want(CUPTI_ACTIVITY_KIND_MEMCPY2, OpKind::kMemcpyPeer);
  want(CUPTI_ACTIVITY_KIND_MEMSET, OpKind::kMemset);
  want(CUPTI_ACTIVITY_KIND_SYNCHRONIZATION, OpKind::kSync);
  want(CUPTI_ACTIVITY_KIND_GRAPH_TRACE, OpKind::kGraph);
  want(CUPTI_ACTIVITY_KIND_CUDA_EVENT, OpKind::kEvent);
  if (synchronize) operations |= 1u << static_cast<uint32_t>(OpKind::kSync);
  hooks->armed.store(armed, std::memory_order_release);
  hooks->resources.store(resources, std::memory_order_release);
  hooks->operations.store(operations, std::memory_order_release);
}

}  // namespace seqpoint::softgpu

using namespace seqpoint::softgpu;

extern "C" {

CUptiResult CUPTIAPI cuptiGetVersion(uint32_t* version) {
  if (version == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  CuptiState* state = GetState();
  *version =
      state == nullptr ? CUPTI_API_VERSION : static_cast<uint32_t>(state->config->cupti_version);
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiGetTimestamp(uint64_t* timestamp) {
  SWGPU_MAY_FAIL();
  if (timestamp == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  CuptiState* state = GetState();
  *timestamp = state == nullptr ? SystemNs() : state->NowNs();
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiSupportedDomains(size_t* count, CUpti_DomainTable* table) {
  static CUpti_CallbackDomain domains[] = {CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_CB_DOMAIN_RUNTIME_API,
                                           CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CB_DOMAIN_SYNCHRONIZE,
                                           CUPTI_CB_DOMAIN_STATE};
  if (count == nullptr || table == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  if (GetState() == nullptr) return CUPTI_ERROR_UNKNOWN;
  *count = std::size(domains);
  *table = domains;
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiSubscribe(CUpti_SubscriberHandle* subscriber, CUpti_CallbackFunc callback,
                                    void* userdata) {
  SWGPU_MAY_FAIL();
  return Subscribe(subscriber, callback, userdata, nullptr);
}

CUptiResult CUPTIAPI cuptiSubscribe_v2(CUpti_SubscriberHandle* subscriber,
                                       CUpti_CallbackFunc callback, void* userdata,
                                       CUpti_SubscriberParams* params) {
  SWGPU_MAY_FAIL();
  return Subscribe(subscriber, callback, userdata, params);
}

CUptiResult CUPTIAPI cuptiUnsubscribe(CUpti_SubscriberHandle handle) {
  SWGPU_MAY_FAIL();
  CuptiState* state = GetState();
  if (CUptiResult r = CheckSubscriber(state, handle); r != CUPTI_SUCCESS) return r;
  std::lock_guard lock(state->mutex);
  state->subscriber = nullptr;  // the object stays: a callback may be under way with it
  for (uint32_t id = 0; id < kMaxCallbackId; ++id) {
    SetApiInterest(state->hooks->driver[id], kInterestCallback, false);
    SetApiInterest(state->hooks->runtime[id], kInterestCallback, false);
  }
  for (uint32_t id = 0; id < kSmallDomainIds; ++id) {
    state->resource[id] = state->synchronize[id] = state->state[id] = false;
  }
  UpdateInterest(state);
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiEnableCallback(uint32_t enable, CUpti_SubscriberHandle handle,
                                         CUpti_CallbackDomain domain, CUpti_CallbackId cbid) {
  SWGPU_MAY_FAIL();
  CuptiState* state = GetState();
  if (CUptiResult r = CheckSubscriber(state, handle); r != CUPTI_SUCCESS) return r;
  if (!KnownDomain(state, domain) || cbid == 0 || cbid >= LastCallbackId(domain)) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  std::lock_guard lock(state->mutex);
  EnableOne(state, enable != 0, domain, cbid);
  UpdateInterest(state);
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiEnableDomain(uint32_t enable, CUpti_SubscriberHandle handle,
                                       CUpti_CallbackDomain domain) {
  CuptiState* state = GetState();
  if (CUptiResult r = CheckSubscriber(state, handle); r != CUPTI_SUCCESS) return r;
  if (!KnownDomain(state, domain)) return CUPTI_ERROR_INVALID_PARAMETER;
  std::lock_guard lock(state->mutex);
  for (uint32_t id = 1; id < LastCallbackId(domain); ++id) {
    EnableOne(state, enable != 0, domain, id);
  }
  UpdateInterest(state);
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiEnableAllDomains(uint32_t enable, CUpti_SubscriberHandle handle) {
  for (CUpti_CallbackDomain domain :
       {CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_CB_DOMAIN_RESOURCE,
        CUPTI_CB_DOMAIN_SYNCHRONIZE, CUPTI_CB_DOMAIN_STATE}) {
    if (CUptiResult r = cuptiEnableDomain(enable, handle, domain); r != CUPTI_SUCCESS) return r;
  }
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiGetCallbackState(uint32_t* enable, CUpti_SubscriberHandle handle,
                                           CUpti_CallbackDomain domain, CUpti_CallbackId cbid) {
  CuptiState* state = GetState();
  if (CUptiResult r = CheckSubscriber(state, handle); r != CUPTI_SUCCESS) return r;
  if (enable == nullptr || !KnownDomain(state, domain) || cbid >= LastCallbackId(domain)) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  if (std::atomic<bool>* small = SmallDomain(state, domain)) {
    *enable = small[cbid];
  } else {
    Domain d = domain == CUPTI_CB_DOMAIN_DRIVER_API ? kDriver : kRuntime;
    *enable = (state->hooks->Wanted(d, cbid).load() & kInterestCallback) != 0;
  }
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiGetCallbackName(CUpti_CallbackDomain domain, uint32_t cbid,
                                          const char** name) {
  if (name == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  auto find = [&](const auto& table) {
    for (const CallbackName& entry : table) {
      if (entry.cbid == cbid && cbid != 0) {
        *name = entry.name;
        return CUPTI_SUCCESS;
      }
    }
    return CUPTI_ERROR_INVALID_PARAMETER;
  };
  if (domain == CUPTI_CB_DOMAIN_DRIVER_API) return find(kDriverNames);
  if (domain == CUPTI_CB_DOMAIN_RUNTIME_API) return find(kRuntimeNames);
  return CUPTI_ERROR_INVALID_PARAMETER;
}

CUptiResult CUPTIAPI cuptiFinalize() {
  CuptiState* state = GetState();
  if (state == nullptr) return CUPTI_SUCCESS;
  if (state->hooks->now_ns() != 0) state->hooks->drain(nullptr);
  FlushBuffers(false);
  if (Subscriber* subscriber = state->subscriber.load()) {
    cuptiUnsubscribe(reinterpret_cast<CUpti_SubscriberHandle>(subscriber));
  }
  std::lock_guard lock(state->mutex);
  DisableAllActivity(state);
  ForgetBuffers();
  ForgetProfilers();
  UpdateInterest(state);
  state->api = CuptiState::Api::kNone;
  state->hooks->launch_extra_ns = 0;
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiGetResultString(CUptiResult result, const char** string) {
  static constexpr struct {
    CUptiResult code;
    const char* name;
  } kNames[] = {
#define SWGPU_RESULT(name) {name, #name}
      SWGPU_RESULT(CUPTI_SUCCESS),
      SWGPU_RESULT(CUPTI_ERROR_INVALID_PARAMETER),
      SWGPU_RESULT(CUPTI_ERROR_INVALID_DEVICE),
      SWGPU_RESULT(CUPTI_ERROR_INVALID_CONTEXT),
      SWGPU_RESULT(CUPTI_ERROR_INVALID_OPERATION),
      SWGPU_RESULT(CUPTI_ERROR_OUT_OF_MEMORY),
      SWGPU_RESULT(CUPTI_ERROR_HARDWARE),
      SWGPU_RESULT(CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT),
      SWGPU_RESULT(CUPTI_ERROR_MAX_LIMIT_REACHED),
      SWGPU_RESULT(CUPTI_ERROR_NOT_READY),
      SWGPU_RESULT(CUPTI_ERROR_NOT_COMPATIBLE),
      SWGPU_RESULT(CUPTI_ERROR_NOT_INITIALIZED),
      SWGPU_RESULT(CUPTI_ERROR_QUEUE_EMPTY),
      SWGPU_RESULT(CUPTI_ERROR_INVALID_KIND),
      SWGPU_RESULT(CUPTI_ERROR_HARDWARE_BUSY),
      SWGPU_RESULT(CUPTI_ERROR_NOT_SUPPORTED),
      SWGPU_RESULT(CUPTI_ERROR_INSUFFICIENT_PRIVILEGES),
      SWGPU_RESULT(CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED),
      SWGPU_RESULT(CUPTI_ERROR_INVALID_CHIP_NAME),
      SWGPU_RESULT(CUPTI_ERROR_UNKNOWN),
#undef SWGPU_RESULT
  };
  if (string == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  for (const auto& entry : kNames) {
    if (entry.code == result) {
      *string = entry.name;
      return CUPTI_SUCCESS;
    }
  }
  return CUPTI_ERROR_INVALID_PARAMETER;
}

CUptiResult CUPTIAPI cuptiGetErrorMessage(CUptiResult result, const char** string) {
  return cuptiGetResultString(result, string);
}

}  // extern "C"
