// Projects the time of a run's training iterations.
//
// Threading: free functions without state.
#ifndef DAEMON_SEQPOINT_TIME_PROJECTOR_H_
#define DAEMON_SEQPOINT_TIME_PROJECTOR_H_

#include "daemon/seqpoint/engine_state.h"
#include "daemon/seqpoint/fitted_model.h"
#include "daemon/seqpoint/projection.h"

namespace seqpoint {

// As OnlineEngine::ProjectTime. `fitted` is that of `state`.
Projection ProjectTimeOf(const EngineState& state, const FittedModel& fitted, double confidence,
                         bool host_times);

}  // namespace seqpoint

#endif  // DAEMON_SEQPOINT_TIME_PROJECTOR_H_
