// Strongly connected components of a directed graph.
//
// Pure functions; any thread.
#ifndef SEQPOINT_DAEMON_PLACEMENT_COMPONENTS_H_
#define SEQPOINT_DAEMON_PLACEMENT_COMPONENTS_H_

#include <vector>

namespace seqpoint::placement {

// For each vertex, those that its edges lead to.
using Adjacency = std::vector<std::vector<int>>;

// Each list ascending and without repeats.
void SortUnique(Adjacency* lists);

// The component of each vertex, numbered so that edges lead to lower numbers (Tarjan, "Depth-First
// Search and Linear Graph Algorithms", 1972; without recursion: chains are long).
std::vector<int> StrongComponents(const Adjacency& successors);

}  // namespace seqpoint::placement

#endif  // SEQPOINT_DAEMON_PLACEMENT_COMPONENTS_H_
