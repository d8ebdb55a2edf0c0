// Training programs run in full on the software GPU, under a daemon of their own: for what-ifs that
// are judged by running the changed job.
//
//   SoftwareRuns runs;
//   const absl::StatusOr<SoftwareRun> base = runs.Train("base", {"--model", "gnmt"}, "");
//   const auto reply = runs.WhatIf("base", {"cuda-graphs"});
//
// Threading: one thread. Ownership: daemon, sockets, store and files are its own, and go with it.
#ifndef TESTS_WHATIF_SOFTWARE_RUNS_H_
#define TESTS_WHATIF_SOFTWARE_RUNS_H_

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "seqpoint/v1/profiler.pb.h"
#include "tests/support/api.h"
#include "tests/support/temp_folder.h"
#include "tests/support/truth.h"

namespace seqpoint::whatif {

// The times are the program's own (its truth file).
struct SoftwareRun {
  // Under the profiler, without its stops for measuring, which no answer holds.
  double watched_ns = 0;
  double alone_ns = 0;  // without the profiler
  Truth alone;
};

class SoftwareRuns {
 public:
  SoftwareRuns();
  ~SoftwareRuns();

  // Runs seqpoint_workload twice: under `seqpoint run` as job `name`, and alone. `settings`: of the
  // software GPU, as in SWGPU_SET.
  absl::StatusOr<SoftwareRun> Train(const std::string& name,
                                    const std::vector<std::string>& options,
                                    const std::string& settings);
  // Starts the first of these; the caller waits for it. `environment`: "RANK=1".
  pid_t StartTraining(const std::string& name, const std::vector<std::string>& options,
                      const std::string& settings,
                      const std::vector<std::string>& environment = {});
  // A change is steps, as in a file, or a preset.
  absl::StatusOr<v1::WhatIfReply> WhatIf(const std::string& job,
                                         const std::vector<std::string>& changes);

  // `seqpoint ARGUMENTS`, at this daemon: exit status and output, errors in it.
  struct Said {
    int status = 0;
    std::string text;
  };
  Said Seqpoint(const std::vector<std::string>& arguments);
  Api& api() { return api_; }

 private:
  std::vector<std::string> Environment(const std::string& settings) const;
  std::vector<std::string> Command(const std::vector<std::string>& options,
                                   const std::filesystem::path& truth) const;
  std::string Log(const std::string& name) const;

  TempFolder folder_;
  std::filesystem::path bin_;
  pid_t daemon_ = 0;
  Api api_;
};

}  // namespace seqpoint::whatif

#endif  // TESTS_WHATIF_SOFTWARE_RUNS_H_
