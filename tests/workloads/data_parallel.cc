#include "tests/workloads/data_parallel.h"

namespace seqpoint::workload {

DataParallel::DataParallel(Parameters* parameters, Communicator* communicator, const Queue& compute,
                           size_t bucket_bytes)
    : communicator_(communicator), compute_(compute), communication_(compute) {
  communication_.stream = CreateStream();
  reduced_ = CreateEvent(/*timed=*/false);
  const auto& tensors = parameters->tensors();
  bool open = false;
  for (auto tensor = tensors.rbegin(); tensor != tensors.rend(); ++tensor) {
    if (!open) buckets_.push_back({.complete = CreateEvent(/*timed=*/false)});
    Bucket& bucket = buckets_.back();
    bucket.gradients = tensor->grad;
    bucket.count += tensor->Count();
    bucket.parameters.push_back(&*tensor);
    bucket_of_[&*tensor] = buckets_.size() - 1;
    open = bucket.count * sizeof(float) < bucket_bytes;
  }
}

void DataParallel::BackwardBegins(const std::vector<Operation>& operations) {
  if (!reduces_) return;
  finished_.Begin(operations);
  next_ = 0;
  for (Bucket& bucket : buckets_) bucket.missing = bucket.parameters.size();
}

void DataParallel::AfterBackward(size_t operation) {
  if (!reduces_) return;
  for (const Tensor* tensor : finished_.By(operation)) {
    if (const auto found = bucket_of_.find(tensor); found != bucket_of_.end()) {
      --buckets_[found->second].missing;
    }
  }
  for (; next_ < buckets_.size() && buckets_[next_].missing == 0; ++next_) {
    const Bucket& bucket = buckets_[next_];
    RecordEvent(bucket.complete, compute_.stream);
    WaitEvent(communication_.stream, bucket.complete);
    communicator_->AllReduce(communication_, bucket.gradients, bucket.count, Reduction::kAverage);
  }
}

void DataParallel::AwaitGradients() {
  RecordEvent(reduced_, communication_.stream);
  WaitEvent(compute_.stream, reduced_);
}

}  // namespace seqpoint::workload
