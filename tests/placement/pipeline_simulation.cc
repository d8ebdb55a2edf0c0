#include "tests/placement/pipeline_simulation.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <queue>
#include <random>
#include <set>
#include <tuple>
#include <utility>

namespace seqpoint::placement {
namespace {

struct Piece {
  int device = 0;
  int level = 0;  // device changes on the longest way to it
  std::vector<int> needed_by;
  int needs = 0;              // pieces
  std::vector<double> times;  // by problem
};

std::vector<Piece> PiecesOf(absl::Span<const WeightedProblem> problems,
                            const Placement& placement) {
  const Problem& graph = problems[0].problem;
  const size_t count = graph.operators.size();
  std::vector<std::vector<int>> consumers(count);
  std::vector<int> waits(count), level(count);
  for (const Edge& edge : graph.edges) {
    consumers[edge.from].push_back(edge.to);
    ++waits[edge.to];
  }
  std::queue<int> ready;
  for (size_t i = 0; i < count; ++i) {
    if (waits[i] == 0) ready.push(static_cast<int>(i));
  }
  for (; !ready.empty(); ready.pop()) {
    const int from = ready.front();
    for (const int to : consumers[from]) {
      level[to] = std::max(level[to], level[from] + (placement[from] != placement[to] ? 1 : 0));
      if (--waits[to] == 0) ready.push(to);
    }
  }
  std::vector<Piece> pieces;
  std::map<std::pair<int, int>, int> number;  // by level and device
  for (size_t i = 0; i < count; ++i) number[{level[i], placement[i]}] = 0;
  for (auto& [key, n] : number) {
    n = static_cast<int>(pieces.size());
    pieces.push_back(
        {.device = key.second, .level = key.first, .times = std::vector<double>(problems.size())});
  }
  std::vector<int> piece_of(count);
  for (size_t i = 0; i < count; ++i) piece_of[i] = number[{level[i], placement[i]}];
  std::set<std::pair<int, int>> edges;
  for (size_t i = 0; i < count; ++i) {
    const bool accelerator = placement[i] < graph.accelerators;
    std::map<int, int> first_reader;  // piece, by other device
    for (const int to : consumers[i]) {
      if (piece_of[to] != piece_of[i]) edges.emplace(piece_of[i], piece_of[to]);
      if (placement[to] == placement[i]) continue;
      const auto [it, added] = first_reader.try_emplace(placement[to], piece_of[to]);
      if (!added && pieces[piece_of[to]].level < pieces[it->second].level)
        it->second = piece_of[to];
    }
    for (size_t p = 0; p < problems.size(); ++p) {
      const Operator& op = problems[p].problem.operators[i];
      double& own = pieces[piece_of[i]].times[p];
      own += accelerator ? op.accelerator_time : op.cpu_time;
      if (accelerator && !first_reader.empty()) own += op.transfer_time;
      for (const auto& [device, piece] : first_reader) {
        if (device < graph.accelerators) pieces[piece].times[p] += op.transfer_time;
      }
    }
  }
  for (const auto& [from, to] : edges) {
    pieces[from].needed_by.push_back(to);
    ++pieces[to].needs;
  }
  return pieces;
}

// The problem that each micro-batch is: by weight, exact to one run of the same length.
std::vector<int> Draw(absl::Span<const WeightedProblem> problems, const SimulatedRun& run) {
  double total = 0;
  for (const WeightedProblem& problem : problems) total += problem.weight;
  const int groups = run.micro_batches / run.same_length;
  std::vector<int> order;
  double due = 0;
  for (size_t p = 0; p < problems.size(); ++p) {
    due += problems[p].weight / total * groups;
    while (static_cast<double>(order.size()) < std::round(due)) {
      order.push_back(static_cast<int>(p));
    }
  }
  std::mt19937_64 random(run.seed);
  std::shuffle(order.begin(), order.end(), random);
  std::vector<int> drawn;
  for (const int p : order) drawn.insert(drawn.end(), run.same_length, p);
  return drawn;
}

}  // namespace

double SimulateDecoupled(absl::Span<const WeightedProblem> problems, const Placement& placement,
                         const SimulatedRun& run) {
  const std::vector<Piece> pieces = PiecesOf(problems, placement);
  const std::vector<int> drawn = Draw(problems, run);
  const auto micro_batches = static_cast<int>(drawn.size());
  const size_t count = pieces.size();
  using Task = std::tuple<int, int, int>;  // micro-batch, level, piece
  std::vector<std::set<Task>> queue(problems[0].problem.devices());
  std::vector<bool> busy(queue.size());
  std::vector<int> waits(count * drawn.size());
  for (int m = 0; m < micro_batches; ++m) {
    for (size_t p = 0; p < count; ++p) {
      waits[m * count + p] = pieces[p].needs;
      if (pieces[p].needs == 0) {
        queue[pieces[p].device].emplace(m, pieces[p].level, static_cast<int>(p));
      }
    }
  }
  using Event = std::tuple<double, int, int>;  // end, micro-batch, piece
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events;
  double now = 0;
  const auto begin = [&](int device) {
    if (busy[device] || queue[device].empty()) return;
    const auto [m, level, p] = *queue[device].begin();
    queue[device].erase(queue[device].begin());
    busy[device] = true;
    events.emplace(now + pieces[p].times[drawn[m]], m, p);
  };
  for (size_t d = 0; d < queue.size(); ++d) begin(static_cast<int>(d));
  while (!events.empty()) {
    int m = 0, p = 0;
    std::tie(now, m, p) = events.top();
    events.pop();
    busy[pieces[p].device] = false;
    for (const int next : pieces[p].needed_by) {
      if (--waits[m * count + next] > 0) continue;
      queue[pieces[next].device].emplace(m, pieces[next].level, next);
      begin(pieces[next].device);
    }
    begin(pieces[p].device);
  }
  return now / micro_batches;
}

double SimulateLockStep(absl::Span<const WeightedProblem> problems, const Placement& placement,
                        const SimulatedRun& run) {
  const std::vector<Piece> pieces = PiecesOf(problems, placement);
  const std::vector<int> drawn = Draw(problems, run);
  const auto micro_batches = static_cast<int>(drawn.size());
  int levels = 0;
  for (const Piece& piece : pieces) levels = std::max(levels, piece.level + 1);
  double now = 0;
  for (int round = 0; round < micro_batches + levels - 1; ++round) {
    std::vector<double> end(problems[0].problem.devices(), now);
    for (const Piece& piece : pieces) {
      const int m = round - piece.level;
      if (m >= 0 && m < micro_batches) end[piece.device] += piece.times[drawn[m]];
    }
    now = *std::max_element(end.begin(), end.end());
  }
  return now / micro_batches;
}

}  // namespace seqpoint::placement
