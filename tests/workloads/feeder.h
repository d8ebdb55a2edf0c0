// Brings batches to the GPU: copied in step from pageable memory, or prefetched from pinned memory
// on a stream of its own, one batch ahead.
//
// Threading: one thread. Owns its buffers and events.
#ifndef SEQPOINT_TESTS_WORKLOADS_FEEDER_H_
#define SEQPOINT_TESTS_WORKLOADS_FEEDER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/workloads/batching.h"
#include "tests/workloads/gpu.h"
#include "tests/workloads/models.h"

namespace seqpoint::workload {

class Feeder {
 public:
  // `load_ns`: host time to load a batch. `kept`: how many batches stay as they are at the same
  // time; several of them only without prefetching.
  Feeder(Model* model, Stream compute, bool prefetch, uint64_t load_ns, size_t kept = 1);

  // A batch, and by how much longer than usual it takes to load.
  struct Item {
    const Batch* batch;
    uint64_t delay_ns;
  };
  // In the order in which Next will deliver them; the batches must outlive the feeder.
  void Start(std::vector<Item> items);
  // The next batch, ready for work submitted to the compute stream from now on. Its buffers stay as
  // they are until the call after the next one (prefetch), or for `kept` calls (in step).
  DeviceBatch Next();
  // A batch out of the order, copied in step into buffers of its own.
  DeviceBatch CopyNow(const Batch& batch);

 private:
  struct Buffers {
    std::vector<void*> arrays;
    Event copied = nullptr;
    Event released = nullptr;
  };
  // Pinned memory may be written again once its copy is done.
  struct Staging {
    std::vector<void*> arrays;
    Event copied = nullptr;
  };

  Buffers MakeBuffers() const;
  DeviceBatch CopyInStep(const Item& item, const Buffers& to);
  void Prefetch();
  Staging* FreeStaging();

  Model* model_;
  Stream compute_;
  bool prefetch_;
  uint64_t load_ns_;
  Stream copy_stream_ = nullptr;
  std::vector<Item> items_;
  size_t next_ = 0;
  size_t prefetched_ = 0;
  std::vector<Buffers> buffers_;
  Buffers evaluation_;
  DeviceBatch ready_[2];
  std::vector<Staging> staging_;
};

}  // namespace seqpoint::workload

#endif  // SEQPOINT_TESTS_WORKLOADS_FEEDER_H_
