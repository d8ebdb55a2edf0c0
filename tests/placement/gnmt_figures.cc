#include "tests/placement/gnmt_figures.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/placement/planner.h"
#include "daemon/placement/whole_run.h"
#include "tests/placement/pipeline_simulation.h"
#include "tests/placement/traced_gnmt.h"

namespace seqpoint::placement {
namespace {

using Bound = FigureTable::Bound;

constexpr int kPoints = 16;  // as `seqpoint playlist` chooses where nobody says
constexpr int kThreads = 2;
constexpr double kMemoryBytes = 141e9;  // of the software GPU (gpu.memory_gb)
// For each iteration of the epoch, so that each length comes as often as it does there.
constexpr int kDecoupledRounds = 160;
// Micro-batches of one length, one after the other: filling and draining is not predicted.
constexpr int kSameLength = 2'000;
constexpr double kSame = 1e-9;  // relative; sums differ in the last digits with their order

// Hidden size, layers and batch are those of GNMT in MLPerf Training 0.6. As fast a host as the
// program has, so that the GPU, and not the host, decides.
GnmtRun Run() {
  return {.batch = 128,
          .options = {"--hidden", "1024", "--layers", "4", "--launch-us", "1"},
          // Whether the one iteration in a hundred that is slow is a traced one would be chance.
          .settings = "noise.slow_share=0"};
}

std::vector<WeightedProblem> Weighted(const std::vector<Epoch::Share>& shares,
                                      const std::vector<Lengths>& lengths,
                                      const std::vector<TracedProblem>& traced, int devices) {
  std::vector<WeightedProblem> problems;
  for (const Epoch::Share& share : shares) {
    const auto found = std::find(lengths.begin(), lengths.end(), share.lengths);
    if (found == lengths.end()) continue;
    WeightedProblem& problem = problems.emplace_back();
    problem.name = absl::StrJoin(share.lengths, " x ");
    problem.weight = share.iterations;
    problem.problem = traced[found - lengths.begin()].problem;
    problem.problem.accelerators = devices;
    problem.problem.memory_bytes = kMemoryBytes;
  }
  return problems;
}

int Tokens(const Lengths& lengths) { return std::accumulate(lengths.begin(), lengths.end(), 0); }

struct Single {
  std::string name;
  WholeRunTime time;
};

void OfDevices(int devices, const Epoch& epoch, const std::vector<Lengths>& lengths,
               const std::vector<TracedProblem>& traced, FigureTable& table) {
  const std::vector<WeightedProblem> all = Weighted(epoch.all, lengths, traced, devices);
  const std::vector<WeightedProblem> points = Weighted(epoch.seqpoints, lengths, traced, devices);
  const PlannerOptions options = {.threads = kThreads};
  const SearchOptions search = {.restarts = 8, .threads = kThreads};
  const std::string of = absl::StrCat("GNMT, ", devices, " devices: ");

  double deviation = 0;
  const auto tell = [&](const std::string& name, const Placement& placement) {
    const WholeRunTime time = TimeOfWholeRun(all, placement);
    const auto rounds = static_cast<int>(
        std::accumulate(all.begin(), all.end(), 0.0,
                        [](double sum, const WeightedProblem& p) { return sum + p.weight; }));
    const double decoupled =
        SimulateDecoupled(all, placement, {.micro_batches = rounds * kDecoupledRounds});
    const double lock_step = SimulateLockStep(
        all, placement, {.micro_batches = rounds * kSameLength, .same_length = kSameLength});
    table.Tell(of + name + ", decoupled", time.decoupled, "ms");
    table.Tell("    simulated", decoupled, "ms");
    table.Tell("    in lock-step", time.lock_step, "ms");
    table.Tell("    simulated", lock_step, "ms");
    deviation = std::max({deviation, std::abs(decoupled / time.decoupled - 1),
                          std::abs(lock_step / time.lock_step - 1)});
    return time;
  };

  const auto plan = MakePlan(AverageProblem(points), options);
  const auto informed = MakePlan(AverageProblem(all), options);
  if (!plan.ok() || !informed.ok()) {
    table.Leave(of + "placements", plan.ok() ? std::string(informed.status().message())
                                             : std::string(plan.status().message()));
    return;
  }
  const LockStepResult in_step = ImproveLockStep(points, plan->placement, true, search);
  const WholeRunTime decoupled = tell("for the whole run", plan->placement);
  const WholeRunTime lock_step =
      tell("for the whole run, searched in lock-step", in_step.placement);
  table.Compare("    optimal for the SeqPoints, decoupled (1: yes)", plan->optimal ? 1 : 0, "",
                Bound::kEqual, 1);
  table.Tell("    planned with every length: decoupled",
             TimeOfWholeRun(all, informed->placement).decoupled, "ms");
  table.Tell("    planned with every length: in lock-step",
             ImproveLockStep(all, informed->placement, true, search).value, "ms");
  const WholeRunTime by_points = TimeOfWholeRun(points, plan->placement);
  table.Tell("    expected by the SeqPoints, against every length, decoupled",
             100 * (by_points.decoupled / decoupled.decoupled - 1), "%");
  table.Tell("    expected by the SeqPoints, against every length, in lock-step",
             100 * (TimeOfWholeRun(points, in_step.placement).lock_step / lock_step.lock_step - 1),
             "%");
  tell("one device", Placement(all[0].problem.operators.size(), 0));

  // Best for a single length.
  const auto best_for = [&](const WeightedProblem& one) {
    const auto best = MakePlan(one.problem, options);
    return best.ok() ? best->placement : Placement(one.problem.operators.size(), 0);
  };
  double tokens = 0, iterations = 0;
  for (const Epoch::Share& share : epoch.all) {
    tokens += share.iterations * Tokens(share.lengths);
    iterations += share.iterations;
  }
  const auto place = [&](auto better) {
    return std::min_element(epoch.all.begin(), epoch.all.end(), better) - epoch.all.begin();
  };
  const auto mean = place([&](const auto& a, const auto& b) {
    return std::abs(Tokens(a.lengths) - tokens / iterations) <
           std::abs(Tokens(b.lengths) - tokens / iterations);
  });
  const auto commonest =
      place([](const auto& a, const auto& b) { return a.iterations > b.iterations; });
  const auto longest =
      place([](const auto& a, const auto& b) { return Tokens(a.lengths) > Tokens(b.lengths); });
  tell(absl::StrCat("best for the mean length, ", all[mean].name), best_for(all[mean]));
  tell(absl::StrCat("best for the commonest, ", all[commonest].name), best_for(all[commonest]));
  tell(absl::StrCat("best for the longest, ", all[longest].name), best_for(all[longest]));
  std::vector<Single> singles;
  for (const WeightedProblem& one : points) {
    singles.push_back({one.name, TimeOfWholeRun(all, best_for(one))});
  }
  const auto [best, worst] = std::minmax_element(
      singles.begin(), singles.end(),
      [](const Single& a, const Single& b) { return a.time.decoupled < b.time.decoupled; });
  const auto [best_in_step, worst_in_step] = std::minmax_element(
      singles.begin(), singles.end(),
      [](const Single& a, const Single& b) { return a.time.lock_step < b.time.lock_step; });
  std::vector<std::string> dearer;
  for (const Single& one : singles) {
    if (one.time.decoupled > decoupled.decoupled * (1 + kSame)) dearer.push_back(one.name);
  }
  table.Tell(absl::StrCat(of, "SeqPoints whose own best placement makes the run longer",
                          dearer.empty() ? "" : ": ", absl::StrJoin(dearer, ", ")),
             static_cast<double>(dearer.size()), "");
  const std::string single = "    best for one SeqPoint, ";
  table.Tell(single + "the best of these, " + best->name + ", decoupled", best->time.decoupled,
             "ms");
  table.Tell(single + "the best of these, " + best_in_step->name + ", in lock-step",
             best_in_step->time.lock_step, "ms");
  table.Tell(single + "the worst of these, " + worst->name + ", decoupled", worst->time.decoupled,
             "ms");
  table.Tell(single + "the worst of these, " + worst_in_step->name + ", in lock-step",
             worst_in_step->time.lock_step, "ms");
  table.Compare(of + "simulated against predicted, the largest deviation", 100 * deviation, "%",
                Bound::kAtMost, 1);
}

}  // namespace

void GnmtFigures(FigureTable& table) {
  whatif::SoftwareRuns runs;
  const GnmtRun run = Run();
  const auto epoch = TrainGnmt(
      runs, run, {"--histogram", "newstest", "--order", "bucket", "--drop-last"}, kPoints);
  if (!epoch.ok()) {
    table.Leave("GNMT of the software GPU", std::string(epoch.status().message()));
    return;
  }
  std::vector<Lengths> lengths;
  for (const Epoch::Share& share : epoch->all) lengths.push_back(share.lengths);
  const auto traced = TraceGnmt(runs, run, lengths);
  if (!traced.ok()) {
    table.Leave("GNMT of the software GPU", std::string(traced.status().message()));
    return;
  }
  double iterations = 0, traced_ms = 0, furthest = 0, kernels_ms = 0;
  for (size_t i = 0; i < traced->size(); ++i) {
    const TracedProblem& one = (*traced)[i];
    iterations += epoch->all[i].iterations;
    traced_ms += epoch->all[i].iterations * one.iteration_ms;
    kernels_ms += epoch->all[i].iterations * one.kernels_ms;
    furthest = std::max(furthest, std::abs(one.loads_ms / one.iteration_ms - 1));
  }
  table.Tell("GNMT: iterations of the epoch", iterations, "");
  table.Tell("    pairs of lengths", static_cast<double>(lengths.size()), "");
  table.Tell("    SeqPoints", static_cast<double>(epoch->seqpoints.size()), "");
  table.Tell("    operators, forward and backward",
             static_cast<double>((*traced)[0].problem.operators.size()), "");
  table.Tell("    mean iteration without the profiler", epoch->mean_ms, "ms");
  table.Tell("    the same from traced iterations", traced_ms / iterations, "ms");
  table.Tell("    of it in kernels and memsets", kernels_ms / iterations, "ms");
  table.Compare("GNMT: loads against the traced iteration, the furthest", 100 * furthest, "%",
                Bound::kAtMost, 2);
  for (const int devices : {2, 4, 8}) OfDevices(devices, *epoch, lengths, *traced, table);
}

}  // namespace seqpoint::placement
