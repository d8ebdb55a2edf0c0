// EngineState: everything that an OnlineEngine keeps; what it answers follows from it.
//
// Threading: values.
#ifndef DAEMON_SEQPOINT_ENGINE_STATE_H_
#define DAEMON_SEQPOINT_ENGINE_STATE_H_

#include <cstdint>

#include "daemon/seqpoint/block_trace.h"
#include "daemon/seqpoint/cold_iterations.h"
#include "daemon/seqpoint/horizon.h"
#include "daemon/seqpoint/iteration_log.h"
#include "daemon/seqpoint/measurement_planner.h"
#include "daemon/seqpoint/measurements.h"
#include "daemon/seqpoint/outlier_filter.h"
#include "daemon/seqpoint/time_sample.h"

namespace seqpoint {

// Every usable time as it was: for a run whose lengths do not explain its times, and for whether
// lengths come at random.
struct PlainTimes {
  BlockTrace trace;  // of iterations with a known length
  double count = 0, sum_ns = 0, square = 0;

  void Add(double time_ns) {
    count += 1;
    sum_ns += time_ns;
    square += time_ns * time_ns;
  }
};

// Iterations that were timed together.
struct Stretches {
  uint64_t count = 0;
  uint64_t iterations = 0;  // in them
  BlockTrace trace;
};

struct EngineState {
  IterationLog log;
  ColdIterations cold;
  OutlierFilter filter;
  TimeSample sample;  // of usable times, those of recurrences excluded
  PlainTimes plain;
  Stretches stretches;
  Horizon horizon;
  uint64_t horizon_version = 0;  // how often the horizon was set
  Measurements measurements;
  PlanBasis plan;
};

}  // namespace seqpoint

#endif  // DAEMON_SEQPOINT_ENGINE_STATE_H_
