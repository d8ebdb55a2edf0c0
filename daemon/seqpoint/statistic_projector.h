// Projects a measured statistic (a counter, the time of a kernel) to the whole run.
//
// Threading: free functions without state.
#ifndef DAEMON_SEQPOINT_STATISTIC_PROJECTOR_H_
#define DAEMON_SEQPOINT_STATISTIC_PROJECTOR_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "daemon/seqpoint/engine_state.h"
#include "daemon/seqpoint/fitted_model.h"
#include "daemon/seqpoint/projection.h"

namespace seqpoint {

// As OnlineEngine::ProjectStatistics.
absl::StatusOr<Projection> ProjectStatisticsOf(const EngineState& state, const FittedModel& fitted,
                                               uint32_t set, absl::Span<const int> indices,
                                               double confidence, StatisticKind kind);

}  // namespace seqpoint

#endif  // DAEMON_SEQPOINT_STATISTIC_PROJECTOR_H_
