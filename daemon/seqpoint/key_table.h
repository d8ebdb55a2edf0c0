// KeyTable: the iterations of each key, and the times of the ordinary ones.
//
// Threading: values. Ownership: at most kMaxKeys records.
#ifndef DAEMON_SEQPOINT_KEY_TABLE_H_
#define DAEMON_SEQPOINT_KEY_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "daemon/seqpoint/key.h"
#include "daemon/seqpoint/selection.h"

namespace seqpoint {

inline constexpr size_t kMaxKeys = 1 << 18;

// Usable times of a key's repeated iterations; what slow ones take on top is clipped.
struct OrdinaryTimes {
  double count = 0;
  double mean_ns = 0;
  double m2 = 0;     // sum of squared differences from the mean
  double level = 0;  // mean of OutlierFilter's level when they ran
  // The key has a baseline of its own: its ordinary time is the mean above, not the curve's value.
  bool own_baseline = false;
};

struct KeyRecord {
  int64_t iterations = 0;  // counted ones
  int64_t untimed = 0;     // of these, those whose time is not used
  double recurrences = 0;  // timed cold iterations in further processes
  OrdinaryTimes ordinary;
};

class KeyTable {
 public:
  // Null: there is no room for another key.
  KeyRecord* Insert(const Key& key) {
    const auto found = records_.find(key);
    if (found != records_.end()) return &found->second;
    return records_.size() < kMaxKeys ? &records_.try_emplace(key).first->second : nullptr;
  }
  const KeyRecord* Find(const Key& key) const {
    const auto found = records_.find(key);
    return found == records_.end() ? nullptr : &found->second;
  }
  // `key` is in the table.
  KeyRecord& At(const Key& key) { return records_.find(key)->second; }

  bool empty() const { return records_.empty(); }
  size_t size() const { return records_.size(); }
  const absl::flat_hash_map<Key, KeyRecord>& records() const { return records_; }
  absl::flat_hash_map<Key, KeyRecord>& records() { return records_; }

  // In key order: hash maps have an order of their own, and answers must not depend on it.
  std::vector<std::pair<Key, KeyRecord>> Sorted() const;

  // Nothing has length 0, unless everything has.
  bool LengthUnknown(const Key& key) const { return key == Key{} && records_.size() > 1; }
  // Different lengths so far. Iterations of unknown length have none.
  uint64_t Lengths() const;

  // Keys with known lengths and ordinary times, in key order.
  std::vector<KeyTimes> OrdinaryOfKeys() const;
  // Keys that have a baseline of their own, in order.
  std::vector<Key> KeysWithBaseline() const;

 private:
  absl::flat_hash_map<Key, KeyRecord> records_;
};

inline bool IsValid(const Key& key) { return key.first >= 0 && key.second >= 0; }

}  // namespace seqpoint

#endif  // DAEMON_SEQPOINT_KEY_TABLE_H_
