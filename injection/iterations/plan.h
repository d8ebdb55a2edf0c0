// The plan entries of the control block and how often each was taken. The library counts quotas
// down itself, so a slow daemon cannot cause over-measuring.
// Threading: IterationState's lock.
#ifndef SEQPOINT_INJECTION_ITERATIONS_PLAN_H_
#define SEQPOINT_INJECTION_ITERATIONS_PLAN_H_

#include <stdint.h>

#include "injection/abi/control.h"

namespace seqpoint::inject {

class Plan {
 public:
  // An entry whose id stays keeps its count.
  void Apply(const abi::Control& control);

  // The first entry with quota left whose box holds the lengths and whose configuration is
  // `ready(config_id)`; `config_id` other than 0 restricts it to that configuration. Null: none.
  template <typename Ready>
  const abi::PlanEntry* Match(const int64_t length[2], uint32_t valid, uint16_t config_id,
                              const Ready& ready) const {
    for (uint32_t i = 0; i < entry_count_; ++i) {
      if (config_id != 0 && entries_[i].config_id != config_id) continue;
      if (Open(i) && Holds(entries_[i], length, valid) && ready(entries_[i].config_id)) {
        return &entries_[i];
      }
    }
    return nullptr;
  }
  // Is there an entry with this configuration whose box holds the lengths, whatever its quota?
  bool Wants(uint16_t config_id, const int64_t length[2], uint32_t valid) const;
  // One of the entries with quota left and a ready configuration, by lot: entries of one
  // configuration whose lengths never come must not keep the others waiting. Null: none.
  template <typename Ready>
  const abi::PlanEntry* Pending(const Ready& ready, uint32_t random) const {
    for (uint32_t i = 0; i < entry_count_; ++i) {
      const uint32_t at = (random + i) % entry_count_;
      if (Open(at) && ready(entries_[at].config_id)) return &entries_[at];
    }
    return nullptr;
  }

  // Counts a measurement that begins. It counts even when it comes to nothing, or an entry that
  // always fails would be measured for ever; GiveBack takes a bounded number of these back. A
  // measurement beside the plan does not count.
  void Take(uint64_t entry_id);
  void GiveBack(uint64_t entry_id);

  static bool Holds(const abi::PlanEntry& entry, const int64_t length[2], uint32_t valid);

 private:
  struct Count {
    uint32_t taken;
    uint32_t given_back;
  };
  bool Open(uint32_t index) const {
    return counts_[index].taken < entries_[index].quota && measurements_ < cap_;
  }
  int Find(uint64_t entry_id) const;

  abi::PlanEntry entries_[abi::kMaxPlanEntries] = {};
  Count counts_[abi::kMaxPlanEntries] = {};
  uint32_t entry_count_ = 0;
  uint32_t measurements_ = 0;  // over the process' life
  uint32_t cap_ = 0;
};

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_ITERATIONS_PLAN_H_
