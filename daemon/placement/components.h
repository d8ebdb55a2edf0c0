// Topological orders and strongly connected components of a directed graph.
//
// Pure functions; any thread.
#ifndef SEQPOINT_DAEMON_PLACEMENT_COMPONENTS_H_
#define SEQPOINT_DAEMON_PLACEMENT_COMPONENTS_H_

#include <algorithm>
#include <random>
#include <vector>

namespace seqpoint::placement {

// For each vertex, those that its edges lead to.
using Adjacency = std::vector<std::vector<int>>;

// Puts a list in ascending order, without repeats.
template <typename T>
void SortUnique(std::vector<T>* list) {
  std::sort(list->begin(), list->end());
  list->erase(std::unique(list->begin(), list->end()), list->end());
}
void SortUniqueEach(Adjacency* lists);

// The edges between groups; `group` is that of each vertex.
Adjacency Fuse(const Adjacency& successors, const std::vector<int>& group, int groups);

// The component of each vertex, numbered so that edges lead to lower numbers (Tarjan, "Depth-First
// Search and Linear Graph Algorithms", 1972; without recursion: chains are long).
std::vector<int> StrongComponents(const Adjacency& successors);

// A depth-first topological order: vertices that a vertex made ready come before those that were
// ready earlier. Vertices that became ready together come in random order; without `random` the
// last first, and of those that wait for none the first first.
std::vector<int> DepthFirstOrder(const Adjacency& successors, std::mt19937* random = nullptr);

// The place of each vertex in an order.
std::vector<int> PlacesIn(const std::vector<int>& order);

}  // namespace seqpoint::placement

#endif  // SEQPOINT_DAEMON_PLACEMENT_COMPONENTS_H_
