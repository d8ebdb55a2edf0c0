// A log that another tool wrote becomes a job: ended, with all of its iterations, their times and
// lengths, and a horizon that is the run itself. Nothing of it was measured, but where it comes
// from traces (trace_import.h): there every iteration was.
//
//   absl::StatusOr<ImportedRun> run = ReadImport(request, absl::GetCurrentTimeNanos());
//   absl::StatusOr<std::unique_ptr<Job>> job = StoreImport(*store, row, *run, options);
//
// Threading: free functions; what they make belongs to the caller. Millions of iterations take
// seconds: call them without the daemon's lock.
#ifndef DAEMON_JOBS_IMPORT_H_
#define DAEMON_JOBS_IMPORT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/jobs/job.h"
#include "daemon/seqpoint/key.h"
#include "daemon/store/store.h"
#include "daemon/traces/stored_trace.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::jobs {

// IterationRow::phase of an iteration that is not training.
inline constexpr int32_t kStartUpPhase = 1;
// In words; empty for training.
inline const char* PhaseName(int32_t phase) { return phase == kStartUpPhase ? "start-up" : ""; }

// What the launches of one kernel take together.
struct KernelSum {
  int kernel = 0;  // in ImportedRun::kernel_names
  double time_ns = 0;
  double launches = 0;
};

struct ImportedIteration {
  Key key;
  int64_t start_ns = 0;
  int64_t duration_ns = 0;  // 0: unknown
  bool start_up = false;    // FindStartUp
  bool first = false;       // first training iteration of its length
  // Of traces:
  int64_t boundary_ns = 0;         // its begin on the CPU; 0: start_ns
  bool whole = true;               // all of it was recorded
  std::vector<KernelSum> kernels;  // of all ranks
};

struct ImportedRank {
  int32_t rank = 0;
  std::vector<ImportedIteration> iterations;
};

struct ImportedRun {
  std::string source;  // in words, printable
  int dimensions = 1;  // of a length
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  std::vector<ImportedIteration> iterations;  // steps, all ranks together
  // Of traces, else empty:
  bool traced = false;
  std::vector<ImportedRank> ranks;
  std::vector<std::string> kernel_names;
  std::string boundary_words, length_words;
};

// Start times are laid end to end. The log's columns agree in size and hold what CheckLog allows.
// InvalidArgument for a duration or a run longer than figures can hold: the unit may be wrong.
absl::StatusOr<ImportedRun> ReadImport(const v1::ImportJobRequest& request, int64_t now_ns);

// Makes the job of `row` (id, name, run id) and writes it to the store, piece by piece, the job
// itself last: until then nobody sees it, and what an error or a kill leaves is doomed. While this
// goes on, the store's Prune must be told to keep the job. Errors: as Store::Write.
absl::StatusOr<std::unique_ptr<Job>> StoreImport(
    Store& store, JobRow row, const ImportedRun& run, const JobOptions& options,
    const std::vector<traces::RecordedTrace>& traces = {});

// Foreign text on one line, cut where it is very long.
std::string OneLine(std::string text);

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_IMPORT_H_
