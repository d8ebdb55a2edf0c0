// ProcessTable: the processes of a job by id, and the place of each in the job, which follows from
// its rank and from the other processes of that rank.
//
// When a run is resumed, the processes of a rank (its incarnations) come one after the other. Where
// they run at the same time, the first that came and trains is counted and measured. The others are
// concurrent: they are in the log alone.
//
// Threading: one thread at a time. Ownership: the processes.
#ifndef DAEMON_JOBS_PROCESS_TABLE_H_
#define DAEMON_JOBS_PROCESS_TABLE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "daemon/jobs/process.h"
#include "daemon/jobs/rank_table.h"

namespace seqpoint::jobs {

enum class Role : uint8_t {
  kCounted,
  kConcurrent,  // another process of the rank trains
  kOpen,        // an earlier process may still turn out to train
};

class ProcessTable {
 public:
  using Map = std::map<int64_t, std::unique_ptr<Process>>;

  Map::const_iterator begin() const { return processes_.begin(); }
  Map::const_iterator end() const { return processes_.end(); }
  bool empty() const { return processes_.empty(); }
  size_t size() const { return processes_.size(); }
  bool contains(int64_t process_id) const { return processes_.contains(process_id); }
  Process& at(int64_t process_id) { return *processes_.at(process_id); }
  const Process& at(int64_t process_id) const { return *processes_.at(process_id); }
  Process& Add(std::unique_ptr<Process> process);
  void Clear() {
    processes_.clear();
    ranks_.clear();
  }

  // Its processes, in the order in which they came.
  const std::vector<Process*>& OfRank(int32_t rank) const;

  bool live() const;
  bool HasLive(int32_t rank) const;
  // All processes have the same rank.
  bool one_rank() const { return ranks_.size() <= 1; }
  bool any_reported() const;  // by a node
  size_t rank_count() const { return ranks_.size(); }
  // Ranks of which a live process is counted.
  std::set<int32_t> LiveRanks() const;
  // Each live process' ring was read since the daemon started. Reported ones have none.
  bool all_read() const;
  int32_t NextIncarnation(int32_t rank) const;
  // The last process of each rank: of those for which `counts` holds, where there are any.
  std::map<int32_t, const Process*> LastOfRanks(const std::function<bool(const Process&)>& counts =
                                                    [](const Process&) { return true; }) const;

  // It depends on the records of the processes, not on how far the daemon is with reading each.
  Role RoleOf(const Process& process) const;

  // Numbers the iterations of a process that had none from its rank's next one on, until it is
  // known which it repeats. `gone`: processes that do not run any more, though their last records
  // are not read yet.
  void Place(Process& process, const RankTable& ranks, const std::set<int64_t>& gone) const;
  // The process has another rank from now on, whose newest incarnation it is. Returns the processes
  // of its former rank that were buffered because of it alone. It is to be placed then.
  std::vector<Process*> Move(Process& process, int32_t rank);
  // The processes of other ranks that run and started when this one did, not when the rank's
  // process before did.
  std::vector<const Process*> StartedWith(const Process& process) const;
  // Those of StartedWith() that tell of collectives; none where `process` does not.
  std::vector<const Process*> MayShowNumbers(const Process& process) const;
  // Processes of the rank repeat each other's iterations.
  void SetRepeats(int32_t rank) const;
  // Whether a process of the same rank that ended well started at one of `numbers`.
  bool StartsLikeEnded(const Process& process, const std::vector<int64_t>& numbers) const;

 private:
  int64_t FirstNumber(const Process& process, const RankTable& ranks) const;

  Map processes_;
  std::map<int32_t, std::vector<Process*>> ranks_;
};

// By how many more iterations than `process` each of `others` has counted up to the same one, where
// a collective of both shows it, or of both and a third one.
std::map<const Process*, int64_t> CountedMore(const Process& process,
                                              const std::vector<const Process*>& others);

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_PROCESS_TABLE_H_
