// Reads the parameters of a driver call, as CUPTI's callback shows them.
// Threading: pure but for `graphs`, which may be used from any thread.
#ifndef SEQPOINT_INJECTION_CUPTI_CALL_PARAMS_H_
#define SEQPOINT_INJECTION_CUPTI_CALL_PARAMS_H_

#include <cupti.h>

#include "injection/base/call.h"
#include "injection/base/graph_names.h"
#include "injection/cupti/callback_ids.h"

namespace seqpoint::inject {

// Fills in what the parameters tell of the call: its name, geometry, bytes, stream and event.
void ReadParams(const WatchedCall& watched, const CUpti_CallbackData& data, GraphNames* graphs,
                Call* call);

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_CUPTI_CALL_PARAMS_H_
