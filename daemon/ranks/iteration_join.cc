#include "daemon/ranks/iteration_join.h"

#include <algorithm>
#include <utility>

namespace seqpoint::ranks {

void IterationJoin::SetRanks(std::set<int32_t> ranks) {
  ranks_ = {.ranks = std::move(ranks)};
  CloseFinished();
}

void IterationJoin::SetAwaited(std::set<int32_t> ranks) {
  if (ranks == awaited_.ranks) return;
  awaited_ = {.ranks = std::move(ranks)};
  CloseFinished();
}

void IterationJoin::SetSize(uint64_t communicator, int32_t ranks) {
  if (sizes_.size() >= kMostCommunicators) sizes_.clear();
  sizes_[communicator] = ranks;
}

void IterationJoin::Add(RankIteration iteration) {
  if (iteration.number < next_) {
    ++losses_.late;
    return;
  }
  newest_ = std::max(newest_, iteration.number);
  int64_t& reported = reported_.try_emplace(iteration.rank, -1).first->second;
  reported = std::max(reported, iteration.number);
  Keep(std::move(iteration));
  CloseFinished();
}

void IterationJoin::Keep(RankIteration iteration) {
  losses_.invalid +=
      static_cast<int64_t>(std::erase_if(iteration.collectives, [&](const Collective& c) {
        return c.end_ns < c.start_ns || c.peer == iteration.rank;
      }));
  std::vector<RankIteration>& reports = open_[iteration.number];
  const auto at = std::lower_bound(
      reports.begin(), reports.end(), iteration.rank,
      [](const RankIteration& report, int32_t rank) { return report.rank < rank; });
  if (at != reports.end() && at->rank == iteration.rank) {
    ++losses_.repeated;
    return;
  }
  collectives_ += iteration.collectives.size();
  reports.insert(at, std::move(iteration));
}

bool IterationJoin::AllReported(int64_t number, Awaited& of) const {
  auto awaited = number > of.number ? of.ranks.begin() : of.ranks.lower_bound(of.below);
  for (; awaited != of.ranks.end(); ++awaited) {
    const auto at = reported_.find(*awaited);
    if (at == reported_.end() || at->second < number) break;
  }
  if (awaited == of.ranks.end()) return true;
  of.number = number;
  of.below = *awaited;
  return false;
}

bool IterationJoin::Finished(int64_t number) {
  const size_t most = awaited_.ranks.empty() ? kMostOpen : kMostAwaiting;
  if (open_.size() > most || open_.size() * reported_.size() > kMostReports ||
      collectives_ > kMostCollectives) {
    return true;
  }
  if (!AllReported(number, awaited_)) return false;
  return number + kPatience <= newest_ || (!ranks_.ranks.empty() && AllReported(number, ranks_));
}

void IterationJoin::CloseFinished() {
  while (!open_.empty() && Finished(open_.begin()->first)) {
    const auto& [number, reports] = *open_.begin();
    for (const RankIteration& report : reports) agreement_.Add(report);
    JoinedIteration joined = MatchCollectives(reports, sizes_, agreement_);
    joined.number = number;
    joined.complete = std::ranges::includes(joined.ranks, ranks_.ranks, {}, &RankPart::rank);
    losses_.incomplete += !joined.complete;
    for (const RankPart& part : joined.ranks) {
      losses_.unmatched += part.unmatched;
      losses_.missed += part.missed;
    }
    for (const RankIteration& report : reports) collectives_ -= report.collectives.size();
    next_ = number + 1;
    joined_.push_back(std::move(joined));
    open_.erase(open_.begin());
  }
}

std::vector<JoinedIteration> IterationJoin::Take() { return std::exchange(joined_, {}); }

}  // namespace seqpoint::ranks
