#include "tests/workloads/feeder.h"

#include <cstring>
#include <utility>

namespace seqpoint::workload {

Feeder::Feeder(Model* model, Stream compute, bool prefetch, uint64_t load_ns, size_t kept)
    : model_(model), compute_(compute), prefetch_(prefetch), load_ns_(load_ns) {
  for (size_t i = 0; i < kept; ++i) buffers_.push_back(MakeBuffers());
  evaluation_ = MakeBuffers();
  if (!prefetch) return;
  copy_stream_ = CreateStream();
  buffers_.push_back(MakeBuffers());
  for (Buffers& buffers : buffers_) {
    buffers.copied = CreateEvent(/*timed=*/false);
    buffers.released = CreateEvent(/*timed=*/false);
  }
}

Feeder::Buffers Feeder::MakeBuffers() const {
  Buffers buffers;
  for (size_t bytes : model_->ArrayBytes()) buffers.arrays.push_back(DeviceAlloc(bytes));
  return buffers;
}

void Feeder::Start(std::vector<Item> items) {
  items_ = std::move(items);
  if (prefetch_ && !items_.empty()) Prefetch();
}

DeviceBatch Feeder::CopyInStep(const Item& item, const Buffers& to) {
  HostWork(load_ns_ + item.delay_ns);
  const HostBatch host = model_->MakeBatch(item.batch->examples, item.batch->lengths);
  for (size_t i = 0; i < host.arrays.size(); ++i) {
    CopyToDevice(compute_, to.arrays[i], host.arrays[i].data, host.arrays[i].bytes);
  }
  return {host.size, host.lengths, host.max_labels, to.arrays};
}

Feeder::Staging* Feeder::FreeStaging() {
  for (Staging& staging : staging_) {
    if (EventDone(staging.copied)) return &staging;
  }
  Staging staging;
  staging.arrays.resize(model_->ArrayBytes().size());
  staging.copied = CreateEvent(/*timed=*/false);
  staging_.push_back(staging);
  return &staging_.back();
}

void Feeder::Prefetch() {
  Buffers& to = buffers_[prefetched_ % 2];
  const Item& item = items_[prefetched_];
  HostWork(load_ns_ + item.delay_ns);
  const HostBatch host = model_->MakeBatch(item.batch->examples, item.batch->lengths);
  if (prefetched_ >= 2) WaitEvent(copy_stream_, to.released);
  Staging* staging = FreeStaging();
  for (size_t i = 0; i < host.arrays.size(); ++i) {
    const void* from = host.arrays[i].data;
    if (!host.arrays[i].pinned) {
      if (staging->arrays[i] == nullptr) {
        staging->arrays[i] = PinnedAlloc(model_->ArrayBytes()[i]);
      }
      std::memcpy(staging->arrays[i], from, host.arrays[i].bytes);
      from = staging->arrays[i];
    }
    CopyToDevice(copy_stream_, to.arrays[i], from, host.arrays[i].bytes);
  }
  RecordEvent(staging->copied, copy_stream_);
  RecordEvent(to.copied, copy_stream_);
  ready_[prefetched_ % 2] = {host.size, host.lengths, host.max_labels, to.arrays};
  ++prefetched_;
}

DeviceBatch Feeder::Next() {
  const size_t current = next_++;
  if (!prefetch_) return CopyInStep(items_[current], buffers_[current % buffers_.size()]);
  // All work on the batch before has been submitted by now.
  if (current > 0) RecordEvent(buffers_[(current - 1) % 2].released, compute_);
  WaitEvent(compute_, buffers_[current % 2].copied);
  const DeviceBatch batch = ready_[current % 2];
  if (prefetched_ < items_.size()) Prefetch();
  return batch;
}

DeviceBatch Feeder::CopyNow(const Batch& batch) { return CopyInStep({&batch, 0}, evaluation_); }

}  // namespace seqpoint::workload
