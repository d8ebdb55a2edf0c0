// Standstill: notices that a job of several ranks makes no progress, and says who is waited for.
//
//   if (standstill.Check(monotonic_ns, progress, ranks, real)) ...  // the finding changed
//
// Threading: one thread at a time. Ownership: values. Times: `monotonic_ns` are the daemon's, those
// of calls the processes'.
#ifndef DAEMON_JOBS_STANDSTILL_H_
#define DAEMON_JOBS_STANDSTILL_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "daemon/ranks/stuck.h"
#include "seqpoint/v1/ranks.pb.h"

namespace seqpoint::jobs {

class Standstill {
 public:
  struct Rank {
    ranks::RankCalls calls;
    bool lost = false;  // it ended, and was killed or crashed
  };

  // True when the finding changed. `progress`: a number that changes with each iteration and each
  // operation of any rank. `clock_is_real`: times of calls are wall-clock times.
  bool Check(int64_t monotonic_ns, int64_t progress, const std::vector<Rank>& ranks,
             bool clock_is_real);

  const std::optional<v1::Standstill>& found() const { return found_; }
  // Takes what was found before the daemon was started; it holds until Check() sees progress.
  void Load(const v1::Standstill& found) { found_ = found; }

  // As long as this without progress is no standstill; longer where iterations take longer.
  static constexpr int64_t kLeastPatienceNs = 10'000'000'000;
  static constexpr int64_t kLongestPatienceNs = 25'000'000'000;

 private:
  int64_t PatienceNs() const;

  int64_t progress_ = 0;
  int64_t last_progress_ns_ = 0;  // 0: Check was not called yet
  int64_t longest_pause_ns_ = 0;  // between two signs of progress, of those that ended
  std::optional<v1::Standstill> found_;
};

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_STANDSTILL_H_
