#include "daemon/seqpoint/key_table.h"

#include <algorithm>

namespace seqpoint {

std::vector<std::pair<Key, KeyRecord>> KeyTable::Sorted() const {
  std::vector<std::pair<Key, KeyRecord>> records(records_.begin(), records_.end());
  std::sort(records.begin(), records.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  return records;
}

uint64_t KeyTable::Lengths() const {
  return records_.size() - (records_.size() > 1 && records_.contains({}) ? 1 : 0);
}

std::vector<KeyTimes> KeyTable::OrdinaryOfKeys() const {
  std::vector<KeyTimes> times;
  for (const auto& [key, record] : Sorted()) {
    const OrdinaryTimes& o = record.ordinary;
    if (o.count > 0 && !LengthUnknown(key)) times.push_back({key, o.count, o.mean_ns, o.m2});
  }
  return times;
}

std::vector<Key> KeyTable::KeysWithBaseline() const {
  std::vector<Key> keys;
  for (const auto& [key, record] : records_) {
    if (record.ordinary.own_baseline) keys.push_back(key);
  }
  std::sort(keys.begin(), keys.end());
  return keys;
}

}  // namespace seqpoint
