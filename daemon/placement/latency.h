// Placements that bring one sample through soonest.
//
// The objective is that of the published integer program (Tarnawski et al., NeurIPS 2020, section 5
// and appendix A; latency-ip/lip.py): Latency() of judge.h. Accelerators run pieces: contiguous,
// one for the forward operators and one for the backward ones; otherwise as many as the placement
// needs. Operators on cores wait for their inputs only; there are as many cores as the graph needs.
//
// The answer is the best of annealing runs from good starts. It need not be optimal; LatencyBound()
// is a lower bound.
#ifndef SEQPOINT_DAEMON_PLACEMENT_LATENCY_H_
#define SEQPOINT_DAEMON_PLACEMENT_LATENCY_H_

#include <functional>
#include <vector>

#include "daemon/placement/annealing.h"
#include "daemon/placement/class_graph.h"
#include "daemon/placement/problem.h"

namespace seqpoint::placement {

// `graph`: ColorClasses(problem), with devices from 0 to problem.accelerators - 1; the number after
// these is the cores, where there are any. From `start`, or from the best of a few simple starts
// where it is empty. The value is infinite and the device list empty where none is allowed.
SearchResult SearchLatency(const Problem& problem, const ClassGraph& graph,
                           const std::vector<int>& start, bool contiguous,
                           const SearchOptions& options);

// The published baseline: accelerators are filled in topological order, as far as memory goes, and
// the rest runs on cores (appendix F; latency-greedy/greedy.cpp). A device of each class of
// `graph`. Without cores the last accelerator takes the rest.
std::vector<int> FillByMemory(const Problem& problem, const ClassGraph& graph);

// The fastest of the placements in which stretches of a topological order follow one another, each
// on an accelerator of its own or on the cores, and only cores run at the same time as others
// (dynamic programming over the order). Empty where there is none, or where `stop`, which may be
// null, says so. O(classes^2 x accelerators).
std::vector<int> StretchByStretch(const Problem& problem, const ClassGraph& graph,
                                  const std::function<bool()>& stop);

// No placement is faster. Each path takes the sum of its operators' times, on whichever side each
// is faster; accelerators hold only so many bytes, and an operator that does not fit runs on a core
// (Lagrangian relaxation of the memory limits). Transfers are not counted.
double LatencyBound(const Problem& problem);

}  // namespace seqpoint::placement

#endif  // SEQPOINT_DAEMON_PLACEMENT_LATENCY_H_
