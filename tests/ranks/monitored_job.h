// A simulated job that a RankMonitor watches, as the daemon does: collectives of every eighth
// iteration, and of each one while the monitor asks for it.
//
// Threading: one thread. Ownership: values.
#ifndef SEQPOINT_TESTS_RANKS_MONITORED_JOB_H_
#define SEQPOINT_TESTS_RANKS_MONITORED_JOB_H_

#include <cstdint>

#include "daemon/ranks/rank_monitor.h"
#include "tests/ranks/simulated_job.h"

namespace seqpoint::ranks {

class MonitoredJob {
 public:
  explicit MonitoredJob(JobConfig config);

  void Run(int64_t iterations);
  // Until something was named, or so many iterations have passed.
  void RunUntilNamed(int64_t iterations);

  RankMonitor& monitor() { return monitor_; }
  const Verdicts& verdicts() const { return monitor_.verdicts(); }
  const RankVerdict& rank(int32_t rank) const { return verdicts().ranks.at(rank); }
  double elapsed_ns() const { return job_.elapsed_ns(); }
  int64_t observed() const { return observed_; }
  // Episodes of ranks and links so far.
  int64_t named() const;

 private:
  void Step();

  SimulatedJob job_;
  RankMonitor monitor_;
  int64_t observed_ = 0;
};

}  // namespace seqpoint::ranks

#endif  // SEQPOINT_TESTS_RANKS_MONITORED_JOB_H_
