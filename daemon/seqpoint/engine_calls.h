// EngineCall: a call that changed an engine, or that it refused and counted.
//
// Threading: values.
#ifndef DAEMON_SEQPOINT_ENGINE_CALLS_H_
#define DAEMON_SEQPOINT_ENGINE_CALLS_H_

#include <cstdint>
#include <variant>
#include <vector>

#include "daemon/seqpoint/horizon.h"
#include "daemon/seqpoint/iteration_sample.h"
#include "daemon/seqpoint/key.h"
#include "daemon/seqpoint/measurement_planner.h"

namespace seqpoint {

struct StretchCall {
  std::vector<StretchIteration> iterations;
  int64_t time_ns = 0;
};

struct MeasurementCall {
  uint32_t set = 0;
  uint64_t iteration = 0;
  Key key;
  std::vector<double> values;
};

// A PlanBasis is what plans rest on from then on: plans are made when somebody asks, and after a
// restart the same is to be measured on.
using EngineCall = std::variant<IterationSample, StretchCall, MeasurementCall, Horizon, PlanBasis>;

}  // namespace seqpoint

#endif  // DAEMON_SEQPOINT_ENGINE_CALLS_H_
