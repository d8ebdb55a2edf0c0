#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/benchmark/hub_parts.h"
#include "tests/support/paced_nodes.h"
#include "tests/support/patroni_cluster.h"
#include "tests/support/private_postgres.h"

namespace seqpoint {
namespace {

using Bound = FigureTable::Bound;

constexpr absl::Duration kToRecover = absl::Minutes(2);
// pg_rewind, and what was written meanwhile.
constexpr absl::Duration kToBeWhole = absl::Minutes(3);

ReportedRanksOptions DatabaseTraining(const HubPart& part, const std::string& job) {
  return {.job = job,
          .nodes = part.nodes,
          .ranks_of_node = part.ranks_of_node,
          .step_ms = part.step_ms,
          .seed = part.seed,
          .collectives = part.collectives};
}

// Seconds since `begin` until all that waits now is stored. NAN: not within kToRecover from now.
double UntilStored(PacedNodes& nodes, absl::Time begin = absl::Now()) {
  if (!nodes.AwaitAcknowledged(kToRecover)) return NAN;
  return absl::ToDoubleSeconds(absl::Now() - begin);
}

// The hub has the first batch of each node.
bool AwaitFirst(PacedNodes& nodes, int count) {
  for (int node = 0; node < count; ++node) {
    if (!nodes.node(node).AwaitAcknowledged(1, kToRecover)) return false;
  }
  return true;
}

// From a fault that has just begun. Each node has told something since.
double UntilStoredAfterFault(PacedNodes& nodes) {
  const absl::Time begin = absl::Now();
  absl::SleepFor(absl::Seconds(1));
  return UntilStored(nodes, begin);
}

// How long it took each time, from a fault on.
class Recoveries {
 public:
  Recoveries(std::string name, FigureTable& table) : name_(std::move(name)), table_(table) {}
  void Add(double seconds) {
    std::printf("%s %zu: %s after %.2f s\n", name_.c_str(), seconds_.size() + 1,
                std::isnan(seconds) ? "NOT recovered" : "recovered", seconds);
    std::fflush(stdout);
    seconds_.push_back(seconds);
  }
  void Tell() const {
    double sum_s = 0, longest_s = 0;
    int recovered = 0;
    for (const double seconds : seconds_) {
      if (std::isnan(seconds)) continue;
      ++recovered;
      sum_s += seconds;
      longest_s = std::max(longest_s, seconds);
    }
    table_.Compare(name_ + ": recovered within 120 s", recovered, "", Bound::kEqual,
                   static_cast<double>(seconds_.size()));
    if (recovered == 0) return;
    table_.Tell(name_ + ": until all that waited was stored, mean", sum_s / recovered, "s");
    table_.Tell(name_ + ": until all that waited was stored, longest", longest_s, "s");
  }

 private:
  const std::string name_;
  FigureTable& table_;
  std::vector<double> seconds_;
};

}  // namespace

HubsOnDatabase::HubsOnDatabase(const std::filesystem::path& folder, int count,
                               const std::string& store) {
  for (int hub = 0; hub < count; ++hub) {
    const std::filesystem::path own = folder / absl::StrCat("hub", hub);
    std::vector<std::string> options = {"--store", store};
    if (count > 1) {
      options.insert(options.end(),
                     {"--peer-address", absl::StrCat("unix:", (own / "run/api.sock").string())});
    }
    hubs_.push_back(std::make_unique<HubProcess>(own, options));
  }
}

std::vector<std::string> HubsOnDatabase::addresses() const {
  std::vector<std::string> addresses;
  for (const auto& hub : hubs_) addresses.push_back(hub->address());
  return addresses;
}

void KillDatabase(const HubPart& part, int times) {
  if (const std::string missing = PrivatePostgres::Missing(); !missing.empty()) {
    return part.table.Leave("database", missing);
  }
  std::printf("\nthe PostgreSQL of %d hubs is killed %d times\n", part.hubs, times);
  PrivatePostgres server(/*durable=*/true);
  if (!server.Start()) return part.table.Leave("database", server.Log());
  HubsOnDatabase hubs(part.folder / "database", part.hubs, server.AddressOf("postgres"));
  PacedNodes nodes(DatabaseTraining(part, "database"), {.host = "database"}, hubs.addresses());
  if (!AwaitFirst(nodes, part.nodes)) return part.table.Leave("database", nodes.node(0).error());
  Recoveries recoveries("database killed", part.table);
  for (int i = 0; i < times; ++i) {
    absl::SleepFor(absl::Seconds(3));
    server.Kill();
    absl::SleepFor(absl::Seconds(1));
    if (!server.Start()) return part.table.Leave("database", server.Log());
    recoveries.Add(UntilStored(nodes));
  }
  recoveries.Tell();
  // Nodes that come meanwhile are refused. Their pause before the next attempt is 1, 2, 4, … s.
  constexpr double kAwayS = 10;
  server.Kill();
  PacedNodes late(DatabaseTraining(part, "late"), {.host = "late"}, hubs.addresses());
  absl::SleepFor(absl::Seconds(kAwayS));
  if (!server.Start()) return part.table.Leave("database", server.Log());
  const absl::Time back = absl::Now();
  part.table.Tell("database away for 10 s: until all that waited was stored", UntilStored(nodes),
                  "s");
  const double late_s = UntilStored(late, back);
  part.table.Tell("the same, of nodes that came meanwhile", late_s, "s");
  nodes.End();
  late.End();
  TellDifferences("database", nodes, hubs.first(), part.table);
  TellDifferences("nodes that came while the database was away", late, hubs.first(), part.table);
}

void FailOver(const HubPart& part, int times) {
  if (const std::string missing = PatroniCluster::Missing(); !missing.empty()) {
    return part.table.Leave("failover", missing);
  }
  std::printf(
      "\n%d hubs on PostgreSQL under Patroni: the primary is killed, then paused, %d times\n",
      part.hubs, times);
  PatroniCluster cluster;
  int primary = cluster.AwaitWhole(kToBeWhole);
  const auto not_whole = [&] {
    std::printf("%s\n", cluster.Log(0).c_str());
    part.table.Leave("failover", "the three servers did not find together; above is a log");
  };
  if (primary < 0) return not_whole();
  HubsOnDatabase hubs(part.folder / "failover", part.hubs, cluster.Address());
  PacedNodes nodes(DatabaseTraining(part, "failover"), {.host = "failover"}, hubs.addresses());
  if (!AwaitFirst(nodes, part.nodes)) return part.table.Leave("failover", nodes.node(0).error());
  Recoveries kills("primary killed", part.table), pauses("primary paused", part.table);
  for (int i = 0; i < times; ++i) {
    absl::SleepFor(absl::Seconds(3));
    cluster.Kill(primary);
    kills.Add(UntilStoredAfterFault(nodes));
    cluster.Start(primary);
    primary = cluster.AwaitWhole(kToBeWhole);
    if (primary < 0) return not_whole();
    cluster.Pause(primary);
    pauses.Add(UntilStoredAfterFault(nodes));
    // Its watchdog ends it, which Patroni asks for: without one, a primary that wakes up may take
    // the leadership back, and what was committed meanwhile is lost.
    cluster.Kill(primary);
    cluster.Start(primary);
    primary = cluster.AwaitWhole(kToBeWhole);
    if (primary < 0) return not_whole();
  }
  nodes.End();
  kills.Tell();
  pauses.Tell();
  TellDifferences("failover", nodes, hubs.first(), part.table);
}

}  // namespace seqpoint
