#include "daemon/placement/components.h"

#include <algorithm>
#include <cstddef>
#include <random>

namespace seqpoint::placement {

void SortUniqueEach(Adjacency* lists) {
  for (std::vector<int>& list : *lists) SortUnique(&list);
}

Adjacency Fuse(const Adjacency& successors, const std::vector<int>& group, int groups) {
  Adjacency fused(groups);
  for (size_t v = 0; v < successors.size(); ++v) {
    for (const int to : successors[v]) {
      if (group[v] != group[to]) fused[group[v]].push_back(group[to]);
    }
  }
  SortUniqueEach(&fused);
  return fused;
}

std::vector<int> StrongComponents(const Adjacency& successors) {
  const int vertices = static_cast<int>(successors.size());
  std::vector<int> order(vertices, -1), low(vertices, 0), component(vertices, -1);
  std::vector<int> open, path;
  std::vector<size_t> next(vertices, 0);
  int visited = 0, components = 0;
  for (int root = 0; root < vertices; ++root) {
    if (order[root] >= 0) continue;
    path.push_back(root);
    while (!path.empty()) {
      const int v = path.back();
      if (order[v] < 0) {
        order[v] = low[v] = visited++;
        open.push_back(v);
      }
      if (next[v] < successors[v].size()) {
        const int to = successors[v][next[v]++];
        if (order[to] < 0) {
          path.push_back(to);
        } else if (component[to] < 0) {
          low[v] = std::min(low[v], order[to]);
        }
        continue;
      }
      path.pop_back();
      if (!path.empty()) low[path.back()] = std::min(low[path.back()], low[v]);
      if (low[v] != order[v]) continue;
      int member = -1;
      do {
        member = open.back();
        open.pop_back();
        component[member] = components;
      } while (member != v);
      ++components;
    }
  }
  return component;
}

std::vector<int> DepthFirstOrder(const Adjacency& successors, std::mt19937* random) {
  std::vector<int> waits_for(successors.size(), 0), ready, order;
  for (const std::vector<int>& after : successors) {
    for (const int to : after) ++waits_for[to];
  }
  for (size_t v = 0; v < successors.size(); ++v) {
    if (waits_for[v] == 0) ready.push_back(static_cast<int>(v));
  }
  const auto mix = [&](size_t from) {
    if (random != nullptr) std::shuffle(ready.begin() + from, ready.end(), *random);
  };
  if (random == nullptr) std::reverse(ready.begin(), ready.end());
  mix(0);
  while (!ready.empty()) {
    const int v = ready.back();
    ready.pop_back();
    order.push_back(v);
    const size_t earlier = ready.size();
    for (const int to : successors[v]) {
      if (--waits_for[to] == 0) ready.push_back(to);
    }
    mix(earlier);
  }
  return order;
}

std::vector<int> PlacesIn(const std::vector<int>& order) {
  std::vector<int> places(order.size());
  for (size_t i = 0; i < order.size(); ++i) places[order[i]] = static_cast<int>(i);
  return places;
}

}  // namespace seqpoint::placement
