// Our CUPTI subscriber: which driver callback ids are on, and how a callback becomes a Call.
// Threading: the callback runs on the application's threads. Subscribe, Unsubscribe and EnableOps
// are called by one thread at a time (InitializeInjection, the thread acting at a boundary, the
// helper thread).
#ifndef SEQPOINT_INJECTION_CALLBACKS_H_
#define SEQPOINT_INJECTION_CALLBACKS_H_

#include <stdint.h>

#include "injection/cupti_loader.h"
#include "injection/features.h"
#include "injection/system.h"

namespace seqpoint::inject {

// The callback itself, for the benchmark that calls it directly.
void OnCuptiCallback(void* user, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                     const void* data);

class Callbacks {
 public:
  void Init(const Cupti* cupti, Features* features);
  // False: another tool holds CUPTI, or there is no driver; the reason was reported.
  bool Subscribe();
  void Unsubscribe();
  bool subscribed() const { return subscriber_ != nullptr; }
  // Turns on exactly the callback ids of these operations (bit per abi::Op).
  void EnableOps(uint32_t ops);

 private:
  uint32_t SubscribeOnce(char* holder, size_t holder_bytes);

  const Cupti* cupti_ = nullptr;
  Features* features_ = nullptr;
  SpinLock lock_;
  CUpti_SubscriberHandle subscriber_ = nullptr;
  uint32_t enabled_ops_ = 0;
  bool captures_watched_ = false;
};

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_CALLBACKS_H_
