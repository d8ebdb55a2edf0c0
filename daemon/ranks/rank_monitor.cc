#include "daemon/ranks/rank_monitor.h"

#include <utility>

namespace seqpoint::ranks {

// Joins only: the tests follow.
class RankMonitor::Impl {
 public:
  IterationJoin join;
  RankMonitorState state;
};

RankMonitor::RankMonitor() : impl_(std::make_unique<Impl>()) {}
RankMonitor::~RankMonitor() = default;
RankMonitor::RankMonitor(RankMonitor&&) noexcept = default;
RankMonitor& RankMonitor::operator=(RankMonitor&&) noexcept = default;

void RankMonitor::SetRanks(std::set<int32_t> ranks) { impl_->join.SetRanks(std::move(ranks)); }
void RankMonitor::SetSize(uint64_t communicator, int32_t ranks) {
  impl_->join.SetSize(communicator, ranks);
}
void RankMonitor::Add(RankIteration iteration) {
  impl_->join.Add(std::move(iteration));
  impl_->join.Take();
}
bool RankMonitor::wants_every_iteration() const { return true; }
const Verdicts& RankMonitor::verdicts() const { return impl_->state.verdicts; }
int64_t RankMonitor::changes() const { return impl_->state.changes; }
const JoinLosses& RankMonitor::losses() const { return impl_->join.losses(); }
RankMonitorState RankMonitor::Save() const { return impl_->state; }
void RankMonitor::Load(const RankMonitorState& state) { impl_->state = state; }

}  // namespace seqpoint::ranks
