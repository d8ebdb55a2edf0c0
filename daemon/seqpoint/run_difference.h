// Why one run took longer than another: how many iterations each had, with which lengths, and what
// an iteration takes at equal lengths. docs/using/compare.md has the method.
//
//   RunDifference d = CompareRuns(base, other, {.confidence = 0.95});
//   // d.iterations + d.lengths + d.cost + d.disturbances = d.difference, by their values
//   // (those that are set)
//
// Threading: free functions without state.
#ifndef DAEMON_SEQPOINT_RUN_DIFFERENCE_H_
#define DAEMON_SEQPOINT_RUN_DIFFERENCE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "daemon/seqpoint/analysis.h"
#include "daemon/seqpoint/interval.h"
#include "daemon/seqpoint/key.h"

namespace seqpoint {

// The iterations of a run or of a part of it. Keys of both runs are in the same unit.
struct RunToCompare {
  RunLog log;                // those with a usable time and a length, in the order they ran
  std::vector<Key> untimed;  // with a length, but without a usable time
  int64_t unkeyed = 0;       // with a time, but without a length
  double unkeyed_time = 0;
  double rest = 0;      // at most so much longer, as an end is not known
  int64_t unknown = 0;  // with neither
};

struct KeyWeight {
  Key key;
  double weight = 0;  // iterations
};

struct CompareRunsOptions {
  double confidence = 0.95;
  std::string base_name = "the base run", other_name = "the other run";  // for messages
  // Why lengths of the two runs must not be laid side by side; empty: they may be.
  std::string incomparable = {};
};

struct RunDifference {
  // Not empty: the runs' times are not known, and nothing below is set.
  std::string not_known;
  Estimate base, other;  // total times; exact where every iteration has a usable time
  // Other - base. The interval says how far two runs of the same work may be apart by chance.
  Estimate difference;
  // Not empty: lengths and cost are not told apart, for this reason. `cost` is then that of a mean
  // iteration, `lengths` is not set, and `at` is empty.
  std::string not_comparable;
  Estimate iterations;              // for there are more or fewer of them
  std::optional<Estimate> lengths;  // for their lengths are others
  Estimate cost;                    // for an iteration takes longer or shorter at equal lengths
  // Stalls and first iterations of a length, beyond the usual; set where lengths are told apart.
  std::optional<Estimate> disturbances;
  double cost_ratio = 1;  // of an iteration in the other run to one in the base
  // The iterations at which cost was compared. What is a sum over iterations (kernels, counters) is
  // comparable there: Σ weight · (other's value - base's value) belongs to `cost`.
  std::vector<KeyWeight> at;
  // Share of each run's iterations whose lengths the other one lacks.
  double base_alone = 0, other_alone = 0;
};

RunDifference CompareRuns(const RunToCompare& base, const RunToCompare& other,
                          const CompareRunsOptions& options);

// other - base of independent estimates.
Estimate DifferenceOf(const Estimate& other, const Estimate& base);

}  // namespace seqpoint

#endif  // DAEMON_SEQPOINT_RUN_DIFFERENCE_H_
