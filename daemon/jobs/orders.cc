#include "daemon/jobs/orders.h"

#include "absl/strings/str_cat.h"

namespace seqpoint::jobs {

absl::Status Orders::Apply(const v1::ControlRequest& request, int64_t iterations, bool can_trace,
                           std::string& gap) {
  const double share = request.overhead_budget_share();
  switch (request.action()) {
    case v1::ControlRequest::ACTION_PAUSE:
      state_.set_paused(true);
      return absl::OkStatus();
    case v1::ControlRequest::ACTION_RESUME:
      Return(iterations, gap);
      state_.set_paused(false);
      return absl::OkStatus();
    case v1::ControlRequest::ACTION_RELEASE_CUPTI:
      state_.set_released(true);
      return absl::OkStatus();
    case v1::ControlRequest::ACTION_SET_LEVEL:
      return SetLevel(request.level(), iterations, can_trace, gap);
    case v1::ControlRequest::ACTION_SET_OVERHEAD_BUDGET:
      if (!(share >= 0 && share <= 1)) {
        return absl::InvalidArgumentError(
            absl::StrCat("overhead_budget_share: ", share, " is not in [0, 1]"));
      }
      state_.set_overhead_budget_share(share);
      return absl::OkStatus();
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("action: ", static_cast<int>(request.action()), " is unknown"));
  }
}

bool Orders::Follow(const v1::HubOrders& hub, int64_t iterations, std::string& gap) {
  if (hub.number() <= state_.hub_number()) return false;
  state_.set_hub_number(hub.number());
  state_.set_paused(hub.paused());
  if (hub.released()) {
    state_.set_released(true);
  } else {
    Return(iterations, gap);
  }
  const double share = hub.overhead_budget_share();
  if (share >= 0 && share <= 1) state_.set_overhead_budget_share(share);
  // Whether a rank can be traced the hub has asked; those of this node may not have said it yet.
  if (hub.level() != state_.forced_level()) {
    SetLevel(hub.level(), iterations, /*can_trace=*/true, gap).IgnoreError();
  }
  return true;
}

std::optional<v1::HubOrders> Orders::ForNodes() const {
  if (state_.number() == 0) return std::nullopt;
  v1::HubOrders orders;
  orders.set_number(state_.number());
  orders.set_paused(state_.paused());
  orders.set_released(state_.released());
  orders.set_level(state_.forced_level());
  orders.set_overhead_budget_share(state_.overhead_budget_share());
  return orders;
}

void Orders::Return(int64_t iterations, std::string& gap) {
  if (state_.released()) {
    gap = absl::StrCat("the process was released for a while",
                       iterations > 0 ? absl::StrCat(" around iteration ", iterations) : "",
                       ": what it did meanwhile was not seen and is in no figure");
  }
  state_.set_released(false);
}

absl::Status Orders::SetLevel(v1::Level level, int64_t iterations, bool can_trace,
                              std::string& gap) {
  if (level != v1::LEVEL_UNSPECIFIED && level != v1::LEVEL_MARK && level != v1::LEVEL_TRACE) {
    return absl::InvalidArgumentError(absl::StrCat(
        "level: ", static_cast<int>(level),
        " cannot be kept; there are MARK (nothing is measured), TRACE (all GPU work is recorded) "
        "and UNSPECIFIED (the daemon chooses)"));
  }
  if (level == v1::LEVEL_TRACE && !can_trace) {
    return absl::FailedPreconditionError(
        "level: the processes of this job do not use a GPU, or do not have CUPTI: there is no GPU "
        "work to trace");
  }
  if (level == v1::LEVEL_TRACE) {
    state_.set_traced_from(iterations);
    gap = absl::StrCat("all GPU work is traced by request, from iteration ", iterations,
                       " on: iterations take longer for it, and the figures hold them as they are "
                       "(seqpoint control JOB level auto)");
  } else if (traces_everything()) {
    gap = absl::StrCat("all GPU work was traced by request between iterations ",
                       state_.traced_from(), " and ", iterations,
                       ", which took longer for it; the figures hold them as they were");
  }
  state_.set_forced_level(level);
  return absl::OkStatus();
}

}  // namespace seqpoint::jobs
