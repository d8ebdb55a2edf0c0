// ProcessCollectives: what the records of a process say of NCCL's operations. It joins them to the
// iterations of the process, and knows the last call of each communicator.
//
//   collectives.OnCommunicator(event, name); collectives.OnKind(event.kind, id_in_job);
//   collectives.OnRecord(record);                     // any order
//   collectives.OnIteration(number, iteration);       // as iterations finish
//   collectives.OnRead();                             // the ring was read, nothing was left behind
//   for (ranks::RankIteration& iteration : collectives.TakeJoined(ended)) ...
//
// Iterations are handed out in order. One is joined once it is over, the next one has begun, and it
// has all the GPU times that were announced. A reading of the ring may see an event and not yet a
// record that was written before it; the next reading has it. NCCL tells the times from a thread of
// its own, some time after the GPU. An iteration that still lacks times after kPatience readings is
// handed out as distorted.
//
// Numbers are those of the library. Bytes come from another program: any values.
//
// Threading: one thread at a time. Memory: at most kMostPending iterations, kMostOperations
// operations and kMarks marks, whatever comes.
#ifndef DAEMON_JOBS_PROCESS_COLLECTIVES_H_
#define DAEMON_JOBS_PROCESS_COLLECTIVES_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "daemon/jobs/state.pb.h"
#include "daemon/ranks/iteration_join.h"
#include "daemon/ranks/stuck.h"
#include "daemon/ranks/window_join.h"
#include "injection/abi/records.h"

namespace seqpoint::jobs {

// A record in the words of NCCL. Nothing: its communicator or kind is not known.
std::optional<ranks::CollectiveRecord> NamedCollective(const abi::CollectiveRecord& record,
                                                       const CollectivesState& names);

class ProcessCollectives {
 public:
  static constexpr int64_t kPatience = 64;  // readings, which are 1 to 10 ms apart
  static constexpr size_t kMostPending = 4096;
  static constexpr size_t kMostOperations = 1 << 18;
  // SameIteration() remembers so many: 64 iterations of 16 communicators, as long as a resumed
  // process is compared (ResumeAligner::kMaxIterations).
  static constexpr size_t kMarks = 1024;

  // False: it contradicts an earlier one, or there are too many.
  bool OnCommunicator(const abi::CommunicatorEvent& event, const std::string& name);
  // `id`: of the kind in the job.
  bool OnKind(const abi::CollectiveKindEvent& event, uint32_t id, const std::string& function,
              const std::string& datatype);
  // False: it refers to what was not announced.
  bool OnRecord(const abi::DataRecord& record);

  // The iteration is over; its collectives are added.
  void OnIteration(uint64_t number, ranks::RankIteration iteration);
  void OnRead() { ++readings_; }
  // `ended`: no other records will come.
  std::vector<ranks::RankIteration> TakeJoined(bool ended);
  // Iterations that came to be handed out without all their times, or that were dropped.
  int64_t incomplete() const { return incomplete_; }

  // How far the host's calls are.
  const std::map<uint64_t, ranks::RankCalls::Communicator>& calls() const { return calls_; }
  int64_t operations() const { return operations_; }
  bool any_calls() const;  // also before the daemon was started
  // An iteration of this process, and the same one of `other`, by the library's numbers of each:
  // the ranks of a communicator number its collectives alike. Nothing: none of the last kMarks of
  // both is the same. At most kMarks lookups.
  std::optional<std::pair<uint64_t, uint64_t>> SameIteration(const ProcessCollectives& other) const;
  // Without one there is nothing to join.
  bool has_communicators() const { return !state_.communicators().empty(); }
  // Communicators and kinds.
  const CollectivesState& names() const { return state_; }

  CollectivesState Save() const;
  void Load(const CollectivesState& from);

 private:
  struct Pending {
    int64_t timed = 0;  // operations whose times are announced
    std::vector<ranks::Collective> collectives;
    std::optional<ranks::RankIteration> iteration;
    int64_t over_at = 0;  // the reading that saw its end
  };
  // A collective: hash of the communicator, kind in the job, and number.
  using Mark = std::tuple<uint64_t, uint32_t, uint32_t>;
  void AddArrivals(const abi::ArrivalsRecord& record, const CommunicatorState& communicator);
  void AddMark(const abi::ArrivalsRecord& record, const CommunicatorState& communicator);
  void AddTimes(const abi::CollectiveRecord& record, const CommunicatorState& communicator);
  void NoteCall(const CommunicatorState& communicator, uint16_t kind, uint32_t sequence,
                int64_t at_ns);
  const CollectiveKindState& KindOf(uint16_t kind) const;  // without a function: unknown
  Pending& Find(uint64_t number);
  void Drop(std::map<uint64_t, Pending>::iterator at);

  CollectivesState state_;                                    // without calls
  std::map<uint64_t, ranks::RankCalls::Communicator> calls_;  // by the communicator's hash
  std::map<uint64_t, Pending> pending_;                       // by the number of the iteration
  // Iterations of the first collective of each communicator in the last iterations, oldest first.
  absl::flat_hash_map<Mark, uint64_t> marks_;
  std::deque<Mark> mark_order_;
  std::map<uint64_t, uint64_t> marked_;  // by the communicator's hash, its last one
  size_t pending_operations_ = 0;
  uint64_t next_ = 0;  // after the last iteration that is over
  int64_t readings_ = 0;
  int64_t incomplete_ = 0;
  int64_t operations_ = 0;
};

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_PROCESS_COLLECTIVES_H_
