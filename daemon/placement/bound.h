// Loads that no placement can be below.
//
// Threading: free functions. Ownership: values.
#ifndef SEQPOINT_DAEMON_PLACEMENT_BOUND_H_
#define SEQPOINT_DAEMON_PLACEMENT_BOUND_H_

#include "daemon/placement/class_graph.h"

namespace seqpoint::placement {

// The largest of: each class where it is fastest; the work of all classes, if it could be divided
// at will over all devices and cost no transfers; what cores must do because it does not fit into
// the accelerators. ColorClasses bound any placement, ContiguousClasses contiguous ones. Infinite:
// a class can run nowhere.
double LoadBound(const ClassGraph& graph);

// Whether a class may run on an accelerator: supported, and not larger than its memory.
bool RunsOnAccelerator(const ClassGraph& graph, const Class& of);

}  // namespace seqpoint::placement

#endif  // SEQPOINT_DAEMON_PLACEMENT_BOUND_H_
