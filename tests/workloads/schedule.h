// Which batches each iteration of a training run has, over all epochs, and the evaluation set.
// Pure; any thread.
#ifndef SEQPOINT_TESTS_WORKLOADS_SCHEDULE_H_
#define SEQPOINT_TESTS_WORKLOADS_SCHEDULE_H_

#include <cstddef>
#include <vector>

#include "tests/workloads/batching.h"
#include "tests/workloads/options.h"
#include "tests/workloads/ranks.h"

namespace seqpoint::workload {

// The micro-batches of one rank.
struct Schedule {
  std::vector<Batch> batches;
  struct Iteration {
    size_t first;  // of `batches`
    size_t count;
    int epoch;
  };
  std::vector<Iteration> iterations;
  std::vector<Batch> evaluation;
};

// All ranks cut the same order of the same examples into batches. With lengths of their own, rank r
// takes the r-th of each group of as many batches as there are ranks (times micro-batches); an
// incomplete last group of an epoch is left out. Else every rank takes all.
Schedule MakeSchedule(const Options& options, const LengthTable& table, const Ranks& ranks);

}  // namespace seqpoint::workload

#endif  // SEQPOINT_TESTS_WORKLOADS_SCHEDULE_H_
