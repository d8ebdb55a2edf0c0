// The best contiguous placement: dynamic programming over ideals.
//
// Source: Tarnawski et al., NeurIPS 2020, section 4 (max-load, contiguous). best[a][c][ideal] is
// the smallest largest-load with which a accelerators and c cores do the ideal: one of them does
// its last stage, a difference of two ideals, the others the rest. Devices of a kind are alike.
// docs/using/placement.md, "Methods", explains the parts that the walk leaves out.
//
// Threading: free functions, which may start threads of their own. Ownership: values.
#ifndef SEQPOINT_DAEMON_PLACEMENT_EXACT_H_
#define SEQPOINT_DAEMON_PLACEMENT_EXACT_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "daemon/placement/class_graph.h"
#include "daemon/placement/ideals.h"

namespace seqpoint::placement {

struct StagesOptions {
  int threads = 1;
  std::function<bool()> stop;  // may be null; asked now and then, by any thread
  // Called by one thread: the share of the ideals that is done.
  std::function<void(double)> progress;
};

struct Stages {
  std::vector<int> device;  // of each class; empty: none was found
  double load = 0;          // the largest one
  double none_below = 0;    // no contiguous placement has a lower load, as was proved
  bool stopped = false;     // before it was through; none was found
};

// The placement with the smallest largest-load, where that is below `below` (infinity: any that is
// allowed). `from`: a lower bound that is known; limits from there up to `below` are tried. Loads
// may differ from the judge's in the last digits.
Stages BestStages(const ClassGraph& graph, const Ideals& ideals, double from, double below,
                  const StagesOptions& options);

}  // namespace seqpoint::placement

#endif  // SEQPOINT_DAEMON_PLACEMENT_EXACT_H_
