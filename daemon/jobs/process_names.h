// ProcessNames: the names that a process sent, of kernels and of NVTX ranges and marks.
//
// Threading: one thread at a time. Ownership: keeps the texts, at most kMaxNamesBytes of them.
#ifndef DAEMON_JOBS_PROCESS_NAMES_H_
#define DAEMON_JOBS_PROCESS_NAMES_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "daemon/base/limits.h"

namespace seqpoint::jobs {

class ProcessNames {
 public:
  struct Name {
    std::string text;  // empty: it was not sent
    int kernel = -1;   // index in KernelStatistics; -1: not looked up yet
  };

  static bool IsId(uint32_t id) { return id != 0 && id <= kMostNames; }
  bool Fits(size_t text_bytes) const { return bytes_ + text_bytes <= kMaxNamesBytes; }
  void Set(uint32_t id, std::string text) {
    Name& name = names_[id];
    bytes_ += text.size() - name.text.size();
    name = {.text = std::move(text)};
  }
  // Null when it is not known.
  Name* Find(uint32_t id) {
    const auto name = names_.find(id);
    return name != names_.end() && !name->second.text.empty() ? &name->second : nullptr;
  }
  const Name* Find(uint32_t id) const { return const_cast<ProcessNames*>(this)->Find(id); }
  // In ascending order.
  std::vector<uint32_t> Ids() const {
    std::vector<uint32_t> ids;
    for (const auto& [id, name] : names_) ids.push_back(id);
    std::sort(ids.begin(), ids.end());
    return ids;
  }

 private:
  static constexpr uint32_t kMostNames = 1u << 22;

  absl::flat_hash_map<uint32_t, Name> names_;  // a hostile process gives one name the largest id
  size_t bytes_ = 0;
};

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_PROCESS_NAMES_H_
