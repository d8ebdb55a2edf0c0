#include "tests/workloads/optimizer.h"

namespace seqpoint::workload {
namespace {

constexpr float kMaxNorm = 5;

}  // namespace

Optimizer::Optimizer(Parameters* parameters, float learning_rate, bool foreach)
    : parameters_(parameters), learning_rate_(learning_rate), foreach_(foreach) {
  norm_partial_ = static_cast<float*>(DeviceAlloc(kNormBlocks * sizeof(float)));
  clip_factor_ = static_cast<float*>(DeviceAlloc(sizeof(float)));
  step_ = static_cast<int*>(DeviceAlloc(sizeof(int)));
}

void Optimizer::Start(Stream stream) {
  if (state_.count == 0) {
    state_ = {parameters_->values(), parameters_->gradients(), parameters_->m(), parameters_->v(),
              parameters_->count()};
  }
  MemsetZero(stream, step_, sizeof(int));
}

void Optimizer::ClearGradients(const Queue& queue, ZeroGrad mode) {
  if (mode == ZeroGrad::kMemset) {
    MemsetZero(queue.stream, parameters_->gradients(), parameters_->count() * sizeof(float));
  } else if (mode == ZeroGrad::kKernel) {
    FillZero(queue, parameters_->gradients(), parameters_->count());
  }
  for (Tensor& tensor : parameters_->tensors()) tensor.has_grad = mode != ZeroGrad::kNone;
}

void Optimizer::Step(const Queue& queue) {
  GradientNorm(queue, state_.gradients, state_.count, norm_partial_);
  if (communicator_ != nullptr) {
    communicator_->AllReduce(queue, norm_partial_, kNormBlocks, Reduction::kSum);
  }
  ClipFactor(queue, norm_partial_, kMaxNorm, clip_factor_, step_);
  if (!foreach_) {
    Adam(queue, false, state_.values, state_.gradients, state_.m, state_.v, state_.count,
         learning_rate_, clip_factor_, step_);
    return;
  }
  size_t offset = 0;
  for (const Tensor& tensor : parameters_->tensors()) {
    Adam(queue, true, tensor.value, tensor.grad, parameters_->m() + offset,
         parameters_->v() + offset, tensor.Count(), learning_rate_, clip_factor_, step_);
    offset += tensor.Count();
  }
}

}  // namespace seqpoint::workload
