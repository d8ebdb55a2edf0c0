#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/benchmark/ranks_parts.h"
#include "tests/support/truth.h"

namespace seqpoint {
namespace {

using Bound = FigureTable::Bound;
using Lengths = std::vector<int64_t>;

constexpr int kManyRanks = 8;
// One in each pass. Of the first five the truth files have the sums.
constexpr const char* kMetrics[] = {"sm__inst_executed.sum", "dram__bytes_read.sum",
                                    "dram__bytes_write.sum", "sm__pipe_tensor_cycles_active.sum",
                                    "sm__cycles_active.sum", "lts__t_bytes.sum",
                                    "l1tex__t_sectors.sum",  "sm__warps_active.sum"};

// A set for each pass: a measured iteration names its set, and not its pass.
std::filesystem::path WriteMetricsFile(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "passes.ini";
  std::ofstream file(path);
  for (size_t pass = 0; pass < std::size(kMetrics); ++pass) {
    file << "[pass-" << pass << "]\nconfig = gpu__time_duration.sum, " << kMetrics[pass] << "\n";
  }
  return path;
}

// Data parallel, and all ranks have the same batches: each does the work of one rank alone, and the
// collectives.
RankJobOptions OptionsOf(const RanksPart& part, const std::string& name, int ranks) {
  return {.name = name,
          .ranks = ranks,
          .workload = {"--model", "transformer", "--parallel", "data", "--rank-lengths", "shared",
                       "--pad-multiple", "128", "--epochs", "100", "--max-iterations", "1500",
                       "--seed", absl::StrCat(part.seed)},
          .settings = {"clock.speed_cap=1", absl::StrCat("noise.seed=", part.seed)},
          .run = {"--metrics-file", WriteMetricsFile(part.jobs.folder()).string(),
                  "--overhead-budget", "50%"}};
}

// A sum over the ranks against the truth.
struct Sum {
  double error = 0;    // measured / truth - 1
  bool holds = false;  // the interval has the truth
};

// The passes that one job has measured.
struct Passes {
  std::vector<double> occurrences;  // of a length, from its first pass until all were there
  std::map<std::string, Sum> sums;  // by metric
};

// Lengths are the same on all ranks, so the iterations of rank 0 tell how often one occurs.
std::vector<double> OccurrencesUntilComplete(const v1::GetCountersReply& reply,
                                             const std::vector<v1::Iteration>& iterations) {
  struct Length {
    std::set<std::string> passes;
    std::set<int64_t> numbers;
  };
  std::map<Lengths, Length> lengths;
  std::vector<double> occurrences;
  for (const v1::MeasuredIteration& measured : reply.iterations()) {
    if (!measured.complete()) continue;
    const Lengths key(measured.lengths().begin(), measured.lengths().end());
    Length& length = lengths[key];
    if (length.passes.size() == std::size(kMetrics)) continue;
    length.passes.insert(measured.config());
    length.numbers.insert(measured.number());
    if (length.passes.size() < std::size(kMetrics)) continue;
    occurrences.push_back(static_cast<double>(
        std::count_if(iterations.begin(), iterations.end(), [&](const v1::Iteration& iteration) {
          return iteration.number() >= *length.numbers.begin() &&
                 iteration.number() <= *length.numbers.rbegin() &&
                 Lengths(iteration.lengths().begin(), iteration.lengths().end()) == key;
        })));
  }
  return occurrences;
}

// Counters of a job are sums over its ranks.
std::map<std::string, Sum> SumsOf(const v1::GetCountersReply& reply, const RankJobs& jobs,
                                  const std::string& name, int ranks) {
  std::map<std::string, double> truth;
  std::map<std::string, Sum> sums;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto of_rank = ReadTruth(jobs.TruthFile(name, rank));
    if (!of_rank) return {};
    for (const auto& [metric, value] : of_rank->counters) truth[metric] += value;
  }
  for (const v1::Counter& counter : reply.counters()) {
    const auto expected = truth.find(counter.metric());
    if (expected == truth.end() || !counter.complete()) continue;
    const v1::Estimate& measured = counter.projection().so_far();
    sums[counter.metric()] = {
        .error = measured.value() / expected->second - 1,
        .holds = measured.low() <= expected->second && expected->second <= measured.high()};
  }
  return sums;
}

std::optional<Passes> Collect(const RanksPart& part, int ranks) {
  const std::string name = absl::StrCat("passes-", ranks);
  if (!part.jobs.Run(OptionsOf(part, name, ranks))) {
    std::printf("%s failed: see %s\n", name.c_str(), part.jobs.Log(name).c_str());
    return std::nullopt;
  }
  Api api = part.jobs.NewApi();
  v1::GetCountersRequest request;
  request.set_job(name);
  const auto reply = api.Call(&v1::Profiler::Stub::GetCounters, request);
  const auto iterations = api.Iterations(name);
  if (!reply || !iterations) {
    std::printf("%s: %s\n", name.c_str(), api.error().c_str());
    return std::nullopt;
  }
  Passes passes = {.occurrences = OccurrencesUntilComplete(*reply, *iterations),
                   .sums = SumsOf(*reply, part.jobs, name, ranks)};
  std::printf("%d ranks: %d measured iterations; all passes of %zu lengths, after", ranks,
              reply->measured_iterations(), passes.occurrences.size());
  for (const double occurrences : passes.occurrences) std::printf(" %.0f", occurrences);
  std::printf(" occurrences\n");
  return passes;
}

double Mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());  // NaN of none
}

}  // namespace

void MeasureCounters(const RanksPart& part) {
  std::printf("\n%zu passes, shared by %d ranks\n", std::size(kMetrics), kManyRanks);
  const auto one = Collect(part, 1);
  const auto many = Collect(part, kManyRanks);
  if (!one || !many) return part.table.Leave("passes shared by ranks", "a job failed");
  part.table.Tell("1 rank: occurrences of a length until all passes are there, mean",
                  Mean(one->occurrences), "");
  part.table.Tell("8 ranks: occurrences of a length until all passes are there, mean",
                  Mean(many->occurrences), "");
  part.table.Compare("8 ranks: occurrences until all passes are there, share of 1 rank's",
                     Mean(many->occurrences) / Mean(one->occurrences), "", Bound::kAtMost,
                     1.0 / kManyRanks);
  double held = 0;
  for (const auto& [metric, sum] : many->sums) {
    held += sum.holds;
    const auto alone = one->sums.find(metric);
    const double error = alone == one->sums.end() ? NAN : alone->second.error;
    const double differs = std::abs((1 + sum.error) / (1 + error) - 1);
    std::printf("%s: of the truth %+.2f %% on 1 rank, %+.2f %% on 8\n", metric.c_str(), 100 * error,
                100 * sum.error);
    part.table.Compare(absl::StrCat(metric, ": 8 ranks against 1 rank, each by its truth"),
                       100 * differs, "%", Bound::kAtMost, 0.5);
  }
  part.table.Compare("8 ranks: intervals of sums that hold the truth", held, "", Bound::kEqual,
                     static_cast<double>(many->sums.size()));
}

}  // namespace seqpoint
