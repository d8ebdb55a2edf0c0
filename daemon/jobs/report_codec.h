// Reports as bytes: v1::ReportBatch, in which iterations are columns.
//
//   ReportWriter writer;
//   writer.Add(report); ...
//   std::string bytes = writer.Serialize(); writer.Clear();
//   auto reports = ReadReports(bytes);
//
// The iterations of a process follow each other in columns, ahead of reports of other processes
// that were made in between. Reports in which a process starts, follows a rule, or ends keep their
// place among all others.
//
// Threading: one thread at a time. Ownership: values.
#ifndef DAEMON_JOBS_REPORT_CODEC_H_
#define DAEMON_JOBS_REPORT_CODEC_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/jobs/report.h"
#include "seqpoint/v1/ingest.pb.h"

namespace seqpoint::jobs {

class ReportWriter {
 public:
  void Add(const Report& report);
  bool empty() const { return batch_.reports().empty(); }
  // About as long as Serialize().
  size_t bytes() const { return bytes_; }
  std::string Serialize() const { return batch_.SerializeAsString(); }
  void Clear();

 private:
  // The columns to which the next iteration of a process is added.
  struct Columns {
    v1::ReportedIterations* to = nullptr;
    int64_t next_number = 0;
    int64_t next_boundary_ns = 0;
  };
  void AddIteration(int64_t process_id, const FinishedIteration& iteration);

  v1::ReportBatch batch_;
  std::map<int64_t, Columns> columns_;  // by process
  size_t bytes_ = 0;
};

// Bytes come from another machine. DataLoss: they are not a batch.
absl::StatusOr<std::vector<Report>> ReadReports(std::string_view bytes);

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_REPORT_CODEC_H_
