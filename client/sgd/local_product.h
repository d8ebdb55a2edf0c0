// The products of one rank's weights of a layer: with Eigen, or with cuSPARSE on a GPU.
//
// Threading: one thread. Ownership: a product refers to its matrix, which outlives it and stays
// where it is.
#ifndef CLIENT_SGD_LOCAL_PRODUCT_H_
#define CLIENT_SGD_LOCAL_PRODUCT_H_

#include <stdint.h>

#include <functional>
#include <memory>

#include "Eigen/Core"
#include "Eigen/SparseCore"

namespace seqpoint::sgd {

using Weights = Eigen::SparseMatrix<float, Eigen::RowMajor, int32_t>;
// A row per neuron, a column per sample of the minibatch.
using Batch = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

class LocalProduct {
 public:
  virtual ~LocalProduct() = default;

  // `y` = W `x`.
  virtual void Multiply(const Batch& x, Batch* y) = 0;
  // `y` += W `x`.
  virtual void MultiplyAdd(const Batch& x, Batch* y) = 0;
  virtual Batch MultiplyTransposed(const Batch& x) = 0;
  // W -= `step` * `gradient` `input`^T, of the stored nonzeros alone.
  virtual void Update(float step, const Batch& gradient, const Batch& input) = 0;
  // Brings the matrix up to date with the updates.
  virtual void Store() = 0;
};

using MakeProduct = std::function<std::unique_ptr<LocalProduct>(Weights* weights)>;

std::unique_ptr<LocalProduct> MakeEigenProduct(Weights* weights);

}  // namespace seqpoint::sgd

#endif  // CLIENT_SGD_LOCAL_PRODUCT_H_
