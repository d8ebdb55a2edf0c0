// One run of the whole path, from a launch on the software GPU to the store: the launcher under
// libseqpoint_inject.so, as users have it, and a seqpointd of its own. Nobody is asked who could
// know it wrong: what was sent is the launcher's count, what arrived is counted in the database
// file by a second reader of it.
//
// How long a record takes from publication to commit is measured from outside, by one thread that
// looks about once a millisecond at
//   * the ring's directory, through the same memory that the process writes: how many data records
//     were published so far;
//   * the database, as any other SQLite client: how many of them the committed cursor has.
// A record counts as published at the look before the one that first saw it, and as committed at
// the look that first saw it: both errors make the time longer.
//
// Threading: one thread. Ownership: of its processes and of its folder, which goes with it.
#ifndef SEQPOINT_TESTS_BENCHMARK_PATH_RUN_H_
#define SEQPOINT_TESTS_BENCHMARK_PATH_RUN_H_

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "injection/abi/ring.h"
#include "seqpoint/v1/profiler.pb.h"
#include "tests/support/temp_folder.h"

namespace seqpoint {

// Times in milliseconds, in buckets of one; more than the last bucket counts as the last.
class Latencies {
 public:
  void Add(double ms, uint64_t count);
  uint64_t count() const { return count_; }
  double Quantile(double share) const;  // upper end of the bucket
  double max_ms() const { return max_ms_; }

 private:
  std::vector<uint64_t> buckets_ = std::vector<uint64_t>(60'000);
  uint64_t count_ = 0;
  double max_ms_ = 0;
};

struct PathResult {
  std::map<std::string, double> launcher;  // what it printed
  v1::Losses losses;                       // of the whole job
  v1::Rule rule;
  abi::RingHeader header = {};  // of the ring, after the process has ended
  bool complete = false;        // no look at the ring missed a record
  uint64_t calls = 0;           // call records in the store, each number once
  uint64_t kernels = 0;         // kernel records in the store, from the mark on
  uint64_t api_calls = 0;       // records of driver calls, from the mark on
  uint64_t records = 0;         // all trace records in the store
  Latencies publish_to_commit;  // data records, from the mark on
  Latencies end_to_commit;      // from a kernel's end on the GPU, from the mark on
  double launcher_cpu_s = 0, daemon_cpu_s = 0;
  double seconds = 0;  // in which the launcher was watched
  int64_t store_bytes = 0;
};

class PathRun {
 public:
  ~PathRun();

  // Starts daemon and launcher; `environment` is for the launcher alone.
  absl::Status Start(const std::vector<std::string>& launcher_options,
                     const std::map<std::string, std::string>& environment);
  // Waits for the rule, forces level trace and waits for it; then sends the mark. Up to a minute.
  absl::Status TraceAll();
  // Watches ring and store until the launcher and the job have ended.
  absl::StatusOr<PathResult> Finish();

 private:
  class Watch;
  absl::StatusOr<v1::Job> GetJob();
  std::map<std::string, double> LauncherWords() const;

  const TempFolder temp_folder_;
  const std::filesystem::path& folder_ = temp_folder_.path();
  pid_t daemon_ = 0;
  pid_t launcher_ = 0;
};

}  // namespace seqpoint

#endif  // SEQPOINT_TESTS_BENCHMARK_PATH_RUN_H_
