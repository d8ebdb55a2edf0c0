#include <algorithm>
#include <cmath>
#include <cstdio>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "daemon/base/zstd_frame.h"
#include "tests/benchmark/hub_parts.h"
#include "tests/support/ingest_node.h"
#include "tests/support/memory.h"
#include "tests/support/private_postgres.h"
#include "tests/support/process_usage.h"
#include "tests/support/reported_ranks.h"

namespace seqpoint {
namespace {

using Bound = FigureTable::Bound;

constexpr int kMostNodes = 64;
constexpr int kRanksOfJob = 64;
constexpr double kBatchMs = 250;
// A node has no more, so that none runs further ahead of the others than a hub waits for them (128
// steps).
constexpr int kWaitingBatches = 16;
constexpr absl::Duration kPatience = absl::Seconds(60);

// Hubs on SQLite or on a PostgreSQL, and what they and the server take.
class SaturatedHubs {
 public:
  SaturatedHubs(const HubPart& part, const std::filesystem::path& folder) {
    if (!part.postgres && part.hubs == 1) {
      alone_ = std::make_unique<HubProcess>(folder);
      hubs_ = {alone_.get()};
      return;
    }
    server_ = std::make_unique<PrivatePostgres>(/*durable=*/true);
    if (!server_->Start()) {
      error_ = absl::StrCat("no PostgreSQL: ", PrivatePostgres::Missing(), server_->Log());
      return;
    }
    on_database_ =
        std::make_unique<HubsOnDatabase>(folder, part.hubs, server_->AddressOf("postgres"));
    for (const auto& hub : on_database_->hubs()) hubs_.push_back(hub.get());
  }
  const std::string& error() const { return error_; }
  std::string AddressFor(size_t node) const { return hubs_[node % hubs_.size()]->address(); }

  void Begin() {
    began_ = absl::Now();
    for (const HubProcess* hub : hubs_) {
      hubs_before_s_.push_back(CpuSeconds(hub->pid()));
      threads_before_s_.push_back(ThreadCpuSeconds(hub->pid())[0]);
    }
    if (!server_) return;
    for (const pid_t pid : ServerProcesses(server_->pid())) server_before_s_[pid] = CpuSeconds(pid);
  }
  // Returns the CPU of all hubs since Begin, in s.
  double Tell(const std::string& name, FigureTable& table) const {
    const double wall_s = absl::ToDoubleSeconds(absl::Now() - began_);
    double all_s = 0;
    for (size_t i = 0; i < hubs_.size(); ++i) {
      const pid_t pid = hubs_[i]->pid();
      const std::string of = hubs_.size() == 1 ? name : absl::StrCat(name, ", hub ", i + 1);
      const double cpu_s = CpuSeconds(pid) - hubs_before_s_[i];
      all_s += cpu_s;
      table.Tell(absl::StrCat(of, ": CPU of the hub, share of a core"), 100 * cpu_s / wall_s, "%");
      table.Tell(absl::StrCat(of, ": of its busiest thread"),
                 100 * (ThreadCpuSeconds(pid)[0] - threads_before_s_[i]) / wall_s, "%");
      table.Tell(absl::StrCat(of, ": memory"), MemoryStatus("VmRSS:", pid) / kMib, "MiB");
    }
    if (!server_) return all_s;
    double server_s = 0, busiest_s = 0;
    for (const pid_t pid : ServerProcesses(server_->pid())) {
      const auto before = server_before_s_.find(pid);
      const double cpu_s =
          CpuSeconds(pid) - (before == server_before_s_.end() ? 0 : before->second);
      server_s += cpu_s;
      busiest_s = std::max(busiest_s, cpu_s);
    }
    table.Tell(absl::StrCat(name, ": CPU of PostgreSQL"), 100 * server_s / wall_s, "%");
    table.Tell(absl::StrCat(name, ": of its busiest process"), 100 * busiest_s / wall_s, "%");
    return all_s;
  }

 private:
  std::unique_ptr<PrivatePostgres> server_;  // goes last
  std::unique_ptr<HubsOnDatabase> on_database_;
  std::unique_ptr<HubProcess> alone_;
  std::vector<HubProcess*> hubs_;
  std::string error_;
  absl::Time began_;
  std::vector<double> hubs_before_s_, threads_before_s_;
  std::map<pid_t, double> server_before_s_;
};

// Ranks on at most kMostNodes nodes, whose batches were made beforehand.
class Saturation {
 public:
  Saturation(const HubPart& part, int ranks, bool one_job);
  // Returns the CPU that an iteration of a rank took, in us; NAN: the hub did not get to its end.
  double Run(const std::string& name);

 private:
  struct Node {
    std::string start;
    std::deque<std::string> frames;
    std::unique_ptr<IngestNode> client;
  };

  const HubPart& part_;
  std::vector<Node> nodes_;
  int64_t of_batch_ = 0;  // iterations in all nodes' next batches
  size_t rounds_ = 0;
};

Saturation::Saturation(const HubPart& part, int ranks, bool one_job) : part_(part) {
  // Enough for a measurement, and little enough for the memory of this process.
  const auto count = std::max<int64_t>(1, std::lround(kBatchMs / part.step_ms));
  rounds_ = static_cast<size_t>(std::clamp<int64_t>(1'000'000 / (ranks * count), 8, 500));
  const int nodes = std::min(kMostNodes, std::max(1, ranks / part.ranks_of_node));
  nodes_.resize(static_cast<size_t>(nodes));
  std::vector<jobs::ReportWriter> writers(nodes_.size());
  std::vector<std::pair<ReportedRanks, int>> trainings;  // and its first node
  const int64_t now_ns = absl::GetCurrentTimeNanos();
  ReportedRanksOptions options = {.job = "saturation",
                                  .nodes = nodes,
                                  .ranks_of_node = ranks / nodes,
                                  .step_ms = part.step_ms,
                                  .seed = part.seed,
                                  .collectives = part.collectives};
  if (one_job) {
    trainings.emplace_back(ReportedRanks(options, now_ns), 0);
  } else {
    options.nodes = 1;
    options.ranks_of_node = kRanksOfJob;
    for (int job = 0; job < ranks / kRanksOfJob; ++job) {
      options.job = absl::StrCat("saturation", job);
      options.first_process = 1 + int64_t{job} * kRanksOfJob;
      trainings.emplace_back(ReportedRanks(options, now_ns), job % nodes);
    }
  }
  const auto each = [&](const auto& write) {
    for (auto& [training, first] : trainings) {
      for (int node = 0; node < training.options().nodes; ++node) {
        write(training, node, writers[static_cast<size_t>(first + node)]);
      }
    }
  };
  each([](ReportedRanks& training, int node, jobs::ReportWriter& to) { training.Start(node, to); });
  for (size_t node = 0; node < nodes_.size(); ++node) {
    nodes_[node].start = ToZstdFrame(writers[node].Serialize());
    writers[node].Clear();
  }
  for (size_t round = 0; round < rounds_; ++round) {
    int64_t reported = 0;
    each([&](ReportedRanks& training, int node, jobs::ReportWriter& to) {
      reported += training.ReportNext(node, count, to);
    });
    of_batch_ = reported;
    for (size_t node = 0; node < nodes_.size(); ++node) {
      nodes_[node].frames.push_back(ToZstdFrame(writers[node].Serialize()));
      writers[node].Clear();
    }
  }
}

double Saturation::Run(const std::string& name) {
  FigureTable& table = part_.table;
  SaturatedHubs hubs(part_, part_.folder / name);
  if (!hubs.error().empty()) {
    table.Leave(name, hubs.error());
    return NAN;
  }
  for (size_t i = 0; i < nodes_.size(); ++i) {
    nodes_[i].client = std::make_unique<IngestNode>(IngestNodeOptions{
        .address = hubs.AddressFor(i), .host = absl::StrCat(name.substr(0, 8), "-", i)});
    nodes_[i].client->AddFrame(nodes_[i].start);
  }
  absl::Time begin = absl::Now();
  for (Node& node : nodes_) {
    if (node.client->AwaitAcknowledged(1, begin + kPatience - absl::Now())) continue;
    table.Leave(name, absl::StrCat("the starts were not stored in 60 s; ", node.client->error()));
    return NAN;
  }
  table.Tell(absl::StrCat(name, ": until all processes are known"),
             absl::ToDoubleSeconds(absl::Now() - begin), "s");
  begin = absl::Now();
  hubs.Begin();
  bool all = true;
  for (size_t round = 0; round < rounds_ && all; ++round) {
    for (Node& node : nodes_) {
      all &= node.client->AwaitWaiting(kWaitingBatches - 1, begin + kPatience - absl::Now());
      if (!all) break;
      node.client->AddFrame(std::move(node.frames[round]));
    }
  }
  int64_t stored = 0;
  for (Node& node : nodes_) {
    node.client->AwaitAcknowledged(node.client->last(), begin + kPatience - absl::Now());
    stored += node.client->acknowledged() - 1;
  }
  const double wall_s = absl::ToDoubleSeconds(absl::Now() - begin);
  const double iterations = static_cast<double>(stored) * static_cast<double>(of_batch_) /
                            static_cast<double>(nodes_.size());
  table.Tell(absl::StrCat(name, ": iterations of ranks"), iterations / wall_s, "1/s");
  const double cpu_us = 1e6 * hubs.Tell(name, table) / iterations;
  table.Tell(absl::StrCat(name, ": CPU of the hubs for an iteration of a rank"), cpu_us, "us");
  for (Node& node : nodes_) node.client.reset();
  return all ? cpu_us : NAN;
}

}  // namespace

void SaturateHub(const HubPart& part, const std::vector<int>& ranks) {
  for (const bool one_job : {false, true}) {
    double least_us = NAN;
    for (const int count : ranks) {
      if (!one_job && count < kRanksOfJob) continue;
      const std::string name = one_job ? absl::StrCat("one job of ", count, " ranks")
                                       : absl::StrCat(count, " ranks in jobs of ", kRanksOfJob);
      std::printf("\n%s, as fast as the hub takes them\n", name.c_str());
      const double cpu_us = Saturation(part, count, one_job).Run(name);
      if (std::isnan(least_us)) {
        least_us = cpu_us;
      } else {
        part.table.Compare(absl::StrCat(name, ": cost of a rank, of that of the fewest ranks"),
                           cpu_us / least_us, "", Bound::kAtMost, 1.5);
      }
    }
  }
}

}  // namespace seqpoint
