#include "daemon/jobs/thinned.h"

#include <algorithm>
#include <map>
#include <utility>

namespace seqpoint::jobs {

std::vector<Measured> Thinned(std::vector<Measured> all, size_t most) {
  if (all.size() <= most) return all;
  std::map<Key, std::vector<Measured>> by_key;
  for (Measured& one : all) by_key[one.key].push_back(std::move(one));
  const size_t keys = by_key.size();
  std::vector<Measured> fewer;
  size_t index = 0, seen = 0;
  const size_t total = all.size();
  for (auto& [key, of_key] : by_key) {
    // The places of all keys are those of [0, most), each key at least one.
    size_t places = 1;
    if (keys > most) {
      places = (index + 1) * most / keys - index * most / keys;
    } else {
      const size_t spare = most - keys;
      places += (seen + of_key.size()) * spare / total - seen * spare / total;
    }
    seen += of_key.size();
    ++index;
    places = std::min(places, of_key.size());
    for (size_t p = 0; p < places; ++p) {
      Measured mean = {of_key[p].number, key, {}};
      double count = 0;
      for (size_t i = p; i < of_key.size(); i += places, ++count) {
        const std::vector<double>& values = of_key[i].values;
        if (values.size() > mean.values.size()) mean.values.resize(values.size());
        for (size_t v = 0; v < values.size(); ++v) mean.values[v] += values[v];
      }
      for (double& value : mean.values) value /= count;
      fewer.push_back(std::move(mean));
    }
  }
  return fewer;
}

}  // namespace seqpoint::jobs
