// RetryWhileTaken: repeats an attempt that fails with AlreadyExists while another daemon holds the
// resource.
//
// A killed daemon keeps its locks and sockets until the kernel has freed its memory; the next
// daemon may start before. Threading: none of its own.
#ifndef DAEMON_BASE_RETRY_H_
#define DAEMON_BASE_RETRY_H_

#include <string>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "daemon/base/clock.h"
#include "spdlog/spdlog.h"

namespace seqpoint {

// Returns the last result of `attempt`, a function that returns an absl::StatusOr.
template <typename Attempt>
auto RetryWhileTaken(absl::Duration patience, const Attempt& attempt) -> decltype(attempt()) {
  constexpr absl::Duration kPause = absl::Milliseconds(20);
  const int64_t end_ns = Clock::System().MonotonicNs() + absl::ToInt64Nanoseconds(patience);
  bool told = false;
  while (true) {
    auto result = attempt();
    if (!absl::IsAlreadyExists(result.status()) || Clock::System().MonotonicNs() >= end_ns) {
      return result;
    }
    if (!told) {
      spdlog::info("{}; it is waited for, {} at most", std::string(result.status().message()),
                   absl::FormatDuration(patience));
    }
    told = true;
    absl::SleepFor(kPause);
  }
}

}  // namespace seqpoint

#endif  // DAEMON_BASE_RETRY_H_
