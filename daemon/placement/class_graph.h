// The graph that the methods work on: operators that must sit together are one class.
//
// docs/using/placement.md, "Contiguous", has the steps and their order. Source: Tarnawski et al.,
// NeurIPS 2020, and throughput-dp/dp.cpp of github.com/msr-fiddle/dnn-partitioning.
//
// Values; a const object may be read by any number of threads.
#ifndef SEQPOINT_DAEMON_PLACEMENT_CLASS_GRAPH_H_
#define SEQPOINT_DAEMON_PLACEMENT_CLASS_GRAPH_H_

#include <limits>
#include <vector>

#include "daemon/placement/problem.h"

namespace seqpoint::placement {

// The time of a class that a device cannot run.
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Sums over its operators, forward and backward.
struct Class {
  double accelerator_time = 0;
  double cpu_time = 0;
  double memory_bytes = 0;
  bool accelerator_supported = true;  // each of them
  std::vector<int> operators;         // indexes into Problem::operators, ascending
};

// An output and those who need it: an accelerator that holds some, but not all of these classes
// pays the transfer time once. Outputs with the same classes, forward and backward, are one net.
struct Net {
  double transfer_time = 0;
  std::vector<int> classes;  // two or more, ascending
};

struct ClassGraph {
  std::vector<Class> classes;
  std::vector<Net> nets;
  std::vector<int> class_of;  // of each operator

  int accelerators = 0;
  int cpus = 0;
  double memory_bytes = 0;  // of each accelerator

  // Precedence of the forward pass: direct ones, ascending, none twice.
  std::vector<std::vector<int>> predecessors;
  std::vector<std::vector<int>> successors;

  int size() const { return static_cast<int>(classes.size()); }
};

// One class for each color: what every placement keeps to. Precedence may lead in circles.
ClassGraph ColorClasses(const Problem& problem);

// For contiguous placements: no circles; predecessors have lower numbers.
ClassGraph ContiguousClasses(const Problem& problem);

// The same classes with the times, transfers and memory that `problem` has for the operators: the
// same model at another length.
ClassGraph WithCostsOf(const ClassGraph& graph, const Problem& problem);

// Indexes into ClassGraph::nets, ascending, for each class.
std::vector<std::vector<int>> NetsOfClasses(const ClassGraph& graph);

// `device`: of each class.
Placement ToPlacement(const ClassGraph& graph, const std::vector<int>& device);
// The device of the first operator of each class.
std::vector<int> DevicesOf(const ClassGraph& graph, const Placement& placement);

}  // namespace seqpoint::placement

#endif  // SEQPOINT_DAEMON_PLACEMENT_CLASS_GRAPH_H_
