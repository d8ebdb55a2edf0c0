// A device placement problem: a graph of operators, and the devices that they may run on.
//
// The objectives and the published form of the file: docs/formats/placement-files.md. Source:
// Tarnawski, Phanishayee, Devanur, Mahajan, Nina Paravecino, "Efficient Algorithms for Device
// Placement of DNN Graph Operators", NeurIPS 2020, which calls an accelerator an FPGA.
//
// Values; a const object may be read by any number of threads.
#ifndef SEQPOINT_DAEMON_PLACEMENT_PROBLEM_H_
#define SEQPOINT_DAEMON_PLACEMENT_PROBLEM_H_

#include <stdint.h>

#include <compare>
#include <optional>
#include <string>
#include <vector>

namespace seqpoint::placement {

// Times have the unit of the file (the published ones: ms); all of one problem have the same.
struct Operator {
  int64_t id = 0;    // as in the file: neither dense nor sorted
  std::string name;  // may be empty
  bool accelerator_supported = true;
  bool backward = false;  // of the backward pass
  double cpu_time = 0;
  double accelerator_time = 0;
  double memory_bytes = 0;       // on an accelerator
  double transfer_time = 0;      // of its output, between an accelerator and host memory
  std::optional<int64_t> color;  // operators of one color sit on one device
};

struct Edge {
  int from = 0;  // index into Problem::operators, the producer
  int to = 0;    // its consumer

  friend auto operator<=>(const Edge&, const Edge&) = default;
};

struct Problem {
  std::vector<Operator> operators;
  std::vector<Edge> edges;  // no edge twice, none from an operator to itself, no cycle
  int accelerators = 0;
  int cpus = 0;             // cores, one device each
  double memory_bytes = 0;  // of each accelerator; cores have no limit

  // Sums of sizes differ in the last digits with their order; a larger difference is too much.
  double memory_limit() const { return memory_bytes * (1 + 1e-9); }

  int devices() const { return accelerators + cpus; }
  bool IsAccelerator(int device) const { return device < accelerators; }
};

// The device of each operator, by its index: accelerators are 0 to accelerators - 1, then the
// cores. -1 is nowhere (an operator that a file leaves out); no method answers with it.
using Placement = std::vector<int>;

}  // namespace seqpoint::placement

#endif  // SEQPOINT_DAEMON_PLACEMENT_PROBLEM_H_
