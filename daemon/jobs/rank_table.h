// RankTable: how far the ranks of a job are, and which ones started last.
//
// Threading: one thread at a time. Ownership: values only.
#ifndef DAEMON_JOBS_RANK_TABLE_H_
#define DAEMON_JOBS_RANK_TABLE_H_

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <vector>

#include "daemon/base/horizon.h"
#include "daemon/jobs/state.pb.h"

namespace seqpoint::jobs {

class RankTable {
 public:
  // All processes of a start say how many ranks there are; some of those may be elsewhere.
  void Start() {
    started_.clear();
    world_size_ = 1;
  }
  void Add(int32_t rank, int64_t world_size) {
    started_.insert(rank);
    SetWorldSize(world_size);
  }
  void Remove(int32_t rank) { started_.erase(rank); }
  void SetWorldSize(int64_t world_size) { world_size_ = std::max(world_size_, world_size); }

  // The part of `all`, which is meant for the whole world, that falls to these ranks; rounded up.
  int64_t ShareOf(int64_t all) const {
    const int64_t here = std::max<int64_t>(std::ssize(started_), 1);
    const int64_t ranks = std::max(world_size(), here);
    return (all * here + ranks - 1) / ranks;
  }

  // That had iterations, of those that started together last; at least one.
  int64_t working() const { return std::max<int64_t>(std::ssize(started()), 1); }
  // The same ranks; none where no process is known.
  std::vector<int32_t> started() const {
    std::vector<int32_t> ranks;
    std::copy_if(started_.begin(), started_.end(), std::back_inserter(ranks),
                 [&](int32_t rank) { return next_.contains(rank); });
    return ranks;
  }
  int64_t world_size() const { return std::min(std::max(world_size_, working()), kMaxRanks); }

  // The number after the rank's last iteration, of those ranks that had one.
  const std::map<int32_t, int64_t>& next_numbers() const { return next_; }
  int64_t NextNumber(int32_t rank) const {
    const auto it = next_.find(rank);
    return it == next_.end() ? 0 : it->second;
  }
  int64_t LargestNextNumber() const {
    int64_t largest = 0;
    for (const auto& [rank, next] : next_) largest = std::max(largest, next);
    return largest;
  }
  void Advance(int32_t rank, int64_t next) { next_[rank] = std::max(next_[rank], next); }

  void Save(RanksState* to) const {
    to->mutable_next_number()->insert(next_.begin(), next_.end());
    to->mutable_started()->Add(started_.begin(), started_.end());
    to->set_world_size(world_size_);
  }
  void Load(const RanksState& from) {
    next_.insert(from.next_number().begin(), from.next_number().end());
    started_.insert(from.started().begin(), from.started().end());
    SetWorldSize(from.world_size());
  }

 private:
  std::map<int32_t, int64_t> next_;
  std::set<int32_t> started_;
  int64_t world_size_ = 1;
};

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_RANK_TABLE_H_
