#include "daemon/jobs/downsampled.h"

#include <algorithm>
#include <map>
#include <utility>

namespace seqpoint::jobs {

std::vector<std::vector<size_t>> Groups(const std::vector<Key>& keys, size_t most) {
  std::map<Key, std::vector<size_t>> by_key;
  for (size_t i = 0; i < keys.size(); ++i) by_key[keys[i]].push_back(i);
  std::vector<std::vector<size_t>> groups;
  if (keys.size() <= most) {
    for (size_t i = 0; i < keys.size(); ++i) groups.push_back({i});
    return groups;
  }
  size_t index = 0, seen = 0;
  for (const auto& [key, of_key] : by_key) {
    // The places of all keys are those of [0, most), each key at least one.
    size_t places = 1;
    if (by_key.size() > most) {
      places = (index + 1) * most / by_key.size() - index * most / by_key.size();
    } else {
      const size_t spare = most - by_key.size();
      places += (seen + of_key.size()) * spare / keys.size() - seen * spare / keys.size();
    }
    seen += of_key.size();
    ++index;
    places = std::min(places, of_key.size());
    for (size_t p = 0; p < places; ++p) {
      std::vector<size_t>& group = groups.emplace_back();
      for (size_t i = p; i < of_key.size(); i += places) group.push_back(of_key[i]);
    }
  }
  return groups;
}

std::vector<Measured> Downsampled(std::vector<Measured> all, size_t most) {
  std::vector<Key> keys;
  for (const Measured& one : all) keys.push_back(one.key);
  std::vector<Measured> fewer;
  for (const std::vector<size_t>& group : Groups(keys, most)) {
    Measured mean = {all[group[0]].number, keys[group[0]], {}};
    for (const size_t i : group) {
      const std::vector<double>& values = all[i].values;
      if (values.size() > mean.values.size()) mean.values.resize(values.size());
      for (size_t v = 0; v < values.size(); ++v) mean.values[v] += values[v];
    }
    for (double& value : mean.values) value /= static_cast<double>(group.size());
    fewer.push_back(std::move(mean));
  }
  return fewer;
}

}  // namespace seqpoint::jobs
