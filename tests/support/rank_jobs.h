// Trainings of several ranks on the software GPU under one daemon, for tests and benchmarks: real
// processes, started as torchrun starts them.
//
// Threading: one thread. Ownership: the daemon and its folder.
#ifndef SEQPOINT_TESTS_SUPPORT_RANK_JOBS_H_
#define SEQPOINT_TESTS_SUPPORT_RANK_JOBS_H_

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "seqpoint/v1/profiler.pb.h"
#include "tests/support/api.h"

namespace seqpoint {

struct RankJobOptions {
  std::string name;  // of its files
  std::string job;   // of several starts of one run; empty: the name
  int ranks = 4;
  std::vector<std::string> workload;  // options of seqpoint_workload
  std::vector<std::string> settings;  // of the software GPU: "clock.speed_cap=4"
  std::vector<std::string> run;       // options of seqpoint run
  bool truth = true;                  // each rank writes its truth file
  // Ranks that are started by hand run on when one of them fails.
  bool by_hand = false;
};

class RankJobs {
 public:
  // `daemon_options`: of its seqpointd.
  explicit RankJobs(std::filesystem::path folder, std::vector<std::string> daemon_options = {});
  ~RankJobs();
  RankJobs(const RankJobs&) = delete;
  RankJobs& operator=(const RankJobs&) = delete;

  // Starts the ranks under `seqpoint run`.
  pid_t Start(const RankJobOptions& options);
  // Starts and waits. True when all ranks ended well.
  bool Run(const RankJobOptions& options);
  // Without the profiler. Nothing: it failed.
  bool RunAlone(const RankJobOptions& options);
  void KillDaemon();
  // Kills the one that runs.
  void RestartDaemon();

  // Nothing on an error, which is printed.
  std::optional<v1::GetRanksReply> Ranks(const std::string& name);
  Api NewApi() const { return Api(folder_ / "run" / "api.sock"); }
  std::optional<v1::Job> Job(const std::string& name);
  // Of the training iterations of rank 0, by the workload's own truth; 0: not known.
  double TrainTimeNs(const std::string& name) const;
  std::filesystem::path TruthFile(const std::string& name, int rank) const;
  std::filesystem::path Log(const std::string& name) const { return folder_ / (name + ".log"); }

  const std::filesystem::path& folder() const { return folder_; }
  pid_t daemon() const { return daemon_; }

 private:
  void StartDaemon();
  std::vector<std::string> Command(const RankJobOptions& options, bool profiled) const;

  const std::filesystem::path folder_;
  const std::vector<std::string> daemon_options_;
  const std::filesystem::path bin_ = BinaryDirectory();
  pid_t daemon_ = 0;
};

}  // namespace seqpoint

#endif  // SEQPOINT_TESTS_SUPPORT_RANK_JOBS_H_
