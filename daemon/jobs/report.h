// Report: what one process contributed to its job: an iteration that is over, or an event that is
// no part of an iteration. A node's job makes reports of the rings of its processes, and the job of
// the same run on a hub is made of the reports of all nodes (docs/internals/cluster.md).
//
//   reports.Add(Report{.process_id = 7, .what = iteration});       on the node
//   for (const Report& report : reports.Take()) ...
//
// Numbers of iterations are those of the process, from 0.
//
// Threading, ownership: values.
#ifndef DAEMON_JOBS_REPORT_H_
#define DAEMON_JOBS_REPORT_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/types/span.h"
#include "daemon/jobs/process.h"
#include "daemon/jobs/state.pb.h"
#include "injection/abi/records.h"
#include "seqpoint/v1/ingest.pb.h"

namespace seqpoint::jobs {

struct Report {
  using What =
      std::variant<v1::ReportedProcess, v1::ReportedRule, FinishedIteration, v1::ReportedEvent,
                   abi::DataRecord, v1::ReportedWork, v1::ReportedLosses, v1::ReportedEnd,
                   v1::Horizon, v1::ReportedProgramEnd>;
  int64_t process_id = 0;
  What what;
};

// Events that are not reported, since iterations say what they say.
bool IsOfIterations(abi::EventType type, absl::Span<const uint8_t> payload);

// The reports of a job since they were taken last; none where it makes none.
class Reports {
 public:
  explicit Reports(bool on) : on_(on) {}
  bool on() const { return on_; }
  void Add(int64_t process_id, Report::What what) {
    if (on_) reports_.push_back({process_id, std::move(what)});
  }
  // False: the process' name was reported before.
  bool AddName(int64_t process_id, uint32_t name_id) {
    return names_.emplace(process_id, name_id).second;
  }
  // Only where they differ from those that were reported of the process before: clock and missing
  // calls change without a loss.
  void AddLosses(int64_t process_id, v1::ReportedLosses losses) {
    if (!on_) return;
    std::string& before = losses_[process_id];
    std::string now = losses.SerializeAsString();
    if (now == before) return;
    before = std::move(now);
    Add(process_id, std::move(losses));
  }
  std::vector<Report> Take() { return std::exchange(reports_, {}); }
  bool empty() const { return reports_.empty(); }

 private:
  const bool on_;
  std::vector<Report> reports_;
  // Reported since the daemon was started.
  std::set<std::pair<int64_t, uint32_t>> names_;
  std::map<int64_t, std::string> losses_;  // serialized, by process
};

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_REPORT_H_
