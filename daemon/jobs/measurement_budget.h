// The budget of measurements. Each one stops a process for a moment; their number follows from the
// share of the run's time that they may take, and from the price of a stop so far.
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
  double share = 0;             // of the run's time for overhead
  int64_t most_pending = 0;     // measurements that are affordable at one time
  int64_t run_iterations = 0;   // of the whole run; 0: unknown
  double observed_time_ns = 0;  // of its iterations so far
  int64_t iterations = 0;       // so far
};

// The time for which measurements and switches of level stopped the processes.
int64_t StoppedNs(const ProcessTable& processes);

// The number of further measurements that the budget pays for.
int64_t AffordableMeasurements(const ProcessTable& processes, const Budget& budget);

// The number of measurements that were started. Windows of all ranks (CoordinatedWindows) are not
// the plan's: they leave it its measurements.
int64_t StartedMeasurements(const Process& process);
int64_t StartedMeasurements(const ProcessTable& processes);

// Whether the process can measure now.
bool IsAbleToMeasure(const Process& process);

// The share of each process in the `all` measurements that the job may have started. Ranks have
// equal shares, as a process does not know what another one has just started. It holds until a
// process of the table changes. A question takes O(log processes).
class MeasurementShares {
 public:
  MeasurementShares(const ProcessTable& processes, int64_t all);

  // How many the process may have started.
  int64_t CapOf(const Process& process) const;
  // Processes that can measure and have measurements left, which share the plan.
  uint64_t measuring() const { return measuring_.size(); }
  // How many of these have a lower rank.
  uint64_t PlaceOf(const Process& process) const;

 private:
  const int64_t all_;
  int64_t started_ = 0;             // by all processes
  int64_t started_by_able_ = 0;     // by those that can measure
  std::vector<int32_t> able_;       // their ranks, in order
  std::vector<int32_t> measuring_;  // likewise
};

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_MEASUREMENT_BUDGET_H_
