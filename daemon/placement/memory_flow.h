// The memory that the operators of a recorded iteration make, read and write, and so which operator
// gets what from which. docs/formats/operator-costs.md has the rules.
//
// Threading: plain values, a free function. Ownership: values.
#ifndef DAEMON_PLACEMENT_MEMORY_FLOW_H_
#define DAEMON_PLACEMENT_MEMORY_FLOW_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string_view>
#include <tuple>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/traces/execution_trace.h"

namespace seqpoint::placement {

// torch/csrc/autograd/engine.cpp, Engine::evaluate_function; the node itself is its child.
inline constexpr std::string_view kEvaluate = "autograd::engine::evaluate_function: ";

// An allocation. Its address may have been another one's before.
struct Memory {
  int writer = -1;  // unit
  uint64_t written_at = 0;
  int creator = -1;  // unit; -1: it was there before, or its allocation is not recorded
  // It was there before the iteration: the first that happens to it is a read, or an update.
  bool resident = false;
  bool saved = false;           // read by the backward pass
  bool gradient = false;        // written by the backward pass
  bool read_elsewhere = false;  // by another unit than its creator
  bool named = false;           // arrives as an argument that is called like a parameter
  bool updated = false;         // used by the optimizer's step,
  bool changed = false;         // which writes it in place
  uint64_t elements = 0;
  double bytes = 0;
  std::vector<int> readers;  // forward units that do not write it
};

// One operator of the graph to be, with all that it calls.
struct Unit {
  int node = 0;
  bool backward = false;
  bool optimizer = false;       // within the optimizer's annotation
  bool after_backward = false;  // uses memory that the backward pass made, and is no part of it
  std::vector<int> producers;

  bool update() const { return optimizer || after_backward; }
};

// A memory that a unit of the optimizer's step uses.
struct Use {
  int unit;
  int memory;
  uint32_t element;
  uint64_t elements;
};
// A memory, or a view of it, that its producer gives to others.
struct Moved {
  double bytes = 0;
  std::vector<int> consumers;  // units
};

struct MemoryFlow {
  bool training = false;  // there is a backward pass
  std::vector<Unit> units;
  std::vector<int> unit_of;                // of each node; -1: of none
  std::vector<std::vector<int>> children;  // of each node
  std::vector<Memory> memories;
  std::map<std::tuple<int, size_t, uint64_t>, Moved> moved;  // by producer, memory and view
  std::vector<Use> updates;                                  // in the order of their units
};

// FailedPrecondition: the trace has kernels of torch.compile, whose writes are not recorded.
absl::StatusOr<MemoryFlow> FollowMemory(const traces::ExecutionTrace& trace);

}  // namespace seqpoint::placement

#endif  // DAEMON_PLACEMENT_MEMORY_FLOW_H_
