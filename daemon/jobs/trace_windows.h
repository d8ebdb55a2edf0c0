// TraceWindows: finds the traced GPU work of each iteration of a process.
//
// A window opens and closes with the GPU idle, so its work lies between its two stamps:
//
//   Open(7) -> records ... -> Close(7, begin, end) -> [two readings of the ring] -> Take()
//
// The records of a window were published before its event. The reading that saw the event may have
// looked for records a moment earlier; the next reading has them all. Records are stored before
// they are taken, as a commit moves the ring's cursor past them. After a restart the stored records
// of a window that is open, or was not taken, come back (Restore).
//
// Threading: one thread at a time. Ownership: keeps pending records until they are taken, and a
// bounded number of records outside of any window.
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
  // The events of these windows were lost.
  void ForgetBefore(uint64_t number);

  // From now on all GPU work is recorded, or only that of windows.
  void SetTracing(bool tracing);

  // The ring was read, and no record was left behind.
  void OnRead() { ++readings_; }
  int64_t readings() const { return readings_; }
  // Take() has something.
  bool due() const { return !closed_.empty() && closed_.front().complete_at <= readings_; }

  struct Work {
    uint64_t number = 0;  // of the iteration
    std::vector<abi::DataRecord> records;
    std::string unstored;  // the records that are not stored yet
  };
  // The work of the next window that has all its records; `ended`: no other records will come.
  std::optional<Work> Take(bool ended);

  // The records that must be stored now, by the number of their iteration. While everything is
  // traced, work outside of a window is stored with the open iteration, `next_number`.
  std::map<uint64_t, std::string> TakeUnstored(uint64_t next_number);

  // The iterations that are being traced; Restore() takes their stored records.
  const absl::btree_set<uint64_t>& open() const { return open_; }
  void Restore(std::string_view records);

  void Save(TraceWindowsState* to) const;
  void Load(const TraceWindowsState& from);

 private:
  struct Window {
    uint64_t number = 0;
    int64_t begin_ns = 0, end_ns = 0;
    int64_t complete_at = 0;  // at so many readings
    bool Has(int64_t start_ns) const { return begin_ns <= start_ns && start_ns <= end_ns; }
  };
  bool tracing() const { return tracing_ || was_tracing_; }

  std::vector<abi::DataRecord> pending_;  // their window is not known yet
  size_t stored_ = 0;                     // the first so many are in the store
  absl::btree_set<uint64_t> open_;
  std::deque<Window> closed_;
  bool tracing_ = false, was_tracing_ = false;  // now; since the last TakeUnstored()
  int64_t readings_ = 0;
};

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_TRACE_WINDOWS_H_
