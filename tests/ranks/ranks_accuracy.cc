// How soon and how surely RankMonitor names a slow rank or link: ranks_accuracy [--seed N]
// [--even JOBS] [--json OUT] [--quick]. The table of docs/internals/ranks.md.
//
// Constants of daemon/ranks were chosen on seeds below 1,000; the default seed is above.
#include <stdio.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "daemon/base/statistics.h"
#include "tests/ranks/monitored_job.h"
#include "tests/support/figure_table.h"

namespace seqpoint::ranks {
namespace {

using Bound = FigureTable::Bound;

// A parallelism, with lengths that each rank has on its own or shares.
struct Shape {
  Parallel parallel;
  bool own_lengths, new_lengths = false;

  std::string name() const {
    return std::string(Name(parallel)) + (own_lengths ? ", own lengths" : "") +
           (new_lengths ? ", new" : "");
  }
};
constexpr Shape kShapes[] = {{Parallel::kData, false},     {Parallel::kData, true},
                             {Parallel::kSharded, false},  {Parallel::kSharded, true},
                             {Parallel::kPipeline, false}, {Parallel::kTensor, false}};
// While most lengths are new to the ranks.
constexpr Shape kNewShapes[] = {{Parallel::kData, true, true},
                                {Parallel::kSharded, true, true},
                                {Parallel::kPipeline, false, true},
                                {Parallel::kTensor, false, true}};
constexpr FaultKind kKinds[] = {FaultKind::kKernels, FaultKind::kOneKernel, FaultKind::kHost,
                                FaultKind::kLoader, FaultKind::kLink};

JobConfig ConfigOf(const Shape& shape, int32_t ranks, uint64_t seed) {
  JobConfig config;
  config.parallel = shape.parallel;
  config.own_lengths = shape.own_lengths;
  config.new_lengths = shape.new_lengths;
  config.ranks = ranks;
  config.seed = seed;
  return config;
}

enum class Outcome { kRight, kUnknown, kWrong };

// Everything that was named is the fault itself: unknown where nothing was.
Outcome Judge(const JobConfig& config, const Verdicts& verdicts) {
  const Fault& fault = config.faults.front();
  const bool link = fault.kind == FaultKind::kLink;
  bool right = false, wrong = false;
  for (const RankVerdict& verdict : verdicts.ranks) {
    if (verdict.episode_count == 0) continue;
    const bool before = verdict.episodes.front().named < fault.first;
    (link || verdict.rank != fault.rank || before ? wrong : right) = true;
  }
  for (const LinkVerdict& verdict : verdicts.links) {
    const bool pair = config.parallel == Parallel::kPipeline;
    const bool same = verdict.named >= fault.first && verdict.pair == pair &&
                      (!pair || verdict.ranks == std::vector<int32_t>{fault.rank, fault.rank + 1});
    (link && same ? right : wrong) = true;
  }
  return wrong ? Outcome::kWrong : right ? Outcome::kRight : Outcome::kUnknown;
}

int64_t NamedAt(const Verdicts& verdicts) {
  int64_t first = INT64_MAX;
  for (const RankVerdict& verdict : verdicts.ranks)
    for (const Episode& episode : verdict.episodes) first = std::min(first, episode.named);
  for (const LinkVerdict& link : verdicts.links) first = std::min(first, link.named);
  return first;
}

// Iterations until a fault of one kind and size is named; misses beyond 2,000.
struct Delays {
  std::vector<double> named;
  int missed = 0, wrong = 0;
};

Delays Measure(const Shape& shape, FaultKind kind, double size, int jobs, uint64_t seed) {
  constexpr int64_t kStart = 100, kLongest = 2000;
  Delays delays;
  for (int i = 0; i < jobs; ++i) {
    JobConfig config = ConfigOf(shape, i % 2 == 0 ? 4 : 8, seed + static_cast<uint64_t>(i));
    config.faults = {{.kind = kind, .rank = 1 + i % 3, .size = size, .first = kStart + i % 8}};
    if (shape.parallel == Parallel::kPipeline && kind == FaultKind::kLink)
      config.faults.front().rank = i % 3;
    MonitoredJob job(config);
    job.RunUntilNamed(kStart + kLongest);
    const Outcome outcome = Judge(config, job.verdicts());
    delays.missed += outcome == Outcome::kUnknown;
    delays.wrong += outcome == Outcome::kWrong;
    if (outcome == Outcome::kRight)
      delays.named.push_back(
          static_cast<double>(NamedAt(job.verdicts()) - config.faults.front().first + 1));
  }
  return delays;
}

void PrintDelays(int jobs, uint64_t seed, FigureTable& figures) {
  printf(
      "\nIterations until a fault is named: median, 95th percentile, misses, wrong; of %d jobs\n",
      jobs);
  printf("%-22s %-10s", "", "");
  constexpr double kSizes[] = {0.02, 0.05, 0.2};
  for (const double size : kSizes) printf(" %24.0f %%", 100 * size);
  printf("\n");
  std::vector<double> all[std::size(kSizes)];
  int missed[std::size(kSizes)] = {}, wrong[std::size(kSizes)] = {};
  std::vector<Shape> shapes(std::begin(kShapes), std::end(kShapes));
  shapes.insert(shapes.end(), std::begin(kNewShapes), std::end(kNewShapes));
  for (const Shape& shape : shapes)
    for (const FaultKind kind : kKinds) {
      if (shape.new_lengths && kind != FaultKind::kKernels && kind != FaultKind::kLoader) continue;
      printf("%-22s %-10s", shape.name().c_str(), std::string(Name(kind)).c_str());
      for (size_t s = 0; s < std::size(kSizes); ++s) {
        const Delays delays = Measure(shape, kind, kSizes[s], jobs, seed);
        if (delays.named.empty()) {
          printf("        -      - %4d %4d", delays.missed, delays.wrong);
        } else {
          printf("   %6.0f %6.0f %4d %4d", Median(delays.named), Quantile(delays.named, 0.95),
                 delays.missed, delays.wrong);
        }
        fflush(stdout);
        if (shape.new_lengths) continue;  // the targets are for jobs that have warmed up
        all[s].insert(all[s].end(), delays.named.begin(), delays.named.end());
        missed[s] += delays.missed;
        wrong[s] += delays.wrong;
      }
      printf("\n");
    }
  for (size_t s = 0; s < std::size(kSizes); ++s) {
    char name[64];
    snprintf(name, sizeof name, "fault of %.0f %%: ", 100 * kSizes[s]);
    const std::string prefix = name;
    if (s == 0) {
      figures.Tell(prefix + "iterations until named, median", Median(all[s]), "");
    } else {
      figures.Compare(prefix + "iterations until named, median", Median(all[s]), "", Bound::kAtMost,
                      s == 1 ? 200 : 20);
    }
    figures.Tell(prefix + "iterations until named, 95th percentile", Quantile(all[s], 0.95), "");
    figures.Tell(prefix + "missed", missed[s], "jobs");
    figures.Tell(prefix + "wrong", wrong[s], "jobs");
  }
}

// The share of the run that a fault costs, by the same job without it, from the fault on.
double TrueCost(JobConfig config, int64_t iterations) {
  const int64_t first = config.faults.front().first;
  const auto elapsed = [&] {
    SimulatedJob job(config);
    double before = 0;
    for (int64_t i = 0; i < iterations; ++i) {
      if (i == first) before = job.elapsed_ns();
      job.Next(false);
    }
    return job.elapsed_ns() - before;
  };
  const double with = elapsed();
  config.faults.clear();
  return 1 - elapsed() / with;
}

// 200 faults of 5 to 50 % at any start and in any job.
void PrintNamed(const Verdicts& verdicts) {
  for (const RankVerdict& verdict : verdicts.ranks)
    for (const Episode& episode : verdict.episodes)
      printf("    named: rank %d from %ld to %ld, excess %.3f\n", verdict.rank,
             static_cast<long>(episode.first), static_cast<long>(episode.last),
             episode.excess.value);
  for (const LinkVerdict& link : verdicts.links)
    printf("    named: a link from %ld to %ld\n", static_cast<long>(link.first),
           static_cast<long>(link.last));
}

void PrintRandomFaults(int count, uint64_t seed, FigureTable& figures) {
  std::mt19937_64 random(seed);
  const auto draw = [&](int64_t below) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(below));
  };
  int outcomes[3] = {};
  std::vector<double> cost_errors;
  int costs = 0, covered = 0;
  printf("\nFaults that are not named right:\n");
  for (int i = 0; i < count; ++i) {
    const Shape& shape = kShapes[draw(std::size(kShapes))];
    JobConfig config = ConfigOf(shape, int32_t{2} << draw(3), seed + static_cast<uint64_t>(i));
    Fault fault = {.kind = kKinds[draw(std::size(kKinds))],
                   .rank = static_cast<int32_t>(draw(config.ranks)),
                   .size = 0.05 + 0.45 * static_cast<double>(draw(1000)) / 1000,
                   .first = 100 + draw(900)};
    if (shape.parallel == Parallel::kPipeline && fault.kind == FaultKind::kLink)
      fault.rank = static_cast<int32_t>(draw(config.ranks - 1));
    config.faults = {fault};
    MonitoredJob job(config);
    constexpr int64_t kLength = 1000;
    job.Run(fault.first + kLength);
    const Outcome outcome = Judge(config, job.verdicts());
    ++outcomes[static_cast<int>(outcome)];
    if (outcome != Outcome::kRight)
      printf("  %s: %s, %d ranks, %s %.0f %% of rank %d from %ld\n",
             outcome == Outcome::kWrong ? "wrong" : "unknown", shape.name().c_str(), config.ranks,
             std::string(Name(fault.kind)).c_str(), 100 * fault.size, fault.rank,
             static_cast<long>(fault.first));
    if (outcome == Outcome::kWrong) PrintNamed(job.verdicts());
    if (outcome != Outcome::kRight || fault.kind == FaultKind::kLink) continue;
    const Episode& episode = job.rank(fault.rank).episodes.back();
    if (episode.cost_doubt != Doubt::kNone) continue;
    const double truth = TrueCost(config, fault.first + kLength);
    ++costs;
    covered += episode.cost.low <= truth && truth <= episode.cost.high;
    cost_errors.push_back(std::abs(episode.cost.value - truth));
  }
  figures.Tell("random faults named right", 100.0 * outcomes[0] / count, "%");
  figures.Tell("random faults not named", outcomes[1], "jobs");
  figures.Compare("random faults named wrong", outcomes[2], "jobs", Bound::kAtMost,
                  std::floor(0.025 * count));
  if (costs == 0) return;
  figures.Tell("cost of a slow rank: median error, share of the run", 100 * Median(cost_errors),
               "%");
  figures.Tell("cost of a slow rank: 95th percentile of the error",
               100 * Quantile(cost_errors, 0.95), "%");
  figures.Tell("cost of a slow rank: interval holds the truth", 100.0 * covered / costs, "%");
}

void PrintFalseAlarms(bool new_lengths, int jobs, int64_t iterations, uint64_t seed,
                      FigureTable& figures) {
  int64_t alarms = 0, observed = 0;
  for (int i = 0; i < jobs; ++i) {
    Shape shape = kNewShapes[i % 4];
    shape.new_lengths = new_lengths;
    MonitoredJob job(ConfigOf(shape, int32_t{2} << (i / 4 % 3), seed + static_cast<uint64_t>(i)));
    job.Run(iterations);
    alarms += job.named();
    if (job.named() > 0) {
      printf("false alarm: %s, %d ranks, job %d\n", shape.name().c_str(), int32_t{2} << (i / 4 % 3),
             i);
      PrintNamed(job.verdicts());
    }
    observed += job.observed();
  }
  const std::string lengths = new_lengths ? ", new lengths" : "";
  figures.Compare("false alarms in " + std::to_string(jobs) + " jobs of " +
                      std::to_string(iterations) + " iterations" + lengths,
                  static_cast<double>(alarms), "", Bound::kAtMost, 0);
  figures.Tell("iterations that were observed" + lengths,
               100.0 * static_cast<double>(observed) / static_cast<double>(jobs * iterations), "%");
}

// The loss against the same batches with equal lengths on all ranks: the mean over the jobs in
// which all ranks have those of one of them.
void PrintImbalance(int jobs, uint64_t seed, FigureTable& figures) {
  constexpr int64_t kIterations = 2000;
  std::vector<double> errors;
  int covered = 0;
  for (int i = 0; i < jobs; ++i) {
    JobConfig config = ConfigOf(kShapes[i % 2 == 0 ? 1 : 3], int32_t{2} << (i / 2 % 3),
                                seed + static_cast<uint64_t>(i));
    MonitoredJob job(config);
    job.Run(kIterations);
    double balanced_ns = 0;
    for (config.lengths_of = 0; config.lengths_of < config.ranks; ++config.lengths_of) {
      SimulatedJob balanced(config);
      for (int64_t n = 0; n < kIterations; ++n) balanced.Next(false);
      balanced_ns += balanced.elapsed_ns() / config.ranks;
    }
    const double truth = 1 - balanced_ns / job.elapsed_ns();
    const Range& loss = job.verdicts().imbalance.loss;
    errors.push_back(100 * std::abs(loss.value / truth - 1));
    covered += loss.low <= truth && truth <= loss.high;
  }
  figures.Compare("loss by unequal lengths: largest error, relative",
                  *std::max_element(errors.begin(), errors.end()), "%", Bound::kAtMost, 5);
  figures.Tell("loss by unequal lengths: interval holds the truth", 100.0 * covered / jobs, "%");
}

int Main(int argc, char** argv) {
  CLI::App app("How soon and how surely slow ranks and links are named");
  uint64_t seed = 100000;
  std::string json;
  bool quick = false;
  int even = 20;
  app.add_option("--seed", seed, "first seed of the simulated jobs");
  app.add_option("--json", json, "writes the figures to this file");
  app.add_option("--even", even, "jobs of even ranks, of warm and of new lengths each");
  app.add_flag("--quick", quick, "fewer jobs");
  CLI11_PARSE(app, argc, argv);
  FigureTable figures;
  for (const bool new_lengths : {false, true})
    PrintFalseAlarms(new_lengths, even, quick ? 2000 : 10000, seed, figures);
  PrintImbalance(quick ? 6 : 12, seed + 1000, figures);
  PrintRandomFaults(quick ? 40 : 200, seed + 2000, figures);
  PrintDelays(quick ? 6 : 20, seed + 3000, figures);
  if (!json.empty() && !figures.WriteJson(json)) {
    perror(json.c_str());
    return 1;
  }
  return figures.missed() > 0;
}

}  // namespace
}  // namespace seqpoint::ranks

int main(int argc, char** argv) { return seqpoint::ranks::Main(argc, argv); }
