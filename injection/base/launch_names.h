// Names of the kernels that were launched last, by correlation id: what the launch said when it was
// made. Releases of CUPTI that keep names of unloaded modules write others into their records
// (kKeepsNamesOfUnloadedModules): there the names are needed once a module was unloaded.
// Threading: any thread. An entry that is overwritten while it is read is not found.
#ifndef SEQPOINT_INJECTION_BASE_LAUNCH_NAMES_H_
#define SEQPOINT_INJECTION_BASE_LAUNCH_NAMES_H_

#include <stdint.h>

#include <atomic>

#include "injection/base/pool.h"

namespace seqpoint::inject {

class LaunchNames {
 public:
  // False: memory is short, and nothing will be found.
  bool Init(Pool* pool) {
    if (entries_ == nullptr) entries_ = pool->TakeArray<std::atomic<uint64_t>>(kEntries);
    return entries_ != nullptr;
  }
  bool needed() const { return needed_.load(std::memory_order_relaxed); }
  void SetNeeded(bool needed) { needed_.store(needed); }
  // `name_id` is not 0.
  void Add(uint32_t correlation_id, uint32_t name_id) {
    if (entries_ == nullptr) return;
    entries_[correlation_id % kEntries].store(uint64_t{correlation_id} << 32 | name_id,
                                              std::memory_order_relaxed);
  }
  // 0: it is not known.
  uint32_t Find(uint32_t correlation_id) const {
    if (entries_ == nullptr) return 0;
    const uint64_t entry = entries_[correlation_id % kEntries].load(std::memory_order_relaxed);
    return entry >> 32 == correlation_id ? static_cast<uint32_t>(entry) : 0;
  }

 private:
  // Launches of an iteration; more than that are between a launch and its record in no program
  // whose queue is finite.
  static constexpr uint32_t kEntries = 1 << 15;
  std::atomic<uint64_t>* entries_ = nullptr;
  std::atomic<bool> needed_{false};
};

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_BASE_LAUNCH_NAMES_H_
