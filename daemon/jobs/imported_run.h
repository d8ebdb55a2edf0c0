// ImportedRun: a run that another tool recorded, as a log or as traces.
//
// Threading: values.
#ifndef DAEMON_JOBS_IMPORTED_RUN_H_
#define DAEMON_JOBS_IMPORTED_RUN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/seqpoint/key.h"

namespace seqpoint::jobs {

// IterationRow::phase of an iteration that is not training.
inline constexpr int32_t kStartUpPhase = 1;
// In words; empty for training.
inline const char* PhaseName(int32_t phase) { return phase == kStartUpPhase ? "start-up" : ""; }

// The sums over the launches of one kernel.
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
  // An iteration of a trace has these, too:
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
  // A run from traces has these, too; else they are empty:
  bool traced = false;
  std::vector<ImportedRank> ranks;
  std::vector<std::string> kernel_names;
  std::string boundary_words, length_words;
};

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_IMPORTED_RUN_H_
