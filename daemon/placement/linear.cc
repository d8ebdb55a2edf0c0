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

// A depth-first topological order: classes that a class made ready come before those that were
// ready earlier, in random order.
std::vector<int> DepthFirstOrder(const std::vector<std::vector<int>>& successors,
                                 std::mt19937* random) {
  const int classes = static_cast<int>(successors.size());
  std::vector<int> waits_for(classes, 0), ready, order;
  for (const std::vector<int>& after : successors) {
    for (const int to : after) ++waits_for[to];
  }
  for (int c = 0; c < classes; ++c) {
    if (waits_for[c] == 0) ready.push_back(c);
  }
  std::shuffle(ready.begin(), ready.end(), *random);
  while (!ready.empty()) {
    const int c = ready.back();
    ready.pop_back();
    order.push_back(c);
    const size_t earlier = ready.size();
    for (const int to : successors[c]) {
      if (--waits_for[to] == 0) ready.push_back(to);
    }
    std::shuffle(ready.begin() + earlier, ready.end(), *random);
  }
  return order;
}

// The chain of the classes in this order.
ClassGraph Chain(const ClassGraph& graph, const std::vector<int>& order) {
  ClassGraph chain;
  chain.accelerators = graph.accelerators;
  chain.cpus = graph.cpus;
  chain.memory_bytes = graph.memory_bytes;
  std::vector<int> place(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    place[order[i]] = static_cast<int>(i);
    chain.classes.push_back(graph.classes[order[i]]);
  }
  chain.nets = graph.nets;
  for (Net& net : chain.nets) {
    for (int& c : net.classes) c = place[c];
  }
  return chain;
}

// Where the blocks of a chain begin: one in each stretch of `together` classes, where a border
// would cut the least.
std::vector<bool> BlockBegins(const ClassGraph& chain, int together) {
  std::vector<double> opens(chain.size(), 0), closes(chain.size(), 0);
  for (const Net& net : chain.nets) {
    const auto [first, last] = std::minmax_element(net.classes.begin(), net.classes.end());
    opens[*first] += net.transfer_time;
    closes[*last] += net.transfer_time;
  }
  std::vector<double> cut(chain.size());  // by a border before this class
  double open = 0;
  for (int c = 0; c < chain.size(); ++c) {
    cut[c] = open;
    open += opens[c] - closes[c];
  }
  std::vector<bool> begins(chain.size(), false);
  for (int c = 0; c < chain.size(); c += together) {
    const auto stretch = cut.begin() + c;
    const auto end = cut.begin() + std::min(c + together, chain.size());
    begins[std::min_element(stretch, end) - cut.begin()] = true;
  }
  return begins;
}

// The best stages of a chain whose neighbours stay together where there are many.
Stages BestOfChain(const ClassGraph& chain, double from, double below,
                   const StagesOptions& options) {
  const double most = std::sqrt(kDifferences * (chain.accelerators + chain.cpus));
  const int together = std::max(1, static_cast<int>(std::ceil(chain.size() / most)));
  const std::vector<bool> begins = BlockBegins(chain, together);
  ClassGraph blocks;
  blocks.accelerators = chain.accelerators;
  blocks.cpus = chain.cpus;
  blocks.memory_bytes = chain.memory_bytes;
  std::vector<int> block_of;
  for (int c = 0; c < chain.size(); ++c) {
    if (begins[c]) blocks.classes.emplace_back();
    block_of.push_back(blocks.size() - 1);
    const Class& of = chain.classes[c];
    Class& block = blocks.classes.back();
    block.accelerator_time += of.accelerator_time;
    block.cpu_time += of.cpu_time;
    block.memory_bytes += of.memory_bytes;
    block.accelerator_supported = block.accelerator_supported && of.accelerator_supported;
  }
  for (Net net : chain.nets) {
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
    const Stages stages = BestOfChain(Chain(graph, order), from, below, options);
    best.stopped = stages.stopped;
    if (!stages.device.empty()) {
      best.device.resize(graph.size());
      for (int place = 0; place < graph.size(); ++place) {
        best.device[order[place]] = stages.device[place];
      }
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
