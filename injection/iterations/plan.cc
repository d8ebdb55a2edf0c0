#include "injection/iterations/plan.h"

#include <string.h>

namespace seqpoint::inject {
namespace {

// How many failed measurements an entry gets for nothing.
constexpr uint32_t kFreeFailures = 8;

}  // namespace

void Plan::Apply(const abi::Control& control) {
  const uint32_t count =
      control.plan_count < abi::kMaxPlanEntries ? control.plan_count : abi::kMaxPlanEntries;
  Count kept[abi::kMaxPlanEntries];
  // Entries mostly keep their order, so the search goes on where the last one ended.
  uint32_t at = 0;
  for (uint32_t i = 0; i < count; ++i) {
    kept[i] = {0, 0};
    for (uint32_t step = 0; step < entry_count_; ++step) {
      const uint32_t old = (at + step) % entry_count_;
      if (entries_[old].entry_id != control.plan[i].entry_id) continue;
      kept[i] = counts_[old];
      at = old + 1;
      break;
    }
  }
  memcpy(entries_, control.plan, count * sizeof(entries_[0]));
  memcpy(counts_, kept, count * sizeof(counts_[0]));
  entry_count_ = count;
  cap_ = control.measurement_cap;
}

bool Plan::Holds(const abi::PlanEntry& entry, const int64_t length[2], uint32_t valid) {
  for (int i = 0; i < 2; ++i) {
    if ((valid >> i & 1) != 0) {
      if (length[i] < entry.low[i] || length[i] > entry.high[i]) return false;
    } else if (entry.low[i] != INT64_MIN || entry.high[i] != INT64_MAX) {
      return false;
    }
  }
  return true;
}

bool Plan::Wants(uint16_t config_id, const int64_t length[2], uint32_t valid) const {
  for (uint32_t i = 0; i < entry_count_; ++i) {
    if (entries_[i].config_id == config_id && Holds(entries_[i], length, valid)) return true;
  }
  return false;
}

int Plan::Find(uint64_t entry_id) const {
  for (uint32_t i = 0; i < entry_count_; ++i) {
    if (entries_[i].entry_id == entry_id) return static_cast<int>(i);
  }
  return -1;
}

void Plan::Take(uint64_t entry_id) {
  const int index = Find(entry_id);
  if (index < 0) return;
  ++measurements_;
  ++counts_[index].taken;
}

void Plan::GiveBack(uint64_t entry_id) {
  const int index = Find(entry_id);
  if (index < 0 || counts_[index].taken == 0 || counts_[index].given_back == kFreeFailures) return;
  --counts_[index].taken;
  ++counts_[index].given_back;
}

}  // namespace seqpoint::inject
