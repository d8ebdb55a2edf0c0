// Small dense linear algebra: symmetric positive definite systems.
//
// Threading: free functions without state.
#ifndef DAEMON_SEQPOINT_DENSE_H_
#define DAEMON_SEQPOINT_DENSE_H_

#include <vector>

namespace seqpoint {

// Replaces the lower triangle of the n x n row-major matrix by its Cholesky factor L. False when it
// is not positive definite; its contents are then undefined.
bool Cholesky(std::vector<double>& matrix, int n);

// Solves L·y = x and Lᵀ·y = x in place.
void SolveLower(const std::vector<double>& factor, int n, double* x);
void SolveUpper(const std::vector<double>& factor, int n, double* x);

}  // namespace seqpoint

#endif  // DAEMON_SEQPOINT_DENSE_H_
