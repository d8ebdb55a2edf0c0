// The run that the user described (v1::Horizon: iterations, or the lengths of the batches) in steps
// of the job.
//
// The user's batches are forward passes. With gradient accumulation the lengths of a rank are sums
// over micro-batches. The lengths of a step are the largest of the ranks that have data of their
// own.
//
// Threading: free functions. Ownership: values.
#ifndef DAEMON_JOBS_RUN_SCHEDULE_H_
#define DAEMON_JOBS_RUN_SCHEDULE_H_

#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "daemon/iterations/learner.h"
#include "daemon/jobs/length_scale.h"
#include "daemon/jobs/micro_batches.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::jobs {

// How many of the user's batches make an iteration, as far as it is known now.
struct RunShape {
  const iterations::LearnedRule* rule = nullptr;  // null: none
  bool imported = false;                          // its lengths are the user's own
  // How many batches an iteration takes, as the processes sent it (abi::BatchesCode), and why.
  uint32_t batches = 0;
  std::string batches_message;
  MicroBatches micro_batches;  // so far
  int64_t working_ranks = 1;   // that had iterations, of those that started together last
  int64_t world_size = 1;      // those that started, and may be elsewhere
  bool several_ranks = false;  // steps are made of the iterations of several ranks

  int dimensions() const;               // of a length
  uint32_t SummedMicroBatches() const;  // in the length of an iteration
  uint32_t SummedBatches() const;       // of the user's, likewise
};

using Lengths = std::array<int64_t, 2>;

// CheckHorizon(), and no more lengths than an engine can distinguish.
absl::Status CheckJobHorizon(const v1::Horizon& horizon);

// Different batches in a step: ranks that have data of their own.
int64_t DataParallel(const v1::Horizon& horizon, const RunShape& shape);

// Steps of the run; 0: unknown.
int64_t RunIterations(const v1::Horizon& horizon, const RunShape& shape);

// How often each pair of lengths occurs in the steps of an epoch. Batches are put together at
// random (by the same draws each time), or in order of length where those of a step are alike.
std::map<Lengths, int64_t> IterationLengths(const v1::Horizon& horizon, int64_t micro_batches,
                                            int64_t data_parallel);

Histogram1 Marginal(const std::map<Lengths, int64_t>& lengths, int dimension);

// The dimensions of the user's lengths; 0: none were given.
int GivenDimensions(const v1::Horizon& horizon);

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_RUN_SCHEDULE_H_
