#include "daemon/seqpoint/dense.h"

#include <cmath>

namespace seqpoint {

bool Cholesky(std::vector<double>& a, int n) {
  for (int i = 0; i < n; ++i) {
    double* row_i = &a[i * n];
    for (int j = 0; j <= i; ++j) {
      const double* row_j = &a[j * n];
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

void SolveLower(const std::vector<double>& factor, int n, double* x) {
  for (int i = 0; i < n; ++i) {
    double sum = x[i];
    for (int k = 0; k < i; ++k) sum -= factor[i * n + k] * x[k];
    x[i] = sum / factor[i * n + i];
  }
}

void SolveUpper(const std::vector<double>& factor, int n, double* x) {
  for (int i = n - 1; i >= 0; --i) {
    double sum = x[i];
    for (int k = i + 1; k < n; ++k) sum -= factor[k * n + i] * x[k];
    x[i] = sum / factor[i * n + i];
  }
}

}  // namespace seqpoint
