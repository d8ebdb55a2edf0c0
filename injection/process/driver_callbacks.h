// CUPTI's callback: what the application does, handed to the parts that want to know.
// Threading: the application's threads.
#ifndef SEQPOINT_INJECTION_PROCESS_DRIVER_CALLBACKS_H_
#define SEQPOINT_INJECTION_PROCESS_DRIVER_CALLBACKS_H_

#include <cupti.h>

namespace seqpoint::inject {

void OnCuptiCallback(void* user, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                     const void* data);

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_PROCESS_DRIVER_CALLBACKS_H_
