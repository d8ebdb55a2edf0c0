// Contiguous placements along one topological order: for graphs with too many ideals, and to begin
// with.
//
// Source: Tarnawski et al., NeurIPS 2020, section 4 (linearisation by a depth-first order). The
// same dynamic program as exact.h, over the prefixes of the order.
//
// Threading: free functions, as in exact.h. Ownership: values.
#ifndef SEQPOINT_DAEMON_PLACEMENT_LINEAR_H_
#define SEQPOINT_DAEMON_PLACEMENT_LINEAR_H_

#include "daemon/placement/class_graph.h"
#include "daemon/placement/exact.h"

namespace seqpoint::placement {

// The best of several orders with a load below `below`. `from`: a lower bound that is known. Its
// none_below says nothing about placements that follow no such order. Where there are many classes,
// neighbours in the order stay together, except where a border would cut little.
Stages BestLinearStages(const ClassGraph& graph, double from, double below,
                        const StagesOptions& options);

// A placement at once, O(classes): accelerators are filled along the first order, each until it has
// its share of the work (`share`) or has no room for the next class; the last one takes the rest.
// Respects neither memory nor what accelerators support.
std::vector<int> FillInOrder(const ClassGraph& graph, bool share);

// Equal shares of the classes, accelerators only, along the first order: what people do by hand.
// Respects neither memory nor what accelerators support.
std::vector<int> EqualLayers(const ClassGraph& graph);

}  // namespace seqpoint::placement

#endif  // SEQPOINT_DAEMON_PLACEMENT_LINEAR_H_
