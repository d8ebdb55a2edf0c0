// MeasurementPlan: the next measurements of a job, for all its processes: entries of the engine's
// plan, single kernels for the roofline, and the lengths whose operators are recorded.
//
// Threading: one thread at a time. Ownership: the plan.
#ifndef DAEMON_JOBS_MEASUREMENT_PLAN_H_
#define DAEMON_JOBS_MEASUREMENT_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/jobs/measurement_budget.h"
#include "daemon/jobs/metric_collection.h"
#include "daemon/jobs/process_table.h"
#include "daemon/jobs/roofline.h"
#include "daemon/jobs/run_engine.h"
#include "daemon/jobs/state.pb.h"
#include "daemon/seqpoint/engine.h"

namespace seqpoint::jobs {

// The measurements of the roofline, which are beyond the budget.
int64_t RooflineBudget(const MetricCollection& metrics);

// The sets and the budget of the engine's plan.
PlanOptions MakePlanOptions(const MetricCollection& metrics, int budget);

class MeasurementPlan {
 public:
  struct Inputs {
    bool has_rule = false;
    bool measured = false;       // the price of a stop is known
    int measurement_budget = 0;  // measured iterations, for each rule
    const OrdersState& orders;
    const ProcessTable& processes;
    const RunEngine& work;  // JobEngines::work()
    const RooflineMeasurements& roofline;
    const MetricCollection& metrics;
    int64_t affordable = 0;  // further measurements
    int ranks_alike = 1;     // ranks that had the same lengths in every step so far
  };
  // True when the plan changed.
  bool Update(const Inputs& inputs);
  void Clear() { entries_.clear(); }

  const std::vector<PlanEntry>& entries() const { return entries_; }
  const std::vector<Key>& operator_lengths() const { return operator_lengths_; }
  // Affordable measurements, with those that were started.
  int64_t affordable_total() const { return affordable_total_; }
  // Why measurements wait; empty when they do not wait.
  const std::string& waits() const { return waits_; }

 private:
  std::vector<PlanEntry> entries_;
  std::vector<Key> operator_lengths_;
  int64_t affordable_total_ = 0;
  std::string waits_;
};

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_MEASUREMENT_PLAN_H_
