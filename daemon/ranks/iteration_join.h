// IterationJoin: matches the collectives of one iteration on all ranks and says, for each rank, how
// long it worked and how long it waited.
//
//   IterationJoin join;
//   join.SetRanks({0, 1, 2, 3});
//   for (RankIteration& iteration : reports) join.Add(std::move(iteration));
//   for (const JoinedIteration& iteration : join.Take()) ...
//
// A collective ends on all ranks together, so its duration on the rank that arrives last is the
// transfer alone, and what it takes longer elsewhere is waiting: nothing else is compared.
// docs/internals/ranks.md has the definitions and their limits.
//
// An iteration is joined when each rank of SetRanks has reported it or a later one, or when it is
// kPatience iterations behind the newest and no rank of SetAwaited is missing. A report that comes
// later is counted and dropped.
// Collectives that a rank did not report (dropped records) are matched on the other ranks only, and
// counted.
//
// Threading: one thread. Ownership: values. Units: ns.
// Memory: at most kMostOpen iterations (kMostAwaiting where ranks are awaited) and kMostCollectives
// collectives; the oldest iteration is joined early beyond that.
#ifndef SEQPOINT_DAEMON_RANKS_ITERATION_JOIN_H_
#define SEQPOINT_DAEMON_RANKS_ITERATION_JOIN_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "daemon/ranks/collective_match.h"
#include "daemon/ranks/rank_iteration.h"

namespace seqpoint::ranks {

// Everything that was not used, since the start.
struct JoinLosses {
  int64_t late = 0;        // reports of iterations that were joined already
  int64_t repeated = 0;    // second reports of one rank for one iteration
  int64_t incomplete = 0;  // iterations that were joined without a report of each rank
  int64_t unmatched = 0;   // RankPart::unmatched
  int64_t missed = 0;      // RankPart::missed
  int64_t invalid = 0;     // collectives that end before they start, or with their own rank
};

class IterationJoin {
 public:
  // The ranks whose reports an iteration waits for. Others may report, too.
  void SetRanks(std::set<int32_t> ranks);
  // Ranks that an iteration waits for however far it is behind.
  void SetAwaited(std::set<int32_t> ranks);
  // How many ranks the communicator has. Without it, those that were seen count as all.
  void SetSize(uint64_t communicator, int32_t ranks);

  // An iteration without collectives was not observed: only its lengths and its time are known.
  void Add(RankIteration iteration);

  // Iterations that were joined since the last call, by number.
  std::vector<JoinedIteration> Take();

  const JoinLosses& losses() const { return losses_; }
  void SetLosses(const JoinLosses& losses) { losses_ = losses; }

  static constexpr int64_t kPatience = 128;  // iterations, as StepBuilder
  static constexpr size_t kMostOpen = 128;
  static constexpr size_t kMostAwaiting = 1 << 14;     // iterations, as StepBuilder
  static constexpr size_t kMostReports = 1 << 20;      // of open iterations; 100 MB or so
  static constexpr size_t kMostCollectives = 1 << 20;  // 48 MB
  static constexpr size_t kMostCommunicators = 1 << 16;

 private:
  void Keep(RankIteration iteration);
  struct Awaited {
    std::set<int32_t> ranks;
    // Each of them that is below has reported this iteration or a later one.
    int64_t number = -1;
    int32_t below = 0;
  };
  // O(log ranks) for each call and each rank that has reported the iteration since the last call.
  bool AllReported(int64_t number, Awaited& of) const;
  bool Finished(int64_t number);
  void CloseFinished();

  Awaited ranks_;
  Awaited awaited_;  // of SetAwaited
  absl::flat_hash_map<uint64_t, int32_t> sizes_;
  RankAgreement agreement_;
  std::map<int32_t, int64_t> reported_;                 // by rank, the number of its newest report
  int64_t newest_ = -1;                                 // of all ranks
  int64_t next_ = 0;                                    // iterations below it are joined
  std::map<int64_t, std::vector<RankIteration>> open_;  // by number; the reports by rank
  size_t collectives_ = 0;                              // of open iterations
  std::vector<JoinedIteration> joined_;
  JoinLosses losses_;
};

}  // namespace seqpoint::ranks

#endif  // SEQPOINT_DAEMON_RANKS_ITERATION_JOIN_H_
