#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/benchmark/ranks_parts.h"
#include "tests/support/memory.h"
#include "tests/support/process_usage.h"
#include "tests/support/truth.h"

namespace seqpoint {
namespace {

using Bound = FigureTable::Bound;

constexpr char kLongJob[] = "long";
constexpr int kLongRanks = 2;
constexpr int kSamples = 10;
constexpr double kFlat = 1;  // % of growth in the second half

struct Sample {
  double minutes = 0;
  int64_t iterations = 0;
  double daemon_mib = 0, ranks_mib = 0;
  double daemon_s = 0, ranks_s = 0;  // CPU
};

// In the second half, in %.
double Growth(const std::vector<Sample>& samples, double Sample::*of) {
  const double half = samples[kSamples / 2 - 1].*of;
  return 100 * (samples.back().*of / half - 1);
}

class RanksMemory {
 public:
  RanksMemory(const RanksPart& part, double minutes)
      : part_(part), jobs_(part.jobs), minutes_(minutes) {}
  void Run();

 private:
  RankJobOptions OptionsOf(const std::string& name, int iterations, bool truth) const;
  std::vector<pid_t> RankPids();
  std::optional<Sample> Take(const std::vector<pid_t>& ranks, double minutes);
  std::vector<Sample> Watch(const std::vector<pid_t>& ranks);
  void Tell(const std::vector<Sample>& samples, double kernels);

  const RanksPart& part_;
  RankJobs& jobs_;
  const double minutes_;
};

// As fast as the processes can: virtual time is not held back.
RankJobOptions RanksMemory::OptionsOf(const std::string& name, int iterations, bool truth) const {
  return {.name = name,
          .ranks = kLongRanks,
          .workload = {"--model", "transformer", "--layers", "12", "--parallel", "tensor",
                       "--examples", "20000", "--epochs", "10000", "--max-iterations",
                       absl::StrCat(iterations), "--seed", absl::StrCat(part_.seed)},
          .settings = {"clock.speed_cap=0", absl::StrCat("noise.seed=", part_.seed)},
          .truth = truth};
}

std::vector<pid_t> RanksMemory::RankPids() {
  for (int tenth = 0; tenth < 1200; ++tenth) {
    std::vector<pid_t> pids;
    if (const auto job = jobs_.Job(kLongJob); job && job->iterations() > 0) {
      for (const v1::Process& process : job->processes()) {
        if (process.end_ns() == 0) pids.push_back(process.pid());
      }
    }
    if (pids.size() == kLongRanks) return pids;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return {};
}

std::optional<Sample> RanksMemory::Take(const std::vector<pid_t>& ranks, double minutes) {
  const auto job = jobs_.Job(kLongJob);
  if (!job) return std::nullopt;
  constexpr double kMib = 1 << 20;
  Sample sample = {.minutes = minutes,
                   .iterations = job->iterations(),
                   .daemon_mib = MemoryStatus("VmRSS:", jobs_.daemon()) / kMib,
                   .daemon_s = CpuSeconds(jobs_.daemon())};
  for (const pid_t rank : ranks) {
    const double bytes = MemoryStatus("VmRSS:", rank);
    if (bytes == 0) return std::nullopt;
    sample.ranks_mib += bytes / kMib;
    sample.ranks_s += CpuSeconds(rank);
  }
  return sample;
}

std::vector<Sample> RanksMemory::Watch(const std::vector<pid_t>& ranks) {
  const auto begin = std::chrono::steady_clock::now();
  std::vector<Sample> samples;
  std::printf("%8s %12s %10s %10s %10s %10s\n", "minutes", "iterations", "daemon MiB", "ranks MiB",
              "daemon s", "ranks s");
  for (int i = 1; i <= kSamples; ++i) {
    const double minutes = minutes_ * i / kSamples;
    std::this_thread::sleep_until(begin + std::chrono::duration<double, std::ratio<60>>(minutes));
    const auto sample = Take(ranks, minutes);
    if (!sample) return {};
    std::printf("%8.2f %12lld %10.1f %10.1f %10.1f %10.1f\n", minutes,
                static_cast<long long>(sample->iterations), sample->daemon_mib, sample->ranks_mib,
                sample->daemon_s, sample->ranks_s);
    std::fflush(stdout);
    samples.push_back(*sample);
  }
  return samples;
}

void RanksMemory::Run() {
  // How many kernels an iteration has.
  if (!jobs_.RunAlone(OptionsOf("short", 200, true))) {
    return part_.table.Leave("memory", "the short job failed");
  }
  const auto truth = ReadTruth(jobs_.TruthFile("short", 0));
  if (!truth) return part_.table.Leave("memory", "the short job has no truth file");
  double kernels = 0;
  for (const TrueIteration& iteration : truth->iterations) {
    kernels += static_cast<double>(iteration.kernels);
  }
  kernels /= static_cast<double>(truth->iterations.size());

  // More iterations than there is time for.
  const int most = static_cast<int>(100'000 * std::max(1.0, minutes_));
  pid_t run = jobs_.Start(OptionsOf(kLongJob, most, false));
  const std::vector<pid_t> ranks = RankPids();
  const std::vector<Sample> samples = ranks.empty() ? std::vector<Sample>() : Watch(ranks);
  KillAndWait(&run, SIGTERM);
  if (samples.empty()) return part_.table.Leave("memory", "the job ended early");
  Tell(samples, kernels);
}

void RanksMemory::Tell(const std::vector<Sample>& samples, double kernels) {
  FigureTable& table = part_.table;
  const Sample& last = samples.back();
  const double wall_s = 60 * last.minutes;
  table.Tell("memory: launches", static_cast<double>(last.iterations) * kernels * kLongRanks, "");
  double collectives = 0;
  if (const auto ranks = jobs_.Ranks(kLongJob)) {
    for (const v1::RankSummary& rank : ranks->ranks()) {
      collectives += static_cast<double>(rank.operations());
    }
  }
  table.Tell("memory: collectives", collectives, "");
  if (const auto job = jobs_.Job(kLongJob)) {
    const v1::Losses& losses = job->losses();
    table.Tell("memory: records lost",
               static_cast<double>(losses.ring_dropped() + losses.ring_lost()), "");
  }
  table.Tell("memory: CPU of the daemon, share of a core", 100 * last.daemon_s / wall_s, "%");
  table.Tell("memory: CPU of a rank, share of a core", 100 * last.ranks_s / kLongRanks / wall_s,
             "%");
  table.Tell("memory: of the daemon at the end", last.daemon_mib, "MiB");
  table.Tell("memory: of a rank at the end", last.ranks_mib / kLongRanks, "MiB");
  table.Compare("memory: growth of the daemon, second half", Growth(samples, &Sample::daemon_mib),
                "%", Bound::kBelow, kFlat);
  table.Compare("memory: growth of the ranks, second half", Growth(samples, &Sample::ranks_mib),
                "%", Bound::kBelow, kFlat);
}

}  // namespace

void WatchRanksMemory(const RanksPart& part, double minutes) {
  std::printf("\nmemory of a job of %d ranks in %.3g minutes\n", kLongRanks, minutes);
  RanksMemory(part, minutes).Run();
}

}  // namespace seqpoint
