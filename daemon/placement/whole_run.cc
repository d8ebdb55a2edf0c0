#include "daemon/placement/whole_run.h"

#include <algorithm>
#include <vector>

#include "daemon/placement/class_graph.h"
#include "daemon/placement/judge.h"
#include "daemon/placement/search.h"

namespace seqpoint::placement {
namespace {

double TotalWeight(absl::Span<const WeightedProblem> problems) {
  double total = 0;
  for (const WeightedProblem& problem : problems) total += problem.weight;
  return total;
}

bool Allowed(absl::Span<const WeightedProblem> problems, const Placement& placement,
             bool contiguous) {
  for (const WeightedProblem& problem : problems) {
    const Judgement judgement = Judge(problem.problem, placement);
    if (!judgement.violations.empty() || (contiguous && !judgement.contiguous)) return false;
  }
  return true;
}

}  // namespace

Problem AverageProblem(absl::Span<const WeightedProblem> problems) {
  Problem average = problems[0].problem;
  const double total = TotalWeight(problems);
  for (size_t i = 0; i < average.operators.size(); ++i) {
    Operator& op = average.operators[i];
    op.cpu_time = op.accelerator_time = op.transfer_time = op.memory_bytes = 0;
    for (const WeightedProblem& problem : problems) {
      const Operator& at_length = problem.problem.operators[i];
      const double share = problem.weight / total;
      op.cpu_time += share * at_length.cpu_time;
      op.accelerator_time += share * at_length.accelerator_time;
      op.transfer_time += share * at_length.transfer_time;
      op.memory_bytes = std::max(op.memory_bytes, at_length.memory_bytes);
    }
  }
  return average;
}

WholeRunTime TimeOfWholeRun(absl::Span<const WeightedProblem> problems,
                            const Placement& placement) {
  WholeRunTime time;
  const double total = TotalWeight(problems);
  for (const WeightedProblem& problem : problems) {
    const Judgement judgement = Judge(problem.problem, placement);
    const double share = problem.weight / total;
    time.expected_load.resize(judgement.devices.size());
    for (size_t d = 0; d < judgement.devices.size(); ++d) {
      time.expected_load[d] += share * judgement.devices[d].load();
    }
    time.lock_step += share * judgement.max_load;
  }
  for (const double load : time.expected_load) time.decoupled = std::max(time.decoupled, load);
  return time;
}

LockStepResult ImproveLockStep(absl::Span<const WeightedProblem> problems, const Placement& start,
                               bool contiguous, const SearchOptions& options) {
  LockStepResult best = {start, TimeOfWholeRun(problems, start).lock_step};
  const Problem average = AverageProblem(problems);
  contiguous = contiguous && Judge(average, start).contiguous;
  const ClassGraph classes = contiguous ? ContiguousClasses(average) : ColorClasses(average);
  const double total = TotalWeight(problems);
  std::vector<ClassGraph> graphs;
  std::vector<WeightedGraph> lengths;
  graphs.reserve(problems.size());
  for (const WeightedProblem& problem : problems) {
    graphs.push_back(WithCostsOf(classes, problem.problem));
    for (int c = 0; c < classes.size(); ++c) {
      graphs.back().classes[c].memory_bytes = classes.classes[c].memory_bytes;
    }
    lengths.push_back({problem.weight / total, &graphs.back()});
  }
  const SearchResult found =
      Search(lengths, average, DevicesOf(classes, start), contiguous, options);
  best.stopped = found.stopped;
  if (found.device.empty()) return best;
  const Placement placement = ToPlacement(classes, found.device);
  const double value = TimeOfWholeRun(problems, placement).lock_step;
  if (value < best.value && Allowed(problems, placement, contiguous)) {
    best.placement = placement;
    best.value = value;
  }
  return best;
}

}  // namespace seqpoint::placement
