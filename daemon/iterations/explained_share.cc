#include "daemon/iterations/explained_share.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <utility>

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

  // Inverse of the Gram matrix by Gauss-Jordan; a trace of ridge keeps collinear keys solvable.
  std::vector<std::vector<double>> m(p, std::vector<double>(2 * p, 0));
  for (size_t a = 0; a < p; ++a) {
    for (size_t b = 0; b < p; ++b) {
      m[a][b] = std::inner_product(basis[a].begin(), basis[a].end(), basis[b].begin(), 0.0);
    }
    m[a][a] *= 1 + 1e-9;
    m[a][a] += 1e-12;
    m[a][p + a] = 1;
  }
  for (size_t c = 0; c < p; ++c) {
    size_t pivot = c;
    for (size_t r = c + 1; r < p; ++r) {
      if (std::abs(m[r][c]) > std::abs(m[pivot][c])) pivot = r;
    }
    if (std::abs(m[pivot][c]) < 1e-14) return 0;
    std::swap(m[c], m[pivot]);
    const double scale = 1 / m[c][c];
    for (double& value : m[c]) value *= scale;
    for (size_t r = 0; r < p; ++r) {
      if (r == c) continue;
      const double factor = m[r][c];
      for (size_t k = 0; k < 2 * p; ++k) m[r][k] -= factor * m[c][k];
    }
  }
  std::vector<double> coefficients(p, 0);
  for (size_t a = 0; a < p; ++a) {
    for (size_t b = 0; b < p; ++b) {
      coefficients[a] +=
          m[a][p + b] * std::inner_product(basis[b].begin(), basis[b].end(), y.begin(), 0.0);
    }
  }
  const double mean = std::accumulate(y.begin(), y.end(), 0.0) / static_cast<double>(n);
  double residual = 0, total = 0;
  for (size_t i = 0; i < n; ++i) {
    double fitted = 0, leverage = 0;
    for (size_t a = 0; a < p; ++a) {
      fitted += coefficients[a] * basis[a][i];
      for (size_t b = 0; b < p; ++b) leverage += basis[a][i] * m[a][p + b] * basis[b][i];
    }
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
