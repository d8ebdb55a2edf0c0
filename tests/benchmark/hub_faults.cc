#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/benchmark/hub_asker.h"
#include "tests/benchmark/hub_parts.h"
#include "tests/support/ingest_node.h"
#include "tests/support/memory.h"
#include "tests/support/wire.h"

namespace seqpoint {
namespace {

using Bound = FigureTable::Bound;

constexpr int kIdleConnections = 1000;
// A batch comes every 250 ms, and is stored within the next commit: others wait no longer than 2 s.
constexpr int64_t kMostWaiting = 8;

// A hub, nodes that nothing is done to, and nodes that reach it over a wire.
class Disturbed {
 public:
  Disturbed(const HubPart& part, std::string name, bool with_victims)
      : part_(part),
        name_(std::move(name)),
        hub_(part.folder / name_),
        wire_(part.folder / (name_ + ".sock"), hub_.socket()),
        others_(TrainingOf("others"), {.address = hub_.address(), .host = "other"}) {
    if (with_victims) {
      victims_ = std::make_unique<PacedNodes>(
          TrainingOf("victims"), IngestNodeOptions{.address = wire_.address(), .host = "victim"});
    }
    const auto known = [&](PacedNodes& nodes) {
      for (int node = 0; node < part.nodes; ++node) {
        nodes.node(node).AwaitAcknowledged(1, absl::Seconds(30));
      }
    };
    known(others_);
    if (victims_) known(*victims_);
    asker_ =
        std::make_unique<Asker>(hub_, [](Api& api) { return AskForProjection(api, "others"); });
    watch_ = std::thread([this] { Watch(); });
  }
  ~Disturbed() { EndWatch(); }

  Wire& wire() { return wire_; }
  HubProcess& hub() { return hub_; }
  // Everything that waits now is stored. Returns the seconds that it took; NAN: more than
  // `timeout`.
  double AwaitVictims(absl::Duration timeout) {
    const absl::Time begin = absl::Now();
    for (int node = 0; node < part_.nodes; ++node) {
      IngestNode& of = victims_->node(node);
      if (!of.AwaitAcknowledged(of.last(), begin + timeout - absl::Now())) return NAN;
    }
    return absl::ToDoubleSeconds(absl::Now() - begin);
  }
  // What the others noticed, and what all reported.
  void Tell() {
    EndWatch();
    FigureTable& table = part_.table;
    table.Compare(absl::StrCat(name_, ": most batches of another node that waited"),
                  static_cast<double>(most_waiting_), "", Bound::kAtMost, kMostWaiting);
    table.Compare(absl::StrCat(name_, ": project of another job, p99"), asker_->Quantile(0.99),
                  "ms", Bound::kAtMost, 20);
    table.Tell(absl::StrCat(name_, ": most memory of the hub"), most_mib_, "MiB");
    others_.End();
    TellDifferences(absl::StrCat(name_, ", others"), others_, hub_, table);
    if (!victims_) return;
    victims_->End();
    TellDifferences(absl::StrCat(name_, ", victims"), *victims_, hub_, table);
  }

 private:
  ReportedRanksOptions TrainingOf(const char* job) const {
    return {.job = job,
            .nodes = part_.nodes,
            .ranks_of_node = part_.ranks_of_node,
            .step_ms = part_.step_ms,
            .seed = part_.seed,
            .collectives = part_.collectives};
  }
  void Watch() {
    while (!ending_) {
      for (int node = 0; node < part_.nodes; ++node) {
        IngestNode& of = others_.node(node);
        most_waiting_ = std::max(most_waiting_, of.last() - of.acknowledged());
      }
      most_mib_ = std::max(most_mib_, MemoryStatus("VmRSS:", hub_.pid()) / kMib);
      absl::SleepFor(absl::Milliseconds(50));
    }
  }
  void EndWatch() {
    ending_ = true;
    if (watch_.joinable()) watch_.join();
    asker_->End();
  }

  const HubPart& part_;
  const std::string name_;
  HubProcess hub_;
  Wire wire_;
  PacedNodes others_;
  std::unique_ptr<PacedNodes> victims_;
  std::unique_ptr<Asker> asker_;
  std::atomic<bool> ending_ = false;
  int64_t most_waiting_ = 0;
  double most_mib_ = 0;
  std::thread watch_;
};

// Connections of another process, on which `said` was sent, and nothing after it.
class IdleConnections {
 public:
  IdleConnections(const std::filesystem::path& path, const std::string& said) {
    sockaddr_un address = {.sun_family = AF_UNIX};
    std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
    int ready[2];
    if (pipe(ready) != 0) return;
    child_ = fork();
    // Nothing here but system calls: other threads of the parent hold locks.
    if (child_ == 0) {
      for (int i = 0; i < kIdleConnections; ++i) {
        const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) continue;
        send(fd, said.data(), said.size(), MSG_NOSIGNAL);
      }
      close(ready[1]);
      while (true) pause();
    }
    close(ready[1]);
    char byte;
    (void)!read(ready[0], &byte, 1);  // until it has all of them
    close(ready[0]);
  }
  ~IdleConnections() {
    if (child_ > 0) KillAndWait(&child_, SIGKILL);
  }

 private:
  pid_t child_ = 0;
};

void CutNetwork(const HubPart& part, double seconds) {
  Disturbed job(part, "cut", true);
  job.wire().Cut();
  absl::SleepFor(absl::Seconds(seconds));
  job.wire().Mend();
  part.table.Compare(absl::StrCat("cut for ", seconds, " s: until all that waited was stored"),
                     job.AwaitVictims(absl::Seconds(120)), "s", Bound::kAtMost, 60);
  job.Tell();
}

// The network forgets the connections, and neither side hears of it.
void HalfOpen(const HubPart& part, double seconds) {
  Disturbed job(part, "half open", true);
  job.wire().Hold();
  absl::SleepFor(absl::Milliseconds(500));
  part.table.Compare("half open: until what waited was stored over another connection",
                     job.AwaitVictims(absl::Seconds(std::max(seconds, 1.0))), "s", Bound::kAtMost,
                     60);
  job.wire().Release();
  job.Tell();
}

void ReadSlowly(const HubPart& part, double seconds) {
  Disturbed job(part, "slow reader", true);
  job.wire().LimitDown(1000);
  absl::SleepFor(absl::Seconds(seconds));
  job.wire().LimitDown(0);
  part.table.Tell("slow reader: until all that waited was stored",
                  job.AwaitVictims(absl::Seconds(120)), "s");
  job.Tell();
}

void SendTooMuch(const HubPart& part) {
  Disturbed job(part, "large message", false);
  std::mt19937_64 random(part.seed);
  std::string noise(10 << 20, '\0');
  for (char& byte : noise) byte = static_cast<char>(random());
  IngestNode greedy({.address = job.hub().address(), .host = "greedy"});
  greedy.AddFrame(noise);
  greedy.Add("");
  part.table.Compare("large message: 10 MiB are skipped, and the node goes on",
                     greedy.AwaitAcknowledged(2, absl::Seconds(10)), "", Bound::kEqual, 1);
  IngestNode refused({.address = job.hub().address(), .host = "refused"});
  refused.AddFrame(noise + noise);
  part.table.Compare("large message: 20 MiB are refused",
                     !refused.AwaitAcknowledged(1, absl::Seconds(10)), "", Bound::kEqual, 1);
  std::printf("of 20 MiB: %s\n", refused.error().c_str());
  job.Tell();
}

void StayIdle(const HubPart& part, const std::string& name, const std::string& said) {
  Disturbed job(part, name, false);
  const IdleConnections idle(job.hub().socket(), said);
  const absl::Time begin = absl::Now();
  IngestNode late({.address = job.hub().address(), .host = "late"});
  late.Add("");
  const bool taken = late.AwaitAcknowledged(1, absl::Seconds(60));
  part.table.Compare(absl::StrCat(name, ": until a node that came later was taken"),
                     taken ? absl::ToDoubleSeconds(absl::Now() - begin) : NAN, "s", Bound::kAtMost,
                     10);
  job.Tell();
}

}  // namespace

void DisturbHub(const HubPart& part, double seconds) {
  // Those that last long, each with a hub and nodes of its own.
  std::printf(
      "\nat once, for up to %.3g s: network cut, connections half open, nodes that read "
      "1,000 bytes/s\n",
      seconds);
  std::vector<std::thread> cases;
  for (const auto disturb : {CutNetwork, HalfOpen, ReadSlowly}) {
    cases.emplace_back([&part, disturb, seconds] { disturb(part, seconds); });
  }
  for (std::thread& one : cases) one.join();
  std::printf("\nmessages that are too long\n");
  SendTooMuch(part);
  std::printf("\n%d silent connections\n", kIdleConnections);
  StayIdle(part, "silent connections", "");
  std::printf("\n%d connections that speak HTTP/2, without a call\n", kIdleConnections);
  // The client's preface, and its settings, which are empty.
  StayIdle(part, "idle connections",
           std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") + std::string("\0\0\0\4\0\0\0\0\0", 9));
}

}  // namespace seqpoint
