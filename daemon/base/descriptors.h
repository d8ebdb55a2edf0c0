// The descriptors that the daemon may have, and the number of its peers that may share them. All
// kinds of peers are bounded, so that descriptors are left for the store, imports and logs.
// Threading: call RaiseDescriptorLimit before there are threads.
#ifndef DAEMON_BASE_DESCRIPTORS_H_
#define DAEMON_BASE_DESCRIPTORS_H_

#include <sys/resource.h>

#include <algorithm>
#include <cstddef>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace seqpoint {

struct DescriptorShares {
  size_t processes = 0;        // profiled ones; each takes two descriptors
  size_t api_connections = 0;  // of clients
};

// The store, logs, polls and imports have about 60; up to 64 peers of each of the two sockets have
// connected and not said who they are.
inline constexpr size_t kOwnDescriptors = 192;
inline constexpr size_t kLeastDescriptors = 256;
// Memory and threads do not allow more.
inline constexpr size_t kMostProcesses = 1024;
inline constexpr size_t kMostApiConnections = 512;

inline DescriptorShares ShareDescriptors(size_t limit) {
  const size_t left = limit - std::min(limit, kOwnDescriptors);
  DescriptorShares shares;
  shares.api_connections = std::min(left / 4, kMostApiConnections);
  shares.processes = std::min((left - shares.api_connections) / 2, kMostProcesses);
  return shares;
}

// Raises the soft limit to the hard one: the usual soft one of 1,024 is there for select(), which
// nothing here calls. ResourceExhausted when there are too few to work with.
inline absl::StatusOr<DescriptorShares> RaiseDescriptorLimit() {
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  rlimit raised = {.rlim_cur = limit.rlim_max, .rlim_max = limit.rlim_max};
  if (setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  if (limit.rlim_cur < kLeastDescriptors) {
    return absl::ResourceExhaustedError(
        absl::StrCat("only ", limit.rlim_cur, " descriptors may be open, ", kLeastDescriptors,
                     " are needed; raise the limit (ulimit -Hn)"));
  }
  return ShareDescriptors(limit.rlim_cur);
}

}  // namespace seqpoint

#endif  // DAEMON_BASE_DESCRIPTORS_H_
