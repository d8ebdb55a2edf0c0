#include "daemon/placement/linear.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>

#include "daemon/placement/components.h"

namespace seqpoint::placement {
namespace {

// Half of them along the edges, half against them. On each of the 24 published graphs 8 orders find
// what 100 find.
constexpr int kOrders = 8;

// A pass looks at about blocks^2 / devices differences, 60 ns each (measured on chains): a tenth of
// a second, and no published graph has so many classes that they become blocks.
constexpr double kDifferences = 2e6;

// Where the blocks of a chain begin: one in each stretch of `together` classes, where a border
// would cut the least. `place`: of each class in the chain.
std::vector<bool> BlockBegins(const ClassGraph& graph, const std::vector<int>& place,
                              int together) {
  std::vector<double> opens(graph.size(), 0), closes(graph.size(), 0);
  for (const Net& net : graph.nets) {
    const auto [first, last] = std::minmax_element(
        net.classes.begin(), net.classes.end(), [&](int a, int b) { return place[a] < place[b]; });
    opens[place[*first]] += net.transfer_time;
    closes[place[*last]] += net.transfer_time;
  }
  std::vector<double> cut(graph.size());  // by a border before this place
  double open = 0;
  for (int i = 0; i < graph.size(); ++i) {
    cut[i] = open;
    open += opens[i] - closes[i];
  }
  std::vector<bool> begins(graph.size(), false);
  for (int i = 0; i < graph.size(); i += together) {
    const auto stretch = cut.begin() + i;
    const auto end = cut.begin() + std::min(i + together, graph.size());
    begins[std::min_element(stretch, end) - cut.begin()] = true;
  }
  return begins;
}

// The best stages of the chain of the classes in this order, whose neighbours stay together where
// there are many.
Stages BestOfChain(const ClassGraph& graph, const std::vector<int>& order, double from,
                   double below, const StagesOptions& options) {
  const double most = std::sqrt(kDifferences * (graph.accelerators + graph.cpus));
  const int together = std::max(1, static_cast<int>(std::ceil(graph.size() / most)));
  const std::vector<bool> begins = BlockBegins(graph, PlacesIn(order), together);
  ClassGraph blocks;
  blocks.accelerators = graph.accelerators;
  blocks.cpus = graph.cpus;
  blocks.memory_bytes = graph.memory_bytes;
  std::vector<int> block_of(graph.size());
  for (int i = 0; i < graph.size(); ++i) {
    if (begins[i]) blocks.classes.emplace_back();
    block_of[order[i]] = blocks.size() - 1;
    const Class& of = graph.classes[order[i]];
    Class& block = blocks.classes.back();
    block.accelerator_time += of.accelerator_time;
    block.cpu_time += of.cpu_time;
    block.memory_bytes += of.memory_bytes;
    block.accelerator_supported = block.accelerator_supported && of.accelerator_supported;
  }
  for (Net net : graph.nets) {
    for (int& c : net.classes) c = block_of[c];
    SortUnique(&net.classes);
    if (net.classes.size() > 1) blocks.nets.push_back(std::move(net));
  }
  Stages stages = BestStages(blocks, Ideals::OfChain(blocks.size()), from, below, options);
  if (stages.device.empty()) return stages;
  const std::vector<int> device = std::move(stages.device);
  stages.device.clear();
  for (const int block : block_of) stages.device.push_back(device[block]);
  return stages;
}

}  // namespace

Stages BestLinearStages(const ClassGraph& graph, double from, double below,
                        const StagesOptions& options) {
  std::mt19937 random(1);
  Stages best;
  std::vector<std::vector<int>> orders;
  for (int i = 0; i < kOrders && !best.stopped; ++i) {
    std::vector<int> order(graph.size());
    if (i == 0) {
      std::iota(order.begin(), order.end(), 0);
    } else if (i % 2 == 0) {
      order = DepthFirstOrder(graph.successors, &random);
    } else {
      order = DepthFirstOrder(graph.predecessors, &random);
      std::reverse(order.begin(), order.end());
    }
    // A chain has one order only.
    if (std::find(orders.begin(), orders.end(), order) != orders.end()) continue;
    Stages stages = BestOfChain(graph, order, from, below, options);
    best.stopped = stages.stopped;
    if (!stages.device.empty()) {
      best.device = std::move(stages.device);
      below = best.load = stages.load;
    }
    orders.push_back(std::move(order));
  }
  return best;
}

std::vector<int> FillInOrder(const ClassGraph& graph, bool share) {
  double work = 0;
  for (const Class& of : graph.classes) work += of.accelerator_time;
  const double most = share ? work / std::max(graph.accelerators, 1) : work;
  std::vector<int> device;
  int filling = 0;
  double done = 0, bytes = 0;
  for (const Class& of : graph.classes) {
    const bool full = done >= most * (filling + 1) || bytes + of.memory_bytes > graph.memory_bytes;
    if (full && filling + 1 < graph.accelerators) {
      ++filling;
      bytes = 0;
    }
    done += of.accelerator_time;
    bytes += of.memory_bytes;
    device.push_back(filling);
  }
  return device;
}

std::vector<int> EqualLayers(const ClassGraph& graph) {
  std::vector<int> device(graph.size());
  for (int64_t c = 0; c < graph.size(); ++c) {
    device[c] = static_cast<int>(c * std::max(graph.accelerators, 1) / graph.size());
  }
  return device;
}

}  // namespace seqpoint::placement
