// The budget of measurements: each stops a process for a moment, so how many there are follows from
// the share of the run's time that they may take, at the price that was measured so far.
//
// Threading: free functions. Ownership: none.
#ifndef DAEMON_JOBS_MEASUREMENT_BUDGET_H_
#define DAEMON_JOBS_MEASUREMENT_BUDGET_H_

#include <cstdint>
#include <vector>

#include "daemon/jobs/process_table.h"
#include "daemon/seqpoint/engine.h"

namespace seqpoint::jobs {

struct Budget {
  double share = 0;             // of the run's time that may be overhead
  int64_t most_pending = 0;     // measurements that are affordable at one time
  int64_t run_iterations = 0;   // of the whole run; 0: unknown
  double observed_time_ns = 0;  // of its iterations so far
  int64_t iterations = 0;       // so far
};

// For which the processes were stopped by measurements and switches of level.
int64_t StoppedNs(const ProcessTable& processes);

// How many more measurements the budget pays for.
int64_t AffordableMeasurements(const ProcessTable& processes, const Budget& budget);

// All that were started.
int64_t StartedMeasurements(const ProcessTable& processes);

// Processes that can measure now.
std::vector<const Process*> AbleToMeasure(const ProcessTable& processes);

// How many measurements `process` may have started at most, of `all` that the job may. Ranks have
// equal shares, as nobody knows what another has just begun. `able`: AbleToMeasure().
int64_t MeasurementCap(const Process& process, const std::vector<const Process*>& able,
                       const ProcessTable& processes, int64_t all);

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_MEASUREMENT_BUDGET_H_
