#include "daemon/placement/latency.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "daemon/placement/components.h"

namespace seqpoint::placement {
namespace {

// For each operator others, in the order of the edges.
using Lists = std::vector<std::vector<int>>;

Lists ListEdges(const Problem& problem, int Edge::*from, int Edge::*to) {
  Lists lists(problem.operators.size());
  for (const Edge& edge : problem.edges) lists[edge.*from].push_back(edge.*to);
  return lists;
}

// All states read it.
struct Graph {
  explicit Graph(const Problem& p, const ClassGraph& g, bool one_piece)
      : problem(p),
        classes(g),
        contiguous(one_piece),
        consumers(ListEdges(p, &Edge::from, &Edge::to)),
        producers(ListEdges(p, &Edge::to, &Edge::from)),
        order(DepthFirstOrder(consumers)) {
    for (const Operator& op : p.operators) {
      unit += p.accelerators > 0 ? op.accelerator_time : op.cpu_time;
    }
  }
  const Problem& problem;
  const ClassGraph& classes;
  const bool contiguous;
  const Lists consumers, producers;
  const std::vector<int> order;
  double unit = 0;  // all operators one after another
};

// A placement of classes and how long a sample takes: O(operators + edges) for each question, times
// the accelerators where these have several pieces.
class LatencyState {
 public:
  LatencyState(const Graph& graph, const std::vector<int>& device)
      : graph_(&graph), device_(device), bytes_(graph.problem.accelerators, 0) {
    Recount();
  }

  const std::vector<int>& devices() const { return device_; }
  void Move(int c, int to) {
    AddBytes(c, -1);
    device_[c] = to;
    AddBytes(c, +1);
    latency_ = -1;
  }
  void Recount() {
    std::fill(bytes_.begin(), bytes_.end(), 0);
    for (int c = 0; c < graph_->classes.size(); ++c) AddBytes(c, +1);
  }
  bool Allowed(const Neighbourhood::Moves&) const { return true; }

  double Energy() const {
    double excess = 0;
    for (double bytes : bytes_) excess += std::max(0.0, bytes / graph_->problem.memory_limit() - 1);
    // An accelerator twice too full costs as much as the work of all.
    return Latency() + graph_->unit * excess;
  }
  double Value() const {
    const double most = graph_->problem.memory_limit();
    const bool fits =
        std::all_of(bytes_.begin(), bytes_.end(), [most](double bytes) { return bytes <= most; });
    return fits ? Latency() : kInfinity;
  }

 private:
  void AddBytes(int c, int sign) {
    if (device_[c] >= graph_->problem.accelerators) return;
    bytes_[device_[c]] += sign * graph_->classes.classes[c].memory_bytes;
  }
  double Latency() const {
    if (latency_ < 0) latency_ = Compute();
    return latency_;
  }

  // The piece of each operator on its accelerator, and how many each accelerator has.
  void Cut() const {
    const int operators = static_cast<int>(graph_->problem.operators.size());
    const int accelerators = graph_->problem.accelerators;
    piece_.assign(operators, 0);
    pieces_.assign(accelerators, 0);
    if (graph_->contiguous) {
      for (int v = 0; v < operators; ++v) piece_[v] = graph_->problem.operators[v].backward;
      pieces_.assign(accelerators, 2);
      return;
    }
    // The stretch of the order that each accelerator's operators lie in: outside of it nothing
    // leads from the accelerator back to it.
    first_.assign(accelerators, operators);
    last_.assign(accelerators, -1);
    for (int i = 0; i < operators; ++i) {
      const int d = OnDevice(graph_->order[i]);
      if (d >= accelerators) continue;
      first_[d] = std::min(first_[d], i);
      last_[d] = i;
    }
    level_.assign(operators, -1);
    for (int d = 0; d < accelerators; ++d) {
      // One more whenever an output of the accelerator comes back to it over another device.
      for (int i = first_[d]; i <= last_[d]; ++i) {
        const int v = graph_->order[i];
        const bool inside = OnDevice(v) == d;
        int level = inside ? 0 : -1;
        for (int u : graph_->producers[v]) {
          level = std::max(level, level_[u] + (inside && OnDevice(u) != d ? 1 : 0));
        }
        level_[v] = level;
        if (!inside) continue;
        piece_[v] = level;
        pieces_[d] = std::max(pieces_[d], level + 1);
      }
      for (int i = first_[d]; i <= last_[d]; ++i) level_[graph_->order[i]] = -1;
    }
  }

  int OnDevice(int v) const { return device_[graph_->classes.class_of[v]]; }

  double Compute() const {
    const Problem& problem = graph_->problem;
    const int operators = static_cast<int>(problem.operators.size());
    const int accelerators = problem.accelerators;
    Cut();
    // Steps: an operator on a core, or a piece; pieces have the numbers after the operators.
    int steps = operators;
    first_piece_.clear();
    for (const int pieces : pieces_) {
      first_piece_.push_back(steps);
      steps += pieces;
    }
    steps_.assign(steps, {});
    step_of_.resize(operators);
    members_.assign(steps - operators, {});
    int left = 0;
    for (int v = 0; v < operators; ++v) {
      const int d = OnDevice(v);
      step_of_[v] = d < accelerators ? first_piece_[d] + piece_[v] : v;
      if (d < accelerators) members_[step_of_[v] - operators].push_back(v);
    }
    for (int v = 0; v < operators; ++v) {
      for (int consumer : graph_->consumers[v]) {
        if (step_of_[v] != step_of_[consumer]) ++steps_[step_of_[consumer]].missing;
      }
    }
    ready_.clear();
    for (int v = 0; v < operators; ++v) {
      if (step_of_[v] != v) continue;
      ++left;
      if (steps_[v].missing == 0) ready_.push_back(v);
    }
    for (int d = 0; d < accelerators; ++d) {
      int previous = -1;
      for (int step = first_piece_[d]; step < first_piece_[d] + pieces_[d]; ++step) {
        if (members_[step - operators].empty()) continue;
        ++left;
        steps_[step].fetched = -1;
        if (previous >= 0) {
          steps_[previous].next = step;
          ++steps_[step].missing;
        }
        previous = step;
        if (steps_[step].missing == 0) ready_.push_back(step);
      }
    }
    double latency = 0;
    for (size_t i = 0; i < ready_.size(); ++i) {
      const int step = ready_[i];
      --left;
      const double end =
          steps_[step].time + (step < operators ? problem.operators[step].cpu_time
                                                : steps_[step].transfers + OfPiece(step));
      latency = std::max(latency, end);
      if (step < operators) {
        Tell(step, end);
        continue;
      }
      for (int v : members_[step - operators]) Tell(v, end);
      if (steps_[step].next >= 0) Arrive(steps_[step].next, end);
    }
    return left == 0 ? latency : kInfinity;
  }

  // Compute, and the output that is written back.
  double OfPiece(int step) const {
    double time = 0;
    for (int v : members_[step - static_cast<int>(graph_->problem.operators.size())]) {
      const Operator& op = graph_->problem.operators[v];
      time += op.accelerator_time;
      for (int consumer : graph_->consumers[v]) {
        if (step_of_[consumer] == step) continue;
        time += op.transfer_time;
        break;
      }
    }
    return time;
  }

  // The output of `v` is in host memory at `end`.
  void Tell(int v, double end) const {
    for (int consumer : graph_->consumers[v]) {
      const int step = step_of_[consumer];
      if (step == step_of_[v]) continue;
      if (step != consumer && steps_[step].fetched != v) {
        steps_[step].fetched = v;
        steps_[step].transfers += graph_->problem.operators[v].transfer_time;
      }
      Arrive(step, end);
    }
  }
  void Arrive(int step, double end) const {
    steps_[step].time = std::max(steps_[step].time, end);
    if (--steps_[step].missing == 0) ready_.push_back(step);
  }

  struct Step {
    double time = 0;       // at which it begins
    double transfers = 0;  // of its inputs
    int missing = 0;       // edges, and the piece before
    int next = -1;         // piece of the same accelerator
    int fetched = -1;      // the last output that was counted; an operator sends all at once
  };

  const Graph* graph_;
  std::vector<int> device_;  // [class]
  std::vector<double> bytes_;
  mutable double latency_ = -1;  // below zero: not known
  // Scratch space of Compute().
  mutable std::vector<int> piece_, level_, step_of_, ready_;
  mutable std::vector<int> pieces_, first_piece_, first_, last_;  // of each accelerator
  mutable std::vector<Step> steps_;
  mutable std::vector<std::vector<int>> members_;
};

// A bound takes a walk over the graph for each price.
constexpr size_t kMostPrices = 256;
// Larger graphs are too slow for StretchByStretch: seconds for a billion steps.
constexpr double kMostSteps = 4e9;
constexpr int64_t kLatencySweeps = 200;  // moves per class and device
// Each move looks at the whole graph. A run of a published graph looks at fewer than a billion
// operators and edges; one of 10,000 operators would look at so many that it took hours.
constexpr double kMostLooks = 4e9;

// The published baseline: accelerators are filled in topological order, as far as memory goes, and
// the rest runs on cores (appendix F; latency-greedy/greedy.cpp). A device of each class of
// `graph`. Without cores the last accelerator takes the rest.
std::vector<int> FillByMemory(const Problem& problem, const ClassGraph& graph) {
  const ClassGraph blocks = ContiguousClasses(problem);
  std::vector<int> device(graph.size(), problem.accelerators);
  int filling = 0;
  double bytes = 0;
  for (const Class& block : blocks.classes) {
    int to = problem.accelerators;
    if (block.accelerator_supported && block.memory_bytes <= problem.memory_limit()) {
      if (bytes + block.memory_bytes > problem.memory_limit() && filling < problem.accelerators) {
        ++filling;
        bytes = 0;
      }
      to = filling;
      bytes += block.memory_bytes;
    }
    if (problem.cpus == 0) to = std::min(to, problem.accelerators - 1);
    for (int v : block.operators) device[graph.class_of[v]] = to;
  }
  return device;
}

// The fastest of the placements in which stretches of a topological order follow one another, each
// on an accelerator of its own or on the cores, and only cores run at the same time as others
// (dynamic programming over the order). Empty where there is none, or where `stop`, which may be
// null, says so. O(classes^2 x accelerators).
std::vector<int> StretchByStretch(const Problem& problem, const ClassGraph& graph,
                                  const std::function<bool()>& stop) {
  const ClassGraph blocks = ContiguousClasses(problem);
  const std::vector<int> line = TopologicalLine(blocks);
  const int size = blocks.size();
  const int most = std::min(problem.accelerators, size);
  if (static_cast<double>(size) * size * (most + 1) > kMostSteps) return {};
  const std::vector<std::vector<int>> nets_of = NetsOfClasses(blocks);
  // Up to each place in the line, with each number of accelerators.
  struct Best {
    double latency = kInfinity;
    int begin = -1;  // of the last stretch
    bool on_cores = false;
  };
  std::vector<std::vector<Best>> best(size + 1, std::vector<Best>(most + 1));
  best[0][0].latency = 0;
  std::vector<int> inside(blocks.nets.size());
  std::vector<double> path(size);  // on cores, within the stretch
  for (int begin = 0; begin < size; ++begin) {
    if (stop && stop()) return {};
    double accelerator = 0, bytes = 0, cores = 0;
    std::fill(inside.begin(), inside.end(), 0);
    std::fill(path.begin(), path.end(), 0);
    for (int end = begin; end < size; ++end) {
      const int c = line[end];
      const Class& added = blocks.classes[c];
      accelerator += added.accelerator_supported ? added.accelerator_time : kInfinity;
      bytes += added.memory_bytes;
      for (int net : nets_of[c]) {
        if (inside[net]++ == 0) accelerator += blocks.nets[net].transfer_time;
        const bool whole = inside[net] == static_cast<int>(blocks.nets[net].classes.size());
        if (whole) accelerator -= blocks.nets[net].transfer_time;
      }
      for (int u : blocks.predecessors[c]) path[c] = std::max(path[c], path[u]);
      path[c] += added.cpu_time;
      cores = std::max(cores, path[c]);
      const bool fits = bytes <= problem.memory_limit();
      for (int used = 0; used <= most; ++used) {
        const double before = best[begin][used].latency;
        if (before + cores < best[end + 1][used].latency && problem.cpus > 0) {
          best[end + 1][used] = {before + cores, begin, true};
        }
        if (used == most || !fits || before + accelerator >= best[end + 1][used + 1].latency) {
          continue;
        }
        best[end + 1][used + 1] = {before + accelerator, begin, false};
      }
    }
  }
  const auto fastest =
      std::min_element(best[size].begin(), best[size].end(),
                       [](const Best& a, const Best& b) { return a.latency < b.latency; });
  if (fastest->latency == kInfinity) return {};
  int used = static_cast<int>(fastest - best[size].begin());
  std::vector<int> device(graph.size(), problem.accelerators);
  for (int end = size; end > 0;) {
    const Best& stretch = best[end][used];
    if (!stretch.on_cores) --used;
    for (int i = stretch.begin; i < end; ++i) {
      for (int v : blocks.classes[line[i]].operators) {
        device[graph.class_of[v]] = stretch.on_cores ? problem.accelerators : used;
      }
    }
    end = stretch.begin;
  }
  return device;
}

}  // namespace

SearchResult SearchLatency(const Problem& problem, const ClassGraph& graph, bool contiguous,
                           const SearchOptions& options) {
  const Graph shared(problem, graph, contiguous);
  const int devices = problem.accelerators + (problem.cpus > 0 ? 1 : 0);
  const Neighbourhood neighbourhood(graph, problem.accelerators, devices);
  std::vector<int> from(graph.size(), devices - 1);  // all on cores works, where there are any
  for (const auto& device :
       {FillByMemory(problem, graph), StretchByStretch(problem, graph, options.stop)}) {
    if (device.empty()) continue;
    if (LatencyState(shared, device).Value() < LatencyState(shared, from).Value()) from = device;
  }
  const double looks = static_cast<double>(problem.operators.size() + problem.edges.size());
  const int64_t moves = std::min(kLatencySweeps * graph.size() * devices,
                                 static_cast<int64_t>(kMostLooks / std::max(looks, 1.0)));
  return Restarts(
      neighbourhood, [&](const std::vector<int>& device) { return LatencyState(shared, device); },
      from, {.hot = 1, .cold = 0.001, .unit = shared.unit / devices, .moves = moves}, options);
}

double LatencyBound(const Problem& problem) {
  const Lists producers = ListEdges(problem, &Edge::to, &Edge::from);
  const std::vector<int> order = DepthFirstOrder(ListEdges(problem, &Edge::from, &Edge::to));
  const double bytes = problem.memory_limit() * problem.accelerators;
  std::vector<double> end(problem.operators.size());
  // For a price of a byte on an accelerator.
  const auto bound = [&](double price) {
    double longest = 0;
    for (int v : order) {
      const Operator& op = problem.operators[v];
      const bool accelerator = op.accelerator_supported && problem.accelerators > 0;
      double time = problem.cpus > 0 ? op.cpu_time : kInfinity;
      if (accelerator) time = std::min(time, op.accelerator_time + price * op.memory_bytes);
      double begin = 0;
      for (int u : producers[v]) begin = std::max(begin, end[u]);
      end[v] = begin + time;
      longest = std::max(longest, end[v]);
    }
    // Rounding error of a sum of so many times and prices.
    const double rounding =
        std::numeric_limits<double>::epsilon() * static_cast<double>(order.size()) * longest;
    return price == 0 ? longest : longest - price * bytes - rounding;
  };
  double best = bound(0);
  // Every price gives a bound. At these an operator is as fast on either side, price included.
  std::vector<double> prices;
  for (const Operator& op : problem.operators) {
    if (op.memory_bytes <= 0 || op.cpu_time <= op.accelerator_time) continue;
    prices.push_back((op.cpu_time - op.accelerator_time) / op.memory_bytes);
  }
  SortUnique(&prices);
  const size_t step = prices.size() / kMostPrices + 1;
  for (size_t i = 0; i < prices.size(); i += step) best = std::max(best, bound(prices[i]));
  return best;
}

}  // namespace seqpoint::placement
