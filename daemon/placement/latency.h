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

#include "daemon/placement/annealing.h"
#include "daemon/placement/class_graph.h"
#include "daemon/placement/problem.h"

namespace seqpoint::placement {

// `graph`: ColorClasses(problem), with devices from 0 to problem.accelerators - 1; the number after
// these is the cores, where there are any. The search begins with the best of a few simple
// placements. The value is infinite and the device list empty where none is allowed.
SearchResult SearchLatency(const Problem& problem, const ClassGraph& graph, bool contiguous,
                           const SearchOptions& options);

// No placement is faster. Each path takes the sum of its operators' times, on whichever side each
// is faster; accelerators hold only so many bytes, and an operator that does not fit runs on a core
// (Lagrangian relaxation of the memory limits). Transfers are not counted.
double LatencyBound(const Problem& problem);

}  // namespace seqpoint::placement

#endif  // SEQPOINT_DAEMON_PLACEMENT_LATENCY_H_
