// RankMonitor: says which rank of a job is slow, since when and by how much; whether ranks wait
// because their lengths differ; and which transfers have become slow.
//
//   RankMonitor monitor;
//   monitor.SetRanks({0, 1, 2, 3});
//   monitor.Add(iteration);  // of each rank, of each iteration
//   if (monitor.changes() != seen) Show(monitor.verdicts());
//   Observe(monitor.wants_every_iteration() ? 1 : RankMonitor::kPeriod);
//
// All ranks should report the collectives of the same iterations: of every kPeriod-th one
// (number % kPeriod == 0), and of each one while wants_every_iteration(). Other iterations are
// reported without collectives: their lengths and times tell what is lost because lengths differ,
// and what a slow rank costs.
// docs/internals/ranks.md has the tests and their error rates: a job of even ranks is called uneven
// in 10,000 iterations with a probability of at most 1 %, however many ranks it has.
//
// Threading: one thread. Ownership: values; no clock, no I/O. Units: ns, relative shares.
// Memory: bounded by the number of ranks, communicators and kinds, whatever the length of the run.
#ifndef SEQPOINT_DAEMON_RANKS_RANK_MONITOR_H_
#define SEQPOINT_DAEMON_RANKS_RANK_MONITOR_H_

#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include "daemon/ranks/iteration_join.h"
#include "daemon/ranks/rank_iteration.h"
#include "daemon/ranks/straggler_detector.h"
#include "daemon/ranks/verdict.h"

namespace seqpoint::ranks {

// All that has to outlive the process. `verdicts` and `losses` are for everybody; `learned` is what
// the tests know, and only the version that wrote it reads it. Open iterations are not in it.
struct RankMonitorState {
  Verdicts verdicts;
  JoinLosses losses;
  int64_t changes = 0;
  int32_t version = 0;
  std::vector<double> learned;
};

class RankMonitor {
 public:
  RankMonitor();
  ~RankMonitor();
  RankMonitor(RankMonitor&&) noexcept;
  RankMonitor& operator=(RankMonitor&&) noexcept;

  // As IterationJoin. The episode of a rank that is gone is over.
  void SetRanks(std::set<int32_t> ranks);
  void SetAwaited(std::set<int32_t> ranks);
  void SetSize(uint64_t communicator, int32_t ranks);
  // A Collective::kind has so many elements. `function` is a number for the operation with the type
  // of its elements: what is learned is saved under it, the sizes are not.
  void SetKind(uint32_t kind, uint64_t function, uint64_t elements);
  void Add(RankIteration iteration);

  // Until something is known, and while a rank or link is under suspicion.
  bool wants_every_iteration() const;

  const Verdicts& verdicts() const;
  // Grows when a course, an episode, a link or the finding of an imbalance begins or ends. Figures
  // change more often.
  int64_t changes() const;
  const JoinLosses& losses() const;

  RankMonitorState Save() const;
  // For a monitor to which nothing was added. Verdicts are kept in any case; what another version
  // learned, or what is damaged, is learned again.
  void Load(const RankMonitorState& state);

  static constexpr int64_t kPeriod = kObservedPeriod;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace seqpoint::ranks

#endif  // SEQPOINT_DAEMON_RANKS_RANK_MONITOR_H_
