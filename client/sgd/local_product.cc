#include "client/sgd/local_product.h"

namespace seqpoint::sgd {
namespace {

class EigenProduct : public LocalProduct {
 public:
  explicit EigenProduct(Weights* weights) : weights_(*weights) {}

  void Multiply(const Batch& x, Batch* y) override { y->noalias() = weights_ * x; }
  void MultiplyAdd(const Batch& x, Batch* y) override { y->noalias() += weights_ * x; }
  Batch MultiplyTransposed(const Batch& x) override { return weights_.transpose() * x; }

  void Update(float step, const Batch& gradient, const Batch& input) override {
    for (int row = 0; row < weights_.outerSize(); ++row) {
      for (Weights::InnerIterator weight(weights_, row); weight; ++weight) {
        weight.valueRef() -= step * gradient.row(row).dot(input.row(weight.col()));
      }
    }
  }

  void Store() override {}

 private:
  Weights& weights_;
};

}  // namespace

std::unique_ptr<LocalProduct> MakeEigenProduct(Weights* weights) {
  return std::make_unique<EigenProduct>(weights);
}

}  // namespace seqpoint::sgd
