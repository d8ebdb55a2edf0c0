// RankObservation: what a job of several ranks keeps of its collectives: the numbers that kinds of
// operations and members of communicators have in the whole job, and the monitor of the ranks.
//
//   observation.SetRanks(ranks);                             // that take part now
//   id = observation.KindId("AllReduce\nncclFloat32", 1024); // equal on all ranks
//   observation.AddMember(hash, rank_in_communicator, rank, size);
//   observation.Add(iteration);                              // peers are ranks of the communicator
//
// Threading: one thread at a time. Ownership: everything is its own.
#ifndef DAEMON_JOBS_RANK_OBSERVATION_H_
#define DAEMON_JOBS_RANK_OBSERVATION_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "daemon/jobs/state.pb.h"
#include "daemon/ranks/rank_monitor.h"
#include "seqpoint/v1/ranks.pb.h"

namespace seqpoint::jobs {

class RankObservation {
 public:
  // The number of a kind in the job: the same for all of its processes. 0: there is no room.
  uint32_t KindId(const std::string& text, uint64_t elements);
  // `rank` of the job is in a communicator of `size` ranks; 0: not known.
  void AddMember(uint64_t communicator, int32_t rank_in_communicator, int32_t rank, int32_t size);

  // Ranks whose reports an iteration waits for.
  void SetRanks(std::set<int32_t> ranks);
  const std::set<int32_t>& ranks() const { return ranks_; }
  // ... however far behind they are.
  void SetAwaited(std::set<int32_t> ranks) { monitor_.SetAwaited(std::move(ranks)); }
  void Add(ranks::RankIteration iteration);
  // In which iterations the times of collectives are wanted: every so many; 0: in none, because
  // there is one rank.
  uint32_t period() const;
  // Grows with the verdicts.
  int64_t changes() const { return monitor_.changes(); }
  const ranks::Verdicts& verdicts() const { return monitor_.verdicts(); }
  const ranks::JoinLosses& losses() const { return monitor_.losses(); }

  RankObservationState Save() const;
  void Load(const RankObservationState& from);

 private:
  static constexpr size_t kMostKinds = 1 << 16;
  void AddKind(const std::string& text, uint64_t elements, uint32_t id);

  ranks::RankMonitor monitor_;
  std::set<int32_t> ranks_;
  std::map<std::pair<std::string, uint64_t>, uint32_t> kinds_;
  void TellSize(uint64_t communicator, const CommunicatorMembers& members);
  absl::flat_hash_map<uint64_t, CommunicatorMembers> members_;  // by communicator
};

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_RANK_OBSERVATION_H_
