#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/benchmark/ranks_parts.h"
#include "tests/support/truth.h"

namespace seqpoint {
namespace {

using Bound = FigureTable::Bound;
using Lengths = std::vector<int64_t>;
using std::chrono::milliseconds;

constexpr char kSoakJob[] = "soak";
constexpr int kSoakRanks = 4;
constexpr int64_t kCheckpoint = 20;  // a resumed run starts at a multiple of it

enum class Killed { kRank, kDaemon, kBoth };

const char* Word(Killed killed) {
  switch (killed) {
    case Killed::kRank:
      return "a rank";
    case Killed::kDaemon:
      return "the daemon";
    case Killed::kBoth:
      return "a rank and the daemon";
  }
  return "";
}

// A start of all ranks.
struct Start {
  std::string name;
  int64_t first = 0;    // iteration of the training that it begins with
  bool unread = false;  // it ended while no daemon ran
};

// Iterations that the log of a job has and its truth files have not, and the other way round.
struct Differences {
  int64_t all = 0;
  int64_t lost = 0;    // of starts whose end a daemon read
  int64_t unread = 0;  // of others
  int64_t twice = 0, invented = 0;
  int64_t number = 0, lengths = 0;  // wrong
  int64_t counted = 0;  // numbers that are not counted once: by several starts, or by none
};

class RanksSoak {
 public:
  RanksSoak(const RanksPart& part, int rounds)
      : part_(part), jobs_(part.jobs), rounds_(rounds), random_(part.seed) {}
  ~RanksSoak() {
    if (run_ != 0) KillAndWait(&run_, SIGTERM);
  }
  void Run();

 private:
  milliseconds Between(int low_ms, int high_ms) {
    return milliseconds(std::uniform_int_distribution<int>(low_ms, high_ms)(random_));
  }
  void StartRanks();
  // The live ranks', once all have joined and had so many iterations. Empty: not within a minute.
  std::vector<pid_t> RankPids(int64_t iterations);
  bool Learned();
  void Kill(Killed killed, const std::vector<pid_t>& ranks);
  // After the ranks have ended: the next start begins at the last checkpoint.
  void EndStart(bool unread);
  Differences Compare();
  void CompareRank(int rank, std::map<Lengths, Lengths>* told, std::map<Lengths, Lengths>* meant,
                   Differences* all);
  void Tell(const Differences& found);

  const RanksPart& part_;
  RankJobs& jobs_;
  const int rounds_;
  std::mt19937 random_;
  pid_t run_ = 0;
  std::vector<Start> starts_;
  int64_t next_first_ = 0;
};

void RanksSoak::StartRanks() {
  const std::string name = absl::StrCat(kSoakJob, "-", starts_.size());
  starts_.push_back({.name = name, .first = next_first_});
  run_ = jobs_.Start(
      {.name = name,
       .job = kSoakJob,
       .ranks = kSoakRanks,
       .workload = {"--model", "transformer", "--parallel", "data", "--epochs", "50",
                    "--max-iterations", "20000", "--seed", absl::StrCat(part_.seed), "--resume-at",
                    absl::StrCat(next_first_)},
       // Virtual time never overtakes the wall clock, so the times of two starts never overlap.
       .settings = {"clock.speed_cap=1", absl::StrCat("noise.seed=", part_.seed)},
       .run = {"--run-id", "1"}});
}

std::vector<pid_t> RanksSoak::RankPids(int64_t iterations) {
  for (int tenth = 0; tenth < 600; ++tenth) {
    std::vector<pid_t> pids;
    if (const auto job = jobs_.Job(kSoakJob)) {
      for (const v1::Process& process : job->processes()) {
        // A daemon that was just started waits for the processes of an earlier start, too.
        const bool live = kill(process.pid(), 0) == 0;
        if (live && process.end_ns() == 0 && process.iterations() >= iterations) {
          pids.push_back(process.pid());
        }
      }
    }
    if (pids.size() == kSoakRanks) return pids;
    std::this_thread::sleep_for(milliseconds(100));
  }
  return {};
}

bool RanksSoak::Learned() {
  const auto job = jobs_.Job(kSoakJob);
  return job && job->state() == v1::JOB_STATE_MARKING;
}

void RanksSoak::EndStart(bool unread) {
  WaitFor(run_);
  run_ = 0;
  Start& start = starts_.back();
  start.unread = unread;
  std::optional<size_t> done;
  for (int rank = 0; rank < kSoakRanks; ++rank) {
    const auto truth = ReadTruth(jobs_.TruthFile(start.name, rank));
    const size_t iterations = truth ? truth->iterations.size() : 0;
    done = std::min(done.value_or(iterations), iterations);
  }
  const int64_t reached = start.first + static_cast<int64_t>(*done);
  next_first_ = reached / kCheckpoint * kCheckpoint;
}

void RanksSoak::Kill(Killed killed, const std::vector<pid_t>& ranks) {
  // While it is learned from, a program whose daemon is away for 2 s stops sending its calls.
  const milliseconds away = Learned() ? Between(100, 4000) : Between(100, 1000);
  std::this_thread::sleep_for(Between(0, 200));
  if (killed != Killed::kRank) jobs_.KillDaemon();
  if (killed != Killed::kDaemon) {
    kill(ranks[random_() % ranks.size()], SIGKILL);
    EndStart(killed == Killed::kBoth);
  }
  if (killed != Killed::kRank) {
    std::this_thread::sleep_for(away);
    jobs_.RestartDaemon();
  }
}

void RanksSoak::Run() {
  for (int round = 0; round < rounds_; ++round) {
    if (run_ == 0) StartRanks();
    // In one round of three at any moment from the start on.
    const std::vector<pid_t> ranks = RankPids(round % 3 == 0 ? 0 : 1);
    if (ranks.empty()) return part_.table.Leave("soak", "the ranks did not join");
    std::this_thread::sleep_for(Between(100, 5000));
    const auto killed = static_cast<Killed>(random_() % 3);
    Kill(killed, ranks);
    std::printf("round %d: %s killed, in start %zu\n", round + 1, Word(killed), starts_.size());
    std::fflush(stdout);
  }
  if (run_ == 0) StartRanks();
  if (RankPids(1).empty()) return part_.table.Leave("soak", "the ranks did not join");
  std::this_thread::sleep_for(milliseconds(5000));
  kill(run_, SIGTERM);
  EndStart(false);
  Tell(Compare());
}

void RanksSoak::CompareRank(int rank, std::map<Lengths, Lengths>* told,
                            std::map<Lengths, Lengths>* meant, Differences* all) {
  struct Expected {
    const Start* start;
    int64_t number;
    TrueIteration truth;
    int found = 0;
  };
  std::vector<Expected> expected;
  for (const Start& start : starts_) {
    const auto truth = ReadTruth(jobs_.TruthFile(start.name, rank));
    if (!truth) continue;
    for (const TrueIteration& iteration : truth->iterations) {
      const int64_t in_start = static_cast<int64_t>(&iteration - truth->iterations.data());
      expected.push_back({&start, start.first + in_start, iteration});
    }
  }
  std::vector<v1::Iteration> logged;
  if (const auto iterations = jobs_.NewApi().Iterations(kSoakJob, rank)) logged = *iterations;
  // The log is in order of numbers, which several starts have.
  std::sort(logged.begin(), logged.end(), [](const v1::Iteration& a, const v1::Iteration& b) {
    return a.boundary_ns() < b.boundary_ns();
  });
  const Start* of = nullptr;
  std::map<int64_t, int> counted;  // by number
  for (const v1::Iteration& iteration : logged) {
    counted[iteration.number()] += !iteration.redone();
    const auto next =
        std::upper_bound(expected.begin(), expected.end(), iteration.boundary_ns(),
                         [](int64_t ns, const Expected& one) { return ns < one.truth.begin_ns; });
    if (next == expected.begin() || std::prev(next)->truth.forward_ns < iteration.boundary_ns()) {
      // The last iterations before a process was killed are in no truth file: it writes a line when
      // the GPU is done.
      const bool last = next == expected.end() || next == expected.begin() ||
                        next->start != std::prev(next)->start;
      all->invented += !last;
      continue;
    }
    Expected& one = *std::prev(next);
    ++one.found;
    if (one.start != of) {
      std::printf("rank %d, %s: number %lld is %lld in the log%s\n", rank, one.start->name.c_str(),
                  static_cast<long long>(one.number), static_cast<long long>(iteration.number()),
                  one.start->unread ? "; no daemon read its end" : "");
    }
    of = one.start;
    all->number += iteration.number() != one.number;
    const Lengths lengths(iteration.lengths().begin(), iteration.lengths().end());
    all->lengths +=
        told->try_emplace(one.truth.lengths, lengths).first->second != lengths ||
        meant->try_emplace(lengths, one.truth.lengths).first->second != one.truth.lengths;
  }
  for (const auto& [number, times] : counted) all->counted += times != 1;
  for (const Expected& one : expected) {
    ++all->all;
    all->twice += std::max(0, one.found - 1);
    if (one.found == 0) ++(one.start->unread ? all->unread : all->lost);
  }
}

Differences RanksSoak::Compare() {
  Differences all;
  std::map<Lengths, Lengths> told, meant;
  for (int rank = 0; rank < kSoakRanks; ++rank) CompareRank(rank, &told, &meant, &all);
  return all;
}

void RanksSoak::Tell(const Differences& found) {
  if (found.all == 0) return part_.table.Leave("soak", "no iteration is in the truth files");
  const auto count = [&](const char* figure, int64_t measured) {
    part_.table.Compare(figure, static_cast<double>(measured), "iterations", Bound::kAtMost, 0);
  };
  part_.table.Tell("soak: iterations of all ranks and starts", static_cast<double>(found.all),
                   "iterations");
  count("soak: lost", found.lost);
  count("soak: in the log twice", found.twice);
  count("soak: that were none", found.invented);
  count("soak: with another number", found.number);
  count("soak: numbers that are not counted once", found.counted);
  count("soak: with wrong lengths", found.lengths);
  part_.table.Tell("soak: lost with daemon and rank together", static_cast<double>(found.unread),
                   "iterations");
  const auto job = jobs_.Job(kSoakJob);
  const bool said = found.unread == 0 || (job && job->losses().uncounted_processes() > 0);
  part_.table.Compare("soak: and that is said", said ? 1 : 0, "", Bound::kEqual, 1);
  if (job) std::printf("%s\n", job->error().c_str());
  const auto ranks = jobs_.Ranks(kSoakJob);
  int64_t accused = ranks ? ranks->links_size() : 0;
  for (int rank = 0; ranks && rank < ranks->ranks_size(); ++rank) {
    accused += ranks->ranks(rank).episode_count();
    for (const v1::SlowEpisode& episode : ranks->ranks(rank).episodes()) {
      std::printf("rank %d: %s\n", rank, episode.ShortDebugString().c_str());
    }
  }
  if (ranks) std::printf("%s\n", ranks->summary().c_str());
  for (int link = 0; ranks && link < ranks->links_size(); ++link) {
    std::printf("link: %s\n", ranks->links(link).ShortDebugString().c_str());
  }
  part_.table.Compare("soak: ranks and links that were called slow", static_cast<double>(accused),
                      "", Bound::kAtMost, 0);
}

}  // namespace

void SoakRanks(const RanksPart& part, int rounds) {
  std::printf("\n%d ranks; a rank, the daemon, or both are killed %d times\n", kSoakRanks, rounds);
  RanksSoak(part, rounds).Run();
}

}  // namespace seqpoint
