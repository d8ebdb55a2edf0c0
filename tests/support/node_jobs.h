// Trainings of ranks on several nodes, each with a daemon of its own, told to a hub: real processes
// on the software GPU, for tests and benchmarks.
//
// Threading: one thread. Ownership: the daemons.
#ifndef SEQPOINT_TESTS_SUPPORT_NODE_JOBS_H_
#define SEQPOINT_TESTS_SUPPORT_NODE_JOBS_H_

#include <signal.h>
#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "seqpoint/v1/profiler.pb.h"
#include "tests/support/api.h"

namespace seqpoint {

struct NodeJobsOptions {
  int nodes = 2, ranks_of_node = 2;
  std::string hub_store;               // of another backend than SQLite; empty: SQLite
  int hubs = 1;                        // on one store, which SQLite cannot be
  std::vector<std::string> last_node;  // environment of its daemon and its ranks, "KEY=VALUE"
};

class NodeJobs {
 public:
  // Starts hub and nodes.
  explicit NodeJobs(std::filesystem::path folder, NodeJobsOptions options = {});
  ~NodeJobs();
  NodeJobs(const NodeJobs&) = delete;
  NodeJobs& operator=(const NodeJobs&) = delete;

  void StartHub(int hub = 0);
  void KillHub(int hub = 0) { KillAndWait(&hubs_[static_cast<size_t>(hub)], SIGKILL); }
  pid_t hub(int hub) const { return hubs_[static_cast<size_t>(hub)]; }  // its pid
  // False: it does not answer.
  bool StartNode(int node);
  void KillNode(int node) { KillAndWait(&nodes_[static_cast<size_t>(node)], SIGKILL); }

  // Starts the ranks of one node, under its daemon. `workload`: options of seqpoint_workload.
  pid_t Start(int node, const std::string& job, const std::vector<std::string>& workload);
  // Starts those of all nodes and waits. True when all ended well.
  bool Run(const std::string& job, const std::vector<std::string>& workload);

  // The name of a daemon is that of its folder: "hub", "hub2", "node0", "node1".
  std::filesystem::path Folder(const std::string& name) const { return folder_ / name; }
  static std::string HubName(int hub) { return hub == 0 ? "hub" : "hub" + std::to_string(hub + 1); }
  static std::string NameOf(int node) { return "node" + std::to_string(node); }
  Api Ask(const std::string& daemon) const { return Api(Folder(daemon) / "run/api.sock"); }
  std::optional<v1::Job> Job(const std::string& daemon, const std::string& job) const;
  // Waits up to 30 s for the hub to know that all processes have ended.
  std::optional<v1::Job> AwaitEnd(const std::string& job) const;
  int ranks() const { return options_.nodes * options_.ranks_of_node; }
  // The iterations of a rank, as the daemon has them. Nothing on an error.
  std::optional<std::vector<v1::Iteration>> Iterations(const std::string& daemon,
                                                       const std::string& job, int rank) const {
    return Ask(daemon).Iterations(job, rank);
  }
  std::optional<std::vector<v1::Iteration>> OnNode(const std::string& job, int rank) const {
    return Iterations(NameOf(rank / options_.ranks_of_node), job, rank);
  }
  // The iterations of a rank at the hub. A store that was away takes the last ones when it is tried
  // again: waits up to 20 s for as many.
  std::optional<std::vector<v1::Iteration>> OnHub(const std::string& job, int rank, size_t as_many,
                                                  const std::string& hub = "hub") const;

 private:
  std::vector<std::string> EnvironmentOf(int node) const;
  std::string AddressOf(int hub) const {
    return "unix:" + (Folder(HubName(hub)) / "run/api.sock").string();
  }

  const std::filesystem::path folder_;
  const NodeJobsOptions options_;
  std::vector<pid_t> hubs_;
  std::vector<pid_t> nodes_;
};

}  // namespace seqpoint

#endif  // SEQPOINT_TESTS_SUPPORT_NODE_JOBS_H_
