// The assignment problem: which label goes with which.
//
// Source: Kuhn, "The Hungarian method for the assignment problem", Naval Research Logistics
// Quarterly 2 (1955), as shortest augmenting paths. Cost: cubic in the size. Threading: free
// function.
#ifndef SEQPOINT_DAEMON_SPARSE_ASSIGNMENT_H_
#define SEQPOINT_DAEMON_SPARSE_ASSIGNMENT_H_

#include <stdint.h>

#include <vector>

namespace seqpoint::sparse {

// `gain` is a square matrix, row by row. For each row the column that it gets, each column once, so
// that the sum of gains is the largest.
std::vector<int> LargestAssignment(const std::vector<int64_t>& gain, int size);

}  // namespace seqpoint::sparse

#endif  // SEQPOINT_DAEMON_SPARSE_ASSIGNMENT_H_
