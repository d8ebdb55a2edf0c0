// What one hub bears: nodes that speak Ingest as docs/formats/ingest.md has it, with reports that
// the product's own writer makes, and every iteration compared with what was reported.
//
//   hub_benchmark [--parts load,kills] [--minutes 10] [--nodes 8] [--ranks 8] [--json FILE]
#include <CLI/CLI.hpp>
#include <cstdio>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "tests/benchmark/hub_parts.h"
#include "tests/support/temp_folder.h"

namespace seqpoint {
namespace {

int Main(int argc, char** argv) {
  CLI::App app{"One hub under load: nothing lost, nothing twice, and what it takes."};
  std::string parts = "load,kills,saturation,bytes,nodes,alone,faults,database,failover", json;
  double minutes = 10;
  int kills = 20, failovers = 3;
  bool only_failover = false;
  double fault_s = 60, alone_s = 600;
  std::vector<int> saturation = {64, 1'000, 10'000};
  TempFolder folder;
  FigureTable table;
  HubPart part = {.folder = folder.path(), .table = table};
  app.add_option("--parts", parts,
                 "some of load,kills,saturation,bytes,nodes,alone,faults,database,failover")
      ->capture_default_str();
  app.add_option("--minutes", minutes, "of the load")->capture_default_str();
  app.add_option("--kills", kills, "of the hub, each about 3 s after the last")
      ->capture_default_str();
  app.add_flag("--failover", only_failover, "the same as --parts failover");
  app.add_option("--failovers", failovers, "kills of a database, and pauses of a primary")
      ->capture_default_str();
  app.add_option("--hubs", part.hubs, "on one PostgreSQL (database, failover, saturation)")
      ->capture_default_str();
  app.add_option("--fault-seconds", fault_s, "how long a network is cut, half open or slow")
      ->capture_default_str();
  app.add_option("--alone-seconds", alone_s, "how long nodes are without their hub")
      ->capture_default_str();
  app.add_option("--nodes", part.nodes)->capture_default_str();
  app.add_option("--ranks", part.ranks_of_node, "of each node")->capture_default_str();
  app.add_option("--step-ms", part.step_ms, "mean time of an iteration")->capture_default_str();
  app.add_option("--collectives", part.collectives, "of each rank in an iteration")
      ->capture_default_str();
  app.add_option("--saturation", saturation, "numbers of ranks to saturate a hub with")
      ->delimiter(',')
      ->capture_default_str();
  app.add_flag("--postgresql", part.postgres,
               "saturation: on a PostgreSQL, as with more than one hub; else on SQLite");
  app.add_option("--seed", part.seed, "of lengths and times")->capture_default_str();
  app.add_option("--json", json, "writes the figures to this file, too");
  CLI11_PARSE(app, argc, argv);
  if (only_failover) parts = "failover";
  const std::vector<std::string> words = absl::StrSplit(parts, ',');
  const std::set<std::string> wanted(words.begin(), words.end());
  if (wanted.contains("load")) LoadHub(part, minutes);
  if (wanted.contains("kills")) KillHub(part, kills);
  if (wanted.contains("saturation")) SaturateHub(part, saturation);
  if (wanted.contains("bytes")) CountHubBytes(part);
  if (wanted.contains("nodes")) CompareHubWithDaemon(part);
  if (wanted.contains("alone")) LeaveNodesAlone(part, alone_s);
  if (wanted.contains("faults")) DisturbHub(part, fault_s);
  if (wanted.contains("database")) KillDatabase(part, failovers);
  if (wanted.contains("failover")) FailOver(part, failovers);
  std::printf("\n%d figures with something to reach were missed, %d were not measured\n",
              table.missed(), table.left());
  if (!json.empty() && !table.WriteJson(json)) {
    std::perror(json.c_str());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace seqpoint

int main(int argc, char** argv) { return seqpoint::Main(argc, argv); }
