// Small dense systems of linear equations with a symmetric positive definite matrix.
//
// Threading: free functions. Ownership: the caller's vectors.
#ifndef DAEMON_BASE_LINEAR_SOLVER_H_
#define DAEMON_BASE_LINEAR_SOLVER_H_

#include <cmath>
#include <vector>

namespace seqpoint {

// Replaces the lower triangle of the n x n row-major matrix by its Cholesky factor L. False when it
// is not positive definite; its contents are then undefined.
inline bool Cholesky(std::vector<double>& matrix, int n) {
  for (int i = 0; i < n; ++i) {
    double* row_i = &matrix[i * n];
    for (int j = 0; j <= i; ++j) {
      const double* row_j = &matrix[j * n];
      double sum = row_i[j];
      for (int k = 0; k < j; ++k) sum -= row_i[k] * row_j[k];
      if (i != j) {
        row_i[j] = sum / row_j[j];
      } else if (!(sum > 0)) {
        return false;
      } else {
        row_i[i] = std::sqrt(sum);
      }
    }
  }
  return true;
}

// Solves L·y = x in place.
inline void SolveLower(const std::vector<double>& factor, int n, double* x) {
  for (int i = 0; i < n; ++i) {
    double sum = x[i];
    for (int k = 0; k < i; ++k) sum -= factor[i * n + k] * x[k];
    x[i] = sum / factor[i * n + i];
  }
}

// Solves Lᵀ·y = x in place.
inline void SolveUpper(const std::vector<double>& factor, int n, double* x) {
  for (int i = n - 1; i >= 0; --i) {
    double sum = x[i];
    for (int k = i + 1; k < n; ++k) sum -= factor[k * n + i] * x[k];
    x[i] = sum / factor[i * n + i];
  }
}

}  // namespace seqpoint

#endif  // DAEMON_BASE_LINEAR_SOLVER_H_
