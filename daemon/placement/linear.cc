#include "daemon/placement/linear.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>

namespace seqpoint::placement {
namespace {

// Half of them along the edges, half against them. On each of the 24 published graphs 8 orders find
// what 100 find.
constexpr int kOrders = 8;

// A depth-first topological order: what a class made ready comes before what was ready earlier.
// Among the former chance decides.
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

}  // namespace

Stages BestLinearStages(const ClassGraph& graph, double from, double below,
                        const StagesOptions& options) {
  const Ideals ideals = Ideals::OfChain(graph.size());
  std::mt19937 random(1);
  Stages best;
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
    const Stages stages = BestStages(Chain(graph, order), ideals, from, below, options);
    best.stopped = stages.stopped;
    best.differences += stages.differences;
    if (stages.device.empty()) continue;
    best.device.resize(graph.size());
    for (int place = 0; place < graph.size(); ++place) {
      best.device[order[place]] = stages.device[place];
    }
    below = best.load = stages.load;
  }
  return best;
}

std::vector<int> EqualLayers(const ClassGraph& graph) {
  std::vector<int> device(graph.size());
  for (int64_t c = 0; c < graph.size(); ++c) {
    device[c] = static_cast<int>(c * std::max(graph.accelerators, 1) / graph.size());
  }
  return device;
}

}  // namespace seqpoint::placement
