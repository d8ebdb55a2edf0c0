// Our CUPTI subscriber, and which driver callback ids are on.
// Threading: the callback runs on the application's threads. Everything else is called by the
// thread that has the SwitchToken.
#ifndef SEQPOINT_INJECTION_CUPTI_CALLBACKS_H_
#define SEQPOINT_INJECTION_CUPTI_CALLBACKS_H_

#include <stdint.h>

#include <atomic>

#include "injection/base/features.h"
#include "injection/base/names.h"
#include "injection/cupti/call_watch.h"
#include "injection/cupti/clock.h"
#include "injection/cupti/loader.h"

namespace seqpoint::inject {

class Callbacks {
 public:
  Callbacks(const Cupti* cupti, Features* features, CallWatch* call_watch, const Clock* clock,
            Names* names, CUpti_CallbackFunc on_call)
      : cupti_(cupti),
        features_(features),
        call_watch_(call_watch),
        clock_(clock),
        names_(names),
        on_call_(on_call) {}

  // The CUptiResult; 39: another tool holds CUPTI. The reason is reported, that one only with
  // `report_holder`.
  uint32_t Subscribe(bool report_holder);
  void Unsubscribe();
  // By how much a call takes longer when it is watched, without the body of the callback. Measured
  // on a harmless driver call. 0: not known.
  uint32_t MeasurePriceNs(decltype(&::cuDriverGetVersion) harmless);
  // Turns on exactly the callback ids of these operations (bit per abi::Op).
  void EnableOps(uint32_t ops);
  // False: the subscription is gone, as another tool ended CUPTI; Subscribe may be tried again.
  bool StillOurs();
  // Before this time callback ids may have been off: a call that began earlier had no ENTER.
  uint64_t enabled_ns() const { return enabled_ns_.load(std::memory_order_relaxed); }

 private:
  uint32_t SubscribeOnce();

  const Cupti* const cupti_;
  Features* const features_;
  CallWatch* const call_watch_;
  const Clock* const clock_;
  Names* const names_;
  const CUpti_CallbackFunc on_call_;
  CUpti_SubscriberHandle subscriber_ = nullptr;
  uint32_t enabled_ops_ = 0;
  bool captures_watched_ = false;
  std::atomic<uint64_t> enabled_ns_{0};
  char holder_[128] = {};  // who had CUPTI at the last Subscribe that gave 39
};

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_CUPTI_CALLBACKS_H_
