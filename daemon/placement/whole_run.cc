#include "daemon/placement/whole_run.h"

#include <algorithm>
#include <map>
#include <utility>

#include "daemon/placement/components.h"
#include "daemon/placement/judge.h"

namespace seqpoint::placement {
namespace {

// Smaller gains are rounding.
constexpr double kGain = 1e-9;

double TotalWeight(absl::Span<const WeightedProblem> problems) {
  double total = 0;
  for (const WeightedProblem& problem : problems) total += problem.weight;
  return total;
}

// The operators that move together.
std::vector<std::vector<int>> Groups(const Problem& problem) {
  std::vector<std::vector<int>> groups;
  std::map<int64_t, size_t> of_color;
  for (size_t i = 0; i < problem.operators.size(); ++i) {
    size_t group = groups.size();
    if (const auto& color = problem.operators[i].color) {
      group = of_color.try_emplace(*color, group).first->second;
    }
    if (group == groups.size()) groups.emplace_back();
    groups[group].push_back(static_cast<int>(i));
  }
  return groups;
}

// Groups that need each other's outputs.
std::vector<std::vector<int>> Neighbors(const Problem& problem,
                                        const std::vector<std::vector<int>>& groups) {
  std::vector<int> group_of(problem.operators.size());
  for (size_t g = 0; g < groups.size(); ++g) {
    for (const int op : groups[g]) group_of[op] = static_cast<int>(g);
  }
  Adjacency neighbors(groups.size());
  for (const Edge& edge : problem.edges) {
    const int from = group_of[edge.from], to = group_of[edge.to];
    if (from == to) continue;
    neighbors[from].push_back(to);
    neighbors[to].push_back(from);
  }
  SortUnique(&neighbors);
  return neighbors;
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
                               bool contiguous, const std::function<bool()>& stop) {
  const Problem& first = problems[0].problem;
  LockStepResult best = {start, TimeOfWholeRun(problems, start).lock_step};
  contiguous = contiguous && Judge(first, start).contiguous;
  const std::vector<std::vector<int>> groups = Groups(first);
  const std::vector<std::vector<int>> neighbors = Neighbors(first, groups);
  // A stage gains or loses at its border, or begins on a device that has nothing.
  const auto reaches = [&](size_t group, int device) {
    if (!contiguous) return true;
    return std::none_of(best.placement.begin(), best.placement.end(),
                        [&](int used) { return used == device; }) ||
           std::any_of(neighbors[group].begin(), neighbors[group].end(),
                       [&](int neighbor) { return best.placement[groups[neighbor][0]] == device; });
  };
  // Passes over all moves, until one pass finds none.
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t g = 0; g < groups.size(); ++g) {
      const std::vector<int>& group = groups[g];
      for (int device = 0; device < first.devices(); ++device) {
        if (stop()) {
          best.stopped = true;
          return best;
        }
        if (best.placement[group[0]] == device || !reaches(g, device)) continue;
        Placement candidate = best.placement;
        for (const int op : group) candidate[op] = device;
        const double value = TimeOfWholeRun(problems, candidate).lock_step;
        if (value >= best.value * (1 - kGain) || !Allowed(problems, candidate, contiguous)) {
          continue;
        }
        best.placement = std::move(candidate);
        best.value = value;
        moved = true;
      }
    }
  }
  return best;
}

}  // namespace seqpoint::placement
