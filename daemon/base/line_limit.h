// LineLimit: so many lines a minute of what a peer can cause, lest it fills the disk with the log.
//
//   if (const auto left_out = limit_.Admit()) spdlog::warn("refused: ...{}", LeftOut(*left_out));
//
// Threading: thread-safe. Ownership: a value.
#ifndef DAEMON_BASE_LINE_LIMIT_H_
#define DAEMON_BASE_LINE_LIMIT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "daemon/base/clock.h"

namespace seqpoint {

class LineLimit {
 public:
  static constexpr int kMostLinesAMinute = 30;  // 10 MB a day

  explicit LineLimit(const Clock* clock = &Clock::System()) : clock_(*clock) {}

  // Nothing: there were enough. Otherwise how many were left out since the line before this one.
  std::optional<int64_t> Admit() ABSL_LOCKS_EXCLUDED(mutex_) {
    constexpr int64_t kMinuteNs = 60'000'000'000;
    absl::MutexLock lock(&mutex_);
    const int64_t now_ns = clock_.MonotonicNs();
    if (now_ns - minute_ns_ >= kMinuteNs) {
      minute_ns_ = now_ns;
      lines_ = 0;
    }
    if (lines_ == kMostLinesAMinute) {
      ++left_out_;
      return std::nullopt;
    }
    ++lines_;
    return std::exchange(left_out_, 0);
  }

 private:
  const Clock& clock_;
  absl::Mutex mutex_;
  int64_t minute_ns_ ABSL_GUARDED_BY(mutex_) = 0;  // its begin
  int lines_ ABSL_GUARDED_BY(mutex_) = 0;          // of this minute
  int64_t left_out_ ABSL_GUARDED_BY(mutex_) = 0;
};

// For the end of a line.
inline std::string LeftOut(int64_t lines) {
  return lines == 0 ? "" : absl::StrCat(" (", lines, " lines like it were left out)");
}

}  // namespace seqpoint

#endif  // DAEMON_BASE_LINE_LIMIT_H_
