#include "daemon/placement/judge.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace seqpoint::placement {
namespace {

// The operators that read each operator's output.
std::vector<std::vector<int>> Consumers(const Problem& problem) {
  std::vector<std::vector<int>> consumers(problem.operators.size());
  for (const Edge& edge : problem.edges) consumers[edge.from].push_back(edge.to);
  return consumers;
}

// Vertices 0 to n - 1 so that every edge leads on; shorter than n where there is a cycle.
std::vector<int> TopologicalOrder(const std::vector<std::set<int>>& successors) {
  std::vector<int> waits_for(successors.size(), 0);
  for (const std::set<int>& after : successors) {
    for (int to : after) ++waits_for[to];
  }
  std::vector<int> order;
  for (size_t v = 0; v < successors.size(); ++v) {
    if (waits_for[v] == 0) order.push_back(static_cast<int>(v));
  }
  for (size_t next = 0; next < order.size(); ++next) {
    for (int to : successors[order[next]]) {
      if (--waits_for[to] == 0) order.push_back(to);
    }
  }
  return order;
}

bool Contiguous(const Problem& problem, const Placement& placement) {
  std::set<int64_t> forward_colors;
  for (const Operator& op : problem.operators) {
    if (!op.backward && op.color.has_value()) forward_colors.insert(*op.color);
  }
  const auto backward_only = [&](int i) {
    const Operator& op = problem.operators[i];
    return op.backward && !(op.color.has_value() && forward_colors.contains(*op.color));
  };
  std::vector<std::set<int>> before(problem.devices());
  for (const Edge& edge : problem.edges) {
    int from = placement[edge.from], to = placement[edge.to];
    if (from < 0 || to < 0 || from == to) continue;
    const bool from_backward = problem.operators[edge.from].backward;
    const bool to_backward = problem.operators[edge.to].backward;
    if (from_backward != to_backward) continue;
    if (from_backward) {
      if (!backward_only(edge.from) && !backward_only(edge.to)) continue;
      std::swap(from, to);
    }
    before[from].insert(to);
  }
  return TopologicalOrder(before).size() == before.size();
}

std::string Name(const Operator& op) {
  return op.name.empty() ? absl::StrCat("operator ", op.id)
                         : absl::StrCat("operator ", op.id, " (", op.name, ")");
}

std::string DeviceName(const Problem& problem, int device) {
  return problem.IsAccelerator(device) ? absl::StrCat("accelerator ", device)
                                       : absl::StrCat("core ", device - problem.accelerators);
}

}  // namespace

Judgement Judge(const Problem& problem, const Placement& placement) {
  Judgement judgement;
  judgement.devices.resize(problem.devices());
  std::map<int64_t, int> first_of_color;
  const std::vector<std::vector<int>> consumers = Consumers(problem);
  for (size_t i = 0; i < problem.operators.size(); ++i) {
    const Operator& op = problem.operators[i];
    const int device = placement[i];
    if (device < 0 || device >= problem.devices()) {
      judgement.violations.push_back(absl::StrCat(Name(op), " is on no device"));
      continue;
    }
    DeviceLoad& load = judgement.devices[device];
    ++load.operators;
    load.compute += problem.IsAccelerator(device) ? op.accelerator_time : op.cpu_time;
    if (problem.IsAccelerator(device)) {
      load.memory_bytes += op.memory_bytes;
      if (!op.accelerator_supported) {
        judgement.violations.push_back(
            absl::StrCat(Name(op), " cannot run on ", DeviceName(problem, device)));
      }
    }
    if (op.color.has_value()) {
      const int first = first_of_color.try_emplace(*op.color, i).first->second;
      if (placement[first] != device) {
        judgement.violations.push_back(
            absl::StrCat(Name(op), " and ", Name(problem.operators[first]), " have the color ",
                         *op.color, " and sit on different devices"));
      }
    }
    std::set<int> reached = {device};
    for (int consumer : consumers[i]) reached.insert(placement[consumer]);
    if (reached.size() < 2) continue;
    for (int at : reached) {
      if (at >= 0 && problem.IsAccelerator(at)) {
        judgement.devices[at].communication += op.transfer_time;
      }
    }
  }
  for (int device = 0; device < problem.devices(); ++device) {
    const DeviceLoad& load = judgement.devices[device];
    judgement.max_load = std::max(judgement.max_load, load.load());
    if (load.memory_bytes > problem.memory_limit()) {
      judgement.violations.push_back(absl::StrFormat("%s holds %.0f bytes; it has %.0f",
                                                     DeviceName(problem, device), load.memory_bytes,
                                                     problem.memory_bytes));
    }
  }
  judgement.contiguous = Contiguous(problem, placement);
  return judgement;
}

namespace {

// Cuts placements that are not contiguous as the published program does: the piece of an operator
// is one more than that of any operator of the same accelerator whose output comes back to it over
// another device.
std::vector<int> PublishedPieces(const Problem& problem, const Placement& placement,
                                 const std::vector<int>& order,
                                 const std::vector<std::vector<int>>& producers) {
  const int operators = static_cast<int>(problem.operators.size());
  std::vector<int> pieces(operators, 0), level(operators, 0);
  // Before its first and behind its last operator an accelerator has no levels.
  std::vector<int> first(problem.devices(), operators), last(problem.devices(), -1);
  for (int i = 0; i < operators; ++i) {
    const int device = placement[order[i]];
    if (device < 0) continue;
    first[device] = std::min(first[device], i);
    last[device] = i;
  }
  for (int accelerator = 0; accelerator < problem.accelerators; ++accelerator) {
    for (int i = first[accelerator]; i <= last[accelerator]; ++i) {
      const int v = order[i];
      const bool inside = placement[v] == accelerator;
      if (inside) level[v] = 1;
      for (int u : producers[v]) {
        const bool comes_back = inside && placement[u] != accelerator;
        level[v] = std::max(level[v], level[u] + (comes_back ? 1 : 0));
      }
      if (inside) pieces[v] = level[v] - 1;
    }
    for (int i = first[accelerator]; i <= last[accelerator]; ++i) level[order[i]] = 0;
  }
  return pieces;
}

}  // namespace

double Latency(const Problem& problem, const Placement& placement,
               const std::vector<int>* given_pieces) {
  const int operators = static_cast<int>(problem.operators.size());
  const std::vector<std::vector<int>> consumers = Consumers(problem);
  std::vector<std::vector<int>> producers(operators);
  for (const Edge& edge : problem.edges) producers[edge.to].push_back(edge.from);
  std::vector<int> pieces;
  if (given_pieces != nullptr) {
    pieces = *given_pieces;
  } else {
    std::vector<std::set<int>> successors(operators);
    for (const Edge& edge : problem.edges) successors[edge.from].insert(edge.to);
    pieces = PublishedPieces(problem, placement, TopologicalOrder(successors), producers);
  }

  // A step is an operator on a core, or a piece of an accelerator.
  std::vector<std::vector<int>> members;
  std::vector<int> step_of(operators);
  std::map<std::pair<int, int>, int> step_of_piece;
  for (int v = 0; v < operators; ++v) {
    int step = static_cast<int>(members.size());
    if (problem.IsAccelerator(placement[v])) {
      step = step_of_piece.try_emplace({placement[v], pieces[v]}, step).first->second;
    }
    if (step == static_cast<int>(members.size())) members.emplace_back();
    members[step].push_back(v);
    step_of[v] = step;
  }
  std::vector<std::set<int>> successors(members.size());
  for (const Edge& edge : problem.edges) {
    if (step_of[edge.from] != step_of[edge.to]) {
      successors[step_of[edge.from]].insert(step_of[edge.to]);
    }
  }
  for (auto piece = step_of_piece.begin(); piece != step_of_piece.end(); ++piece) {
    const auto next = std::next(piece);
    if (next != step_of_piece.end() && next->first.first == piece->first.first) {
      successors[piece->second].insert(next->second);
    }
  }
  const std::vector<int> order = TopologicalOrder(successors);
  if (order.size() != members.size()) return std::numeric_limits<double>::infinity();

  std::vector<double> begin(members.size(), 0);
  double latency = 0;
  for (int step : order) {
    double end = begin[step];
    std::set<int> fetched;
    for (int v : members[step]) {
      const Operator& op = problem.operators[v];
      if (!problem.IsAccelerator(placement[v])) {
        end += op.cpu_time;
        continue;
      }
      end += op.accelerator_time;
      for (int u : producers[v]) {
        if (step_of[u] != step && fetched.insert(u).second) {
          end += problem.operators[u].transfer_time;
        }
      }
      const bool needed_outside =
          std::any_of(consumers[v].begin(), consumers[v].end(),
                      [&](int consumer) { return step_of[consumer] != step; });
      if (needed_outside) end += op.transfer_time;
    }
    for (int after : successors[step]) begin[after] = std::max(begin[after], end);
    latency = std::max(latency, end);
  }
  return latency;
}

}  // namespace seqpoint::placement
