// The sentence that says what a projection rests on.
//
// Threading: free functions without state.
#ifndef DAEMON_SEQPOINT_BASIS_H_
#define DAEMON_SEQPOINT_BASIS_H_

#include <string>

#include "daemon/seqpoint/engine_state.h"
#include "daemon/seqpoint/fitted_model.h"

namespace seqpoint {

std::string BasisOf(const EngineState& state, const FittedModel& fitted);

}  // namespace seqpoint

#endif  // DAEMON_SEQPOINT_BASIS_H_
