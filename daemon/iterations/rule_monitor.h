// RuleMonitor: watches whether the published rule still fits. At level *mark* it sees only the
// events that the rule reports. It gives the reason when the job has to be learned again.
//
//   RuleMonitor monitor(learned.rule);
//   monitor.OnStep(event, gpu_duration_ns);      // of whole iterations; 0: not known
//   monitor.OnCandidate(event.api_ns);           // boundary events, also those that come to
//   nothing if (auto why = monitor.Check(now_ns)) Relearn(*why);
//
// The changes that it looks for, and the ordinary events that look like them:
//
//   the program now ...            shows as                              not to be confused with
//   accumulates otherwise          other micro-batches, in half of 32      an epoch's last
//   iteration feeds its batches otherwise    lengths missing, in half of 32        the first after
//   a start repeats an event (or drops it) GPU time at the same lengths twice    a slow GPU: it is
//   not just
//                                  (half) as long, all of 64             twice as slow, and uneven
//   has another optimiser step     candidates without a step             evaluation: no longer than
//                                                                        several times all training
//   does something else            nothing any more                      checkpoint, debugger: an
//   hour
//
// It uses the time of day for the last only. A reason is repeated until a new monitor takes over.
// Threading: one thread. Ownership: values only; at most kMaxLengths lengths are kept.
#ifndef DAEMON_ITERATIONS_RULE_MONITOR_H_
#define DAEMON_ITERATIONS_RULE_MONITOR_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "injection/abi/records.h"

namespace seqpoint::iterations {

class RuleMonitor {
 public:
  // The learned micro-batches per iteration, and the number of lengths that the rule reads.
  // `by_framework`: a framework marks the loop, whose number of micro-batches may change all the
  // time.
  RuleMonitor(uint32_t micro_batches, uint32_t length_count, bool by_framework = false)
      : micro_batches_(std::max(1u, micro_batches)),
        all_lengths_((1u << length_count) - 1),
        by_framework_(by_framework) {}

  void OnStep(const abi::StepEvent& step);
  void OnCandidate(uint64_t api_ns);
  // GPU time, by its own stamps, of an iteration that no measurement disturbed; in any order.
  void OnTime(const int64_t (&length)[2], uint64_t gpu_duration_ns);

  // Most of the last iterations have the learned micro-batches, or there were too few to tell.
  bool may_have_micro_batches() const;

  // `now_ns`: of a monotonic clock; 0: the time without events is not judged.
  // `micro_batches_elsewhere`: another process of the job may have the learned micro-batches, so
  // that other ones here are no change. Returns nothing while the rule fits.
  std::optional<std::string> Check(uint64_t now_ns, bool micro_batches_elsewhere = false);

  static constexpr size_t kMaxLengths = 4096;

 private:
  static constexpr size_t kWindow = 32;
  static constexpr size_t kTimedWindow = 64;

  // The usual time of iterations with the same lengths.
  struct Usual {
    uint32_t count = 0;
    double log_ns = 0;  // mean
  };

  size_t CountOtherMicroBatches() const;
  std::optional<std::string> CheckTimes() const;

  uint32_t micro_batches_;
  uint32_t all_lengths_;
  uint64_t steps_ = 0;
  uint64_t candidates_ = 0;       // since the last step
  uint64_t most_candidates_ = 0;  // between two steps, so far
  uint64_t last_ns_ = 0;          // of the last step or candidate
  uint64_t longest_ns_ = 0;       // the longest between two of them so far
  uint64_t seen_ = 0;             // steps and candidates
  uint64_t checked_ = 0;          // `seen_` when Check last found that it had grown
  uint64_t quiet_since_ns_ = 0;   // the time of that on Check's clock
  bool by_framework_;
  uint32_t latest_micro_batches_ = 0;  // of the iteration before, with `by_framework`
  std::array<bool, kWindow> other_micro_batches_{};
  std::array<bool, kWindow> lengths_missing_{};
  absl::flat_hash_map<std::pair<int64_t, int64_t>, Usual> usual_;
  std::array<double, kTimedWindow> log_ratios_{};  // of GPU time to the usual one
  uint64_t timed_ = 0;
};

}  // namespace seqpoint::iterations

#endif  // DAEMON_ITERATIONS_RULE_MONITOR_H_
