// The planner: chooses methods, and says what their answer is worth.
//
// Threading: MakePlan may start threads of its own. Ownership: values.
#ifndef SEQPOINT_DAEMON_PLACEMENT_PLANNER_H_
#define SEQPOINT_DAEMON_PLACEMENT_PLANNER_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/placement/judge.h"
#include "daemon/placement/problem.h"

namespace seqpoint::placement {

enum class Objective { kThroughput, kLatency };

// A million ideals of 400 classes are 150 MB, and their pairs hours.
inline constexpr int64_t kMostIdeals = 1'000'000;

struct PlannerOptions {
  Objective objective = Objective::kThroughput;
  bool contiguous = true;
  int threads = 1;
  int64_t most_ideals = kMostIdeals;
  double proof_seconds = 0;  // for the integer program of placements that are not contiguous
  // May be null. Called now and then, by any thread; true: the best placement so far is the answer.
  std::function<bool()> stop;
  // May be null. One thread at a time.
  std::function<void(const std::string& what)> progress;
};

struct Plan {
  Placement placement;
  Judgement judgement;
  std::string method;              // docs/using/placement.md, "Methods"
  double value = 0;                // of the objective, by the judge; in the problem's unit
  double lower_bound = 0;          // no placement that was asked for has a lower value
  bool optimal = false;            // the value is the bound, to a relative 1e-9
  bool stopped = false;            // before the methods were through
  std::vector<std::string> notes;  // sentences
};

// The objective's value of a placement, by the judge.
double Value(const Problem& problem, const Placement& placement, const PlannerOptions& options);

// FailedPrecondition: one sentence why there is no placement, with the operators. Cancelled:
// stopped before there was one.
absl::StatusOr<Plan> MakePlan(const Problem& problem, const PlannerOptions& options);

}  // namespace seqpoint::placement

#endif  // SEQPOINT_DAEMON_PLACEMENT_PLANNER_H_
