// The control block of a process: the level of its library, the rule, and its share of the plan.
//
// Threading: free functions. Ownership: values.
#ifndef DAEMON_JOBS_CONTROL_WRITER_H_
#define DAEMON_JOBS_CONTROL_WRITER_H_

#include <cstdint>

#include "daemon/iterations/learner.h"
#include "daemon/jobs/measurement_budget.h"
#include "daemon/jobs/measurement_plan.h"
#include "daemon/jobs/metric_collection.h"
#include "daemon/jobs/observed_lengths.h"
#include "daemon/jobs/process_table.h"
#include "daemon/jobs/state.pb.h"
#include "injection/abi/control.h"

namespace seqpoint::jobs {

struct ControlInputs {
  const OrdersState& orders;
  const ProcessTable& processes;
  const MetricCollection& metrics;
  const MeasurementPlan& plan;
  const ObservedLengths& observed;
  const MeasurementShares& shares;
  const iterations::LearnedRule* rule = nullptr;  // null: none
  uint32_t channel_period =
      0;  // iterations from one whose collectives are timed to the next; 0: none
  int64_t traced_iteration = -1;  // on all ranks, by the job's number; -1: none
};

// `generation`: of the block; each is a new one.
abi::Control WriteControl(const Process& process, const ControlInputs& inputs, uint32_t generation);

// Puts the plan of a hub's job, for the same process, in place of the one in `control`. It comes
// from another machine: any values. Nothing changes where it has another rule.
void FollowPlan(const abi::Control& hub, abi::Control& control);

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_CONTROL_WRITER_H_
