// Names of the kernels that were launched last, by correlation id: what the launch said when it was
// made. Releases of CUPTI that keep names of unloaded modules write others into their records
// (kKeepsNamesOfUnloadedModules): there the names are needed once a module was unloaded.
// Threading: any thread. An entry that is overwritten while it is read is not found.
#ifndef SEQPOINT_INJECTION_BASE_LAUNCH_NAMES_H_
#define SEQPOINT_INJECTION_BASE_LAUNCH_NAMES_H_

#include <stdint.h>

#include <atomic>

namespace seqpoint::inject {

class LaunchNames {
 public:
  bool needed() const { return needed_.load(std::memory_order_relaxed); }
  void SetNeeded(bool needed) { needed_.store(needed); }
  // `name_id` is not 0.
  void Add(uint32_t correlation_id, uint32_t name_id) {
    entries_[correlation_id % kEntries].store(uint64_t{correlation_id} << 32 | name_id,
                                              std::memory_order_relaxed);
  }
  // 0: it is not known.
  uint32_t Find(uint32_t correlation_id) const {
    const uint64_t entry = entries_[correlation_id % kEntries].load(std::memory_order_relaxed);
    return entry >> 32 == correlation_id ? static_cast<uint32_t>(entry) : 0;
  }

 private:
  // Launches of an iteration; more than that are between a launch and its record in no program
  // whose queue is finite.
  static constexpr uint32_t kEntries = 1 << 15;
  std::atomic<uint64_t> entries_[kEntries] = {};
  std::atomic<bool> needed_{false};
};

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_BASE_LAUNCH_NAMES_H_
