#include "tests/ranks/monitored_job.h"

#include <set>
#include <utility>

namespace seqpoint::ranks {

MonitoredJob::MonitoredJob(JobConfig config) : job_(config) {
  std::set<int32_t> ranks;
  for (int32_t rank = 0; rank < config.ranks; ++rank) ranks.insert(rank);
  monitor_.SetRanks(std::move(ranks));
}

void MonitoredJob::Step() {
  const bool observe =
      monitor_.wants_every_iteration() || job_.next_number() % RankMonitor::kPeriod == 0;
  observed_ += observe;
  for (const RankIteration& report : job_.Next(observe)) monitor_.Add(report);
}

void MonitoredJob::Run(int64_t iterations) {
  for (int64_t i = 0; i < iterations; ++i) Step();
}

void MonitoredJob::RunUntilNamed(int64_t iterations) {
  for (int64_t i = 0; i < iterations && named() == 0; ++i) Step();
}

int64_t MonitoredJob::named() const {
  auto count = static_cast<int64_t>(verdicts().links.size());
  for (const RankVerdict& verdict : verdicts().ranks) count += verdict.episode_count;
  return count;
}

}  // namespace seqpoint::ranks
