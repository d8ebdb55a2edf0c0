#include "injection/cupti/callbacks.h"

#include <string.h>

#include "injection/cupti/callback_ids.h"

namespace seqpoint::inject {
namespace {

using abi::Op;
using abi::OpBit;

constexpr CUpti_CallbackId kResources[] = {
    CUPTI_CBID_RESOURCE_CONTEXT_CREATED,
    CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING,
    CUPTI_CBID_RESOURCE_MODULE_UNLOAD_STARTING,
    CUPTI_CBID_RESOURCE_GRAPHEXEC_DESTROY_STARTING,
};

constexpr uint32_t kAllCopies =
    OpBit(Op::kCopyH2D) | OpBit(Op::kCopyD2H) | OpBit(Op::kCopyD2D) | OpBit(Op::kCopyOther);

}  // namespace

uint32_t Callbacks::SubscribeOnce() {
  strcpy(holder_, "another tool (Nsight, a debugger or a framework's profiler)");
  CallWatch::Scope watch(call_watch_, "cuptiSubscribe");
  if (cupti_->Subscribe_v2 == nullptr || cupti_->Has(kSeparatesSubscribeV2)) {
    return cupti_->Subscribe(&subscriber_, on_call_, nullptr);
  }
  CUpti_SubscriberParams params = {};
  params.structSize = CUpti_SubscriberParams_STRUCT_SIZE;
  params.subscriberName = "SeqPoint Profiler";
  char name[sizeof(holder_)] = {};
  params.oldSubscriberName = name;
  params.oldSubscriberSize = sizeof(name);
  const uint32_t result = cupti_->Subscribe_v2(&subscriber_, on_call_, nullptr, &params);
  if (name[0] != '\0') memcpy(holder_, name, sizeof(name) - 1);
  return result;
}

uint32_t Callbacks::Subscribe(bool report_holder) {
  if (subscriber_ != nullptr) return CUPTI_SUCCESS;
  const uint32_t result = SubscribeOnce();
  if (result != CUPTI_SUCCESS) {
    subscriber_ = nullptr;
    if (result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED) {
      if (!report_holder) return result;
      features_->Report(abi::Feature::kCallbacks, abi::FeatureState::kIgnored, result,
                        "CUPTI is held by %s, and it serves one tool at a time; stop that tool to "
                        "profile this process: CUPTI is asked for again every few seconds",
                        holder_);
    } else {
      features_->Report(abi::Feature::kCallbacks, abi::FeatureState::kFailed, result,
                        "cuptiSubscribe gave %u (%s); is there a CUDA driver, and does "
                        "`nvidia-smi` work?",
                        result, cupti_->ResultName(result));
    }
    return result;
  }
  names_->ForgetAddresses();  // modules may have gone while nobody watched
  CallWatch::Scope watch(call_watch_, "cuptiEnableCallback");
  for (const CUpti_CallbackId id : kResources) {
    const uint32_t enabled = cupti_->EnableCallback(1, subscriber_, CUPTI_CB_DOMAIN_RESOURCE, id);
    // Without news of contexts nothing else works; an id that only this CUPTI lacks is no loss.
    if (enabled == CUPTI_SUCCESS || id != CUPTI_CBID_RESOURCE_CONTEXT_CREATED) continue;
    features_->Report(abi::Feature::kCallbacks, abi::FeatureState::kFailed, enabled,
                      "cuptiEnableCallback gave %u (%s): the program's calls are not seen; its "
                      "iterations can be found by NVTX ranges or marks only",
                      enabled, cupti_->ResultName(enabled));
    Unsubscribe();
    return enabled;
  }
  cupti_->EnableCallback(1, subscriber_, CUPTI_CB_DOMAIN_STATE, CUPTI_CBID_STATE_FATAL_ERROR);
  enabled_ops_ = 0;
  captures_watched_ = false;
  features_->Report(abi::Feature::kCallbacks, abi::FeatureState::kReady, 0,
                    "watching the CUDA driver's calls");
  return CUPTI_SUCCESS;
}

void Callbacks::Unsubscribe() {
  if (subscriber_ == nullptr) return;
  CallWatch::Scope watch(call_watch_, "cuptiUnsubscribe");
  cupti_->Unsubscribe(subscriber_);
  subscriber_ = nullptr;
  enabled_ops_ = 0;
}

bool Callbacks::StillOurs() {
  CallWatch::Scope watch(call_watch_, "cuptiEnableCallback");
  if (subscriber_ == nullptr) return false;
  // An id that is on: nothing changes, but a handle that CUPTI does not know is refused.
  if (cupti_->EnableCallback(1, subscriber_, CUPTI_CB_DOMAIN_RESOURCE,
                             CUPTI_CBID_RESOURCE_CONTEXT_CREATED) == CUPTI_SUCCESS) {
    return true;
  }
  subscriber_ = nullptr;
  enabled_ops_ = 0;
  return false;
}

uint32_t Callbacks::MeasurePriceNs(decltype(&::cuDriverGetVersion) harmless) {
  CallWatch::Scope watch(call_watch_, "cuptiEnableCallback");
  constexpr int kCalls = 200;
  constexpr int kTimes = 3;
  if (subscriber_ == nullptr) return 0;
  InsideScope inside;
  uint64_t best_ns[2] = {UINT64_MAX, UINT64_MAX};
  for (int time = 0; time < 2 * kTimes; ++time) {
    const uint32_t watched = time % 2;
    cupti_->EnableCallback(watched, subscriber_, CUPTI_CB_DOMAIN_DRIVER_API,
                           CUPTI_DRIVER_TRACE_CBID_cuDriverGetVersion);
    int version = 0;
    const uint64_t begin_ns = MonotonicNs();
    for (int i = 0; i < kCalls; ++i) harmless(&version);
    const uint64_t took_ns = MonotonicNs() - begin_ns;
    if (took_ns < best_ns[watched]) best_ns[watched] = took_ns;
  }
  cupti_->EnableCallback(0, subscriber_, CUPTI_CB_DOMAIN_DRIVER_API,
                         CUPTI_DRIVER_TRACE_CBID_cuDriverGetVersion);
  if (best_ns[1] <= best_ns[0]) return 1;
  return static_cast<uint32_t>((best_ns[1] - best_ns[0]) / kCalls);
}

void Callbacks::EnableOps(uint32_t ops) {
  if (subscriber_ == nullptr) return;
  CallWatch::Scope watch(call_watch_, "cuptiEnableCallback");
  const uint32_t changed = ops ^ enabled_ops_;
  if ((changed & ops) != 0) {
    enabled_ns_.store(clock_->NowNs(), std::memory_order_relaxed);
  }
  for (uint32_t i = 0; i < kWatchedCallCount; ++i) {
    const WatchedCall& call = kWatchedCalls[i];
    // Stream captures are rare and always watched. Copies whose direction stands in their
    // parameters may be any kind of copy.
    const bool capture = call.op == Op::kNone;
    const uint32_t relevant = call.op == Op::kCopyOther ? kAllCopies : OpBit(call.op);
    if (capture ? captures_watched_ : (changed & relevant) == 0) continue;
    // An older CUPTI refuses ids that it does not know; such calls cannot occur there either.
    cupti_->EnableCallback(capture || (ops & relevant) != 0, subscriber_,
                           CUPTI_CB_DOMAIN_DRIVER_API, call.cbid);
  }
  captures_watched_ = true;
  enabled_ops_ = ops;
}

}  // namespace seqpoint::inject
