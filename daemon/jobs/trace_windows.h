// TraceWindows: which traced GPU work of a process belongs to which iteration.
//
// A window opens and closes with the GPU idle, so its work lies between its two stamps:
//
//   Open(7) -> records ... -> Close(7, begin, end) -> [two readings of the ring] -> Take()
//
// Its records were published before its event, but the reading that saw the event may have looked
// for records a moment earlier; the next one has them all. Records are stored before they are
// taken, as a commit moves the ring's cursor past them: of a window that is open, or not taken yet,
// they come back after a restart (Restore).
//
// Threading: one thread. Ownership: keeps the records until they are taken; of those outside of any
// window a bounded number.
#ifndef DAEMON_JOBS_TRACE_WINDOWS_H_
#define DAEMON_JOBS_TRACE_WINDOWS_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/btree_set.h"
#include "daemon/jobs/state.pb.h"
#include "injection/abi/records.h"

namespace seqpoint::jobs {

class TraceWindows {
 public:
  void Add(const abi::DataRecord& record) { pending_.push_back(record); }

  // Iteration `number` is being traced.
  void Open(uint64_t number) { open_.insert(number); }
  bool IsOpen(uint64_t number) const { return open_.contains(number); }
  void Close(uint64_t number, int64_t begin_ns, int64_t end_ns);
  void GiveUp(uint64_t number) { open_.erase(number); }
  // Those whose event was lost.
  void ForgetBefore(uint64_t number);

  // All GPU work is recorded from now on, or not any more.
  void SetTracing(bool tracing);

  // The ring was read, and no record was left behind.
  void OnRead() { ++readings_; }
  int64_t readings() const { return readings_; }
  // Take() has something.
  bool due() const { return !closed_.empty() && closed_.front().complete_at <= readings_; }

  struct Work {
    uint64_t number = 0;  // of the iteration
    std::vector<abi::DataRecord> records;
    std::string unsaved;  // those of them that are not stored yet
  };
  // The work of the next window whose records are all here; `ended`: no others will come.
  std::optional<Work> Take(bool ended);

  // What must be stored now, by the iteration's number. While everything is traced, work of no
  // window is stored with the iteration that is open, `next_number`.
  std::map<uint64_t, std::string> TakeUnsaved(uint64_t next_number);

  // Iterations that are being traced, whose stored records come back by Restore().
  const absl::btree_set<uint64_t>& open() const { return open_; }
  void Restore(std::string_view records);

  void Save(TraceWindowsState* to) const;
  void Load(const TraceWindowsState& from);

 private:
  struct Window {
    uint64_t number = 0;
    int64_t begin_ns = 0, end_ns = 0;
    int64_t complete_at = 0;  // in `readings_`
    bool Has(int64_t start_ns) const { return begin_ns <= start_ns && start_ns <= end_ns; }
  };
  bool tracing() const { return tracing_ || was_tracing_; }

  std::vector<abi::DataRecord> pending_;  // whose window is not known yet
  size_t saved_ = 0;                      // the first of them, which are in the store
  absl::btree_set<uint64_t> open_;
  std::deque<Window> closed_;
  bool tracing_ = false, was_tracing_ = false;  // now; since the last TakeUnsaved()
  int64_t readings_ = 0;
};

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_TRACE_WINDOWS_H_
