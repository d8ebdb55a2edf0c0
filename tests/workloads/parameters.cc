#include <vector>

#include "tests/workloads/random.h"
#include "tests/workloads/tape.h"

namespace seqpoint::workload {

Tensor* Parameters::Declare(int rows, int columns, float scale, float constant, bool own) {
  tensors_.push_back({.rows = rows, .columns = columns});
  initial_.push_back({scale, constant, own});
  return &tensors_.back();
}

void Parameters::Allocate(Stream stream, uint64_t seed, size_t unit_multiple, uint64_t own_seed) {
  if (unit_starts_.empty() || unit_starts_.front() != 0) {
    unit_starts_.insert(unit_starts_.begin(), 0);
  }
  std::vector<size_t> offsets;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (units_.size() < unit_starts_.size() && unit_starts_[units_.size()] == i) {
      count_ = (count_ + unit_multiple - 1) / unit_multiple * unit_multiple;
      units_.push_back({.begin = count_});
    }
    offsets.push_back(count_);
    count_ += tensors_[i].Count();
  }
  count_ = (count_ + unit_multiple - 1) / unit_multiple * unit_multiple;
  for (size_t u = 0; u < units_.size(); ++u) {
    units_[u].count = (u + 1 < units_.size() ? units_[u + 1].begin : count_) - units_[u].begin;
  }
  const size_t bytes = count_ * sizeof(float);
  for (float** buffer : {&values_, &gradients_, &m_, &v_}) {
    *buffer = static_cast<float*>(DeviceAlloc(bytes));
    MemsetZero(stream, *buffer, bytes);
  }
  Random shared(seed);
  Random own(own_seed);
  std::vector<float> host;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    Tensor& tensor = tensors_[i];
    tensor.value = values_ + offsets[i];
    tensor.grad = gradients_ + offsets[i];
    Random& random = initial_[i].own ? own : shared;
    host.resize(tensor.Count());
    for (float& value : host) {
      value =
          initial_[i].constant + initial_[i].scale * static_cast<float>(2 * random.Uniform() - 1);
    }
    CopyToDevice(stream, tensor.value, host.data(), host.size() * sizeof(float));
    // The next tensor overwrites `host`.
    Synchronize(stream);
  }
}

}  // namespace seqpoint::workload
