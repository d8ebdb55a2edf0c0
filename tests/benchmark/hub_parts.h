// The parts of hub_benchmark: one file each.
//
// Threading: one thread. Ownership: the caller's table.
#ifndef SEQPOINT_TESTS_BENCHMARK_HUB_PARTS_H_
#define SEQPOINT_TESTS_BENCHMARK_HUB_PARTS_H_

#include <signal.h>
#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/api.h"
#include "tests/support/figure_table.h"
#include "tests/support/paced_nodes.h"

namespace seqpoint {

inline constexpr double kMib = 1 << 20;

// A hub in a folder of its own, on a unix socket.
class HubProcess {
 public:
  explicit HubProcess(std::filesystem::path folder, std::vector<std::string> options = {})
      : folder_(std::move(folder)), options_(std::move(options)) {
    std::filesystem::create_directories(folder_);
    options_.push_back("--accept-nodes");
    Start();
  }
  ~HubProcess() { Stop(SIGKILL); }
  HubProcess(const HubProcess&) = delete;
  HubProcess& operator=(const HubProcess&) = delete;

  void Start() { pid_ = SpawnDaemon(folder_, {}, options_); }
  void Stop(int signal) { KillAndWait(&pid_, signal); }
  pid_t pid() const { return pid_; }
  Api NewApi() const { return Api(socket()); }
  std::filesystem::path socket() const { return folder_ / "run/api.sock"; }
  std::string address() const { return "unix:" + socket().string(); }
  std::filesystem::path store() const { return folder_ / "store.db"; }

 private:
  const std::filesystem::path folder_;
  std::vector<std::string> options_;
  pid_t pid_ = 0;
};

struct HubPart {
  std::filesystem::path folder;
  FigureTable& table;
  uint64_t seed = 1;
  int nodes = 8, ranks_of_node = 8;
  double step_ms = 100;
  int collectives = 4;    // of an iteration
  int hubs = 1;           // on one PostgreSQL
  bool postgres = false;  // saturation: on PostgreSQL, else on SQLite
};

// Hubs on one PostgreSQL.
class HubsOnDatabase {
 public:
  HubsOnDatabase(const std::filesystem::path& folder, int count, const std::string& store);
  HubProcess& first() { return *hubs_.front(); }
  std::vector<std::string> addresses() const;
  const std::vector<std::unique_ptr<HubProcess>>& hubs() const { return hubs_; }

 private:
  std::vector<std::unique_ptr<HubProcess>> hubs_;
};

// Compares the hub's rows with those that the nodes reported. Waits until it has all of it.
void TellDifferences(const std::string& name, PacedNodes& nodes, const HubProcess& hub,
                     FigureTable& table);

// Nodes that go on for so many minutes: what is lost, what the hub takes, and how soon it answers.
void LoadHub(const HubPart& part, double minutes);
// The same while the hub is killed so many times.
void KillHub(const HubPart& part, int times);
// As many iterations as a hub takes of so many ranks, for each number of ranks.
void SaturateHub(const HubPart& part, const std::vector<int>& ranks);
// Real trainings under a node's daemon: the bytes that go to the hub.
void CountHubBytes(const HubPart& part);
// The same job under one daemon and on two nodes: whether the answers are the same.
void CompareHubWithDaemon(const HubPart& part);
// Real trainings whose hub is away for so many seconds: what it learns of them later.
void LeaveNodesAlone(const HubPart& part, double seconds);
// One PostgreSQL is killed so many times. Then it is away while nodes come.
void KillDatabase(const HubPart& part, int times);
// Hubs on a PostgreSQL under Patroni, whose primary is killed, then paused, so many times each.
void FailOver(const HubPart& part, int times);
// Peers are cut off for so many seconds, silent, slow or greedy: how the others fare.
void DisturbHub(const HubPart& part, double seconds);

}  // namespace seqpoint

#endif  // SEQPOINT_TESTS_BENCHMARK_HUB_PARTS_H_
