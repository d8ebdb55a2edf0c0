#include "daemon/iterations/explained_share.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <utility>

#include "daemon/base/linear_solver.h"

namespace seqpoint::iterations {
namespace {

// The share explained by a linear, or a quadratic, function of the keys.
double ExplainedBy(const std::vector<std::vector<double>>& keys, const std::vector<double>& y,
                   bool quadratic) {
  const size_t n = y.size();
  // Basis: constant, each key, and its square and the product.
  std::vector<std::vector<double>> basis(1, std::vector<double>(n, 1));
  std::vector<std::vector<double>> scaled;
  for (const std::vector<double>& key : keys) {
    const double mean = std::accumulate(key.begin(), key.end(), 0.0) / static_cast<double>(n);
    double square = 0;
    for (double value : key) square += (value - mean) * (value - mean);
    const double deviation = std::sqrt(square / static_cast<double>(n));
    if (deviation <= 0) continue;
    std::vector<double> column;
    for (double value : key) column.push_back((value - mean) / deviation);
    scaled.push_back(std::move(column));
  }
  for (const auto& column : scaled) basis.push_back(column);
  if (quadratic) {
    for (size_t a = 0; a < scaled.size(); ++a) {
      for (size_t b = a; b < scaled.size(); ++b) {
        std::vector<double> product(n);
        for (size_t i = 0; i < n; ++i) product[i] = scaled[a][i] * scaled[b][i];
        basis.push_back(std::move(product));
      }
    }
  }
  const size_t p = basis.size();
  if (n < p + 2) return 0;

  // A trace of ridge keeps collinear keys solvable.
  const auto size = static_cast<int>(p);
  std::vector<double> gram(p * p), coefficients(p);
  for (size_t a = 0; a < p; ++a) {
    for (size_t b = 0; b <= a; ++b) {
      gram[a * p + b] = std::inner_product(basis[a].begin(), basis[a].end(), basis[b].begin(), 0.0);
    }
    gram[a * p + a] = gram[a * p + a] * (1 + 1e-9) + 1e-12;
    coefficients[a] = std::inner_product(basis[a].begin(), basis[a].end(), y.begin(), 0.0);
  }
  if (!Cholesky(gram, size)) return 0;
  SolveLower(gram, size, coefficients.data());
  SolveUpper(gram, size, coefficients.data());
  const double mean = std::accumulate(y.begin(), y.end(), 0.0) / static_cast<double>(n);
  double residual = 0, total = 0;
  std::vector<double> row(p);
  for (size_t i = 0; i < n; ++i) {
    for (size_t a = 0; a < p; ++a) row[a] = basis[a][i];
    const double fitted = std::inner_product(row.begin(), row.end(), coefficients.begin(), 0.0);
    SolveLower(gram, size, row.data());
    const double leverage = std::inner_product(row.begin(), row.end(), row.begin(), 0.0);
    const double left_out = (y[i] - fitted) / std::max(1e-3, 1 - leverage);
    const double without = static_cast<double>(n) / static_cast<double>(n - 1) * (y[i] - mean);
    residual += left_out * left_out;
    total += without * without;
  }
  return total > 0 ? std::clamp(1 - residual / total, 0.0, 1.0) : 0;
}

}  // namespace

double ExplainedShare(const std::vector<std::vector<double>>& keys, const std::vector<double>& y) {
  return std::max(ExplainedBy(keys, y, false), ExplainedBy(keys, y, true));
}

}  // namespace seqpoint::iterations
