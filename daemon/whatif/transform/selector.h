// The tasks of a graph that a selection finds.
//
// Threading: none. Ownership: refers to the graph and the bounds, which outlive it.
#ifndef DAEMON_WHATIF_TRANSFORM_SELECTOR_H_
#define DAEMON_WHATIF_TRANSFORM_SELECTOR_H_

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/whatif/graph.h"
#include "daemon/whatif/language/request.h"
#include "daemon/whatif/transform/kernel_bound.h"

namespace seqpoint::whatif {

// Tasks of the GPU, not of the CPU.
bool IsGpu(Target target);

class Selector {
 public:
  Selector(const Bounds& bounds, const Graph& graph) : bounds_(bounds), graph_(graph) {}

  // Indices of Graph::gpu where IsGpu(selection.target), else of Graph::cpu; ascending.
  std::vector<uint32_t> Select(const Selection& selection);

  // Different kernels whose bound was looked up.
  uint64_t measured() const { return measured_; }
  uint64_t guessed() const { return guessed_; }
  // Kernels that a condition on a counter left out, as it was not measured for them.
  uint64_t without_counter() const { return without_counter_; }

 private:
  bool Holds(const Condition& condition, const std::vector<bool>& by_name, bool gpu, uint32_t t);
  const double* CounterOf(uint32_t t, const std::string& metric) const;
  Bound BoundOf(uint32_t t);

  struct NameBound {
    bool looked_up = false, measured = false;
    Bound bound = Bound::kMemory;
  };
  const Bounds& bounds_;
  const Graph& graph_;
  std::vector<NameBound> by_name_;
  std::vector<bool> bound_looked_up_, without_value_;  // by GPU task
  uint64_t measured_ = 0, guessed_ = 0, without_counter_ = 0;
};

// The result of a selection: how many tasks, and the time that they take together.
struct SelectedTime {
  uint64_t tasks = 0;
  int64_t time_ns = 0;
};
SelectedTime TimeOf(const Selection& selection, const Bounds& bounds, const Graph& graph);

}  // namespace seqpoint::whatif

#endif  // DAEMON_WHATIF_TRANSFORM_SELECTOR_H_
