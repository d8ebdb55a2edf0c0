// Our CUPTI subscriber: which driver callback ids are on, and how a callback becomes a Call.
// Threading: the callback runs on the application's threads. Everything else is called by one
// thread at a time, the one that acts (CallStream).
#ifndef SEQPOINT_INJECTION_CUPTI_CALLBACKS_H_
#define SEQPOINT_INJECTION_CUPTI_CALLBACKS_H_

#include <stdint.h>

#include <atomic>

#include "injection/base/features.h"
#include "injection/base/system.h"
#include "injection/cupti/loader.h"

namespace seqpoint::inject {

// The callback itself, for the benchmark that calls it directly.
void OnCuptiCallback(void* user, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                     const void* data);

class Callbacks {
 public:
  void Init(const Cupti* cupti, Features* features);
  // The CUptiResult; 39: another tool holds CUPTI. The reason is reported, that one only with
  // `report_holder`.
  uint32_t Subscribe(bool report_holder);
  void Unsubscribe();
  // Who had CUPTI at the last Subscribe that gave 39; never null.
  const char* holder() const { return holder_; }
  // What a watched call takes longer for being watched, without what is done with it: measured on a
  // harmless driver call. 0: cannot be told.
  uint32_t MeasurePriceNs(decltype(&::cuDriverGetVersion) harmless);
  // Turns on exactly the callback ids of these operations (bit per abi::Op).
  void EnableOps(uint32_t ops);
  // False: the subscription is gone, as another tool ended CUPTI; Subscribe may be tried again.
  bool StillOurs();
  // Before this time callback ids may have been off: a call that began earlier had no ENTER.
  uint64_t enabled_ns() const { return enabled_ns_.load(std::memory_order_relaxed); }

 private:
  uint32_t SubscribeOnce();

  const Cupti* cupti_ = nullptr;
  Features* features_ = nullptr;
  CUpti_SubscriberHandle subscriber_ = nullptr;
  uint32_t enabled_ops_ = 0;
  bool captures_watched_ = false;
  std::atomic<uint64_t> enabled_ns_{0};
  char holder_[128] = {};
};

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_CUPTI_CALLBACKS_H_
