// Orders: the orders of clients for a job: pause, release, a level, a budget, recordings.
//
// Threading: one thread at a time. Ownership: values only.
#ifndef DAEMON_JOBS_ORDERS_H_
#define DAEMON_JOBS_ORDERS_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "daemon/jobs/state.pb.h"
#include "seqpoint/v1/ingest.pb.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::jobs {

class Orders {
 public:
  explicit Orders(double overhead_budget_share) {
    state_.set_overhead_budget_share(overhead_budget_share);
  }

  // `iterations`: of the job so far; `can_trace`: a process may have CUPTI. `gap` is set where the
  // figures lack a part of the run, or a part took longer, due to this order. Errors:
  // InvalidArgument, FailedPrecondition.
  absl::Status Apply(const v1::ControlRequest& request, int64_t iterations, bool can_trace,
                     std::string& gap);
  // The orders of a hub's clients replace all others. False: they were followed before.
  bool Follow(const v1::HubOrders& hub, int64_t iterations, std::string& gap);
  // For the nodes of a hub. Nothing: no client gave an order. `since_ns`: of the job; a hub that
  // lost its store numbers the orders of a job higher than before.
  void Number(int64_t since_ns) { state_.set_number(std::max(state_.number(), since_ns) + 1); }
  std::optional<v1::HubOrders> ForNodes() const;
  void SetOverheadBudget(double share) { state_.set_overhead_budget_share(share); }
  // Has the process of rank 0 record the operators of SeqPoints' iterations, into this folder.
  void RecordOperators(const std::string& folder) { state_.set_operators_folder(folder); }
  // For the next control block.
  uint32_t NextGeneration() {
    state_.set_control_generation(state_.control_generation() + 1);
    return state_.control_generation();
  }

  bool traces_everything() const { return state_.forced_level() == v1::LEVEL_TRACE; }
  const OrdersState& state() const { return state_; }
  void Load(const OrdersState& state) { state_ = state; }

 private:
  void Return(int64_t iterations, std::string& gap);
  absl::Status SetLevel(v1::Level level, int64_t iterations, bool can_trace, std::string& gap);

  OrdersState state_;
};

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_ORDERS_H_
