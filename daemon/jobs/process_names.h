// ProcessNames: the names that a process sent, of kernels and of NVTX ranges and marks.
//
// Threading: one thread at a time. Ownership: keeps the texts, at most kMaxNamesBytes of them.
#ifndef DAEMON_JOBS_PROCESS_NAMES_H_
#define DAEMON_JOBS_PROCESS_NAMES_H_

#include <cstdint>
#include <string>
#include <vector>

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
    if (id >= names_.size()) names_.resize(id + 1);
    bytes_ += text.size() - names_[id].text.size();
    names_[id] = {.text = std::move(text)};
  }
  // Null when it is not known.
  Name* Find(uint32_t id) {
    return id < names_.size() && !names_[id].text.empty() ? &names_[id] : nullptr;
  }
  const std::vector<Name>& by_id() const { return names_; }

 private:
  static constexpr uint32_t kMostNames = 1u << 22;

  std::vector<Name> names_;
  size_t bytes_ = 0;
};

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_PROCESS_NAMES_H_
