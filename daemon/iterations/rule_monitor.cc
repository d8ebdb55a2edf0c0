#include "daemon/iterations/rule_monitor.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace seqpoint::iterations {
namespace {

// An evaluation phase may have as many batches as an epoch; before the first one their number is
// not known.
constexpr uint64_t kFewCandidates = 5000;
constexpr uint64_t kCandidatesPerStep = 3;
constexpr uint64_t kCandidatesPerEarlier = 4;
// A program that is stopped, or writes a checkpoint, has no events either.
constexpr uint64_t kPatienceNs = 3'600'000'000'000;
constexpr uint64_t kPatienceLongest = 20;
// Iterations of a length, after its first, that give its usual time.
constexpr uint32_t kUsualAfter = 3;
constexpr double kMaxOff = 0.1;  // from exactly twice, or half

}  // namespace

void RuleMonitor::OnCandidate(uint64_t api_ns) {
  ++seen_;
  ++candidates_;
  if (last_ns_ != 0 && api_ns > last_ns_) longest_ns_ = std::max(longest_ns_, api_ns - last_ns_);
  last_ns_ = std::max(last_ns_, api_ns);
}

void RuleMonitor::OnStep(const abi::StepEvent& step) {
  ++seen_;
  most_candidates_ = std::max(most_candidates_, candidates_);
  candidates_ = 0;
  if (last_ns_ != 0 && step.api_ns > last_ns_) {
    longest_ns_ = std::max(longest_ns_, step.api_ns - last_ns_);
  }
  last_ns_ = std::max(last_ns_, step.api_ns);
  // 0 micro-batches: the rule came in the middle of this iteration.
  if (step.micro_batches == 0) return;
  const size_t slot = steps_++ % kWindow;
  other_micro_batches_[slot] = step.micro_batches != micro_batches_ &&
                               (!by_framework_ || step.micro_batches == latest_micro_batches_);
  latest_micro_batches_ = step.micro_batches;
  lengths_missing_[slot] = (step.valid & all_lengths_) != all_lengths_;
}

void RuleMonitor::OnTime(const int64_t (&length)[2], uint64_t gpu_duration_ns) {
  if (gpu_duration_ns == 0) return;
  const std::pair<int64_t, int64_t> lengths{length[0], length[1]};
  auto it = usual_.find(lengths);
  if (it == usual_.end()) {
    // The first one pays for algorithm search.
    if (usual_.size() < kMaxLengths) usual_.try_emplace(lengths);
    return;
  }
  Usual& usual = it->second;
  const double log_ns = std::log(static_cast<double>(gpu_duration_ns));
  if (usual.count < kUsualAfter) {
    usual.log_ns += (log_ns - usual.log_ns) / ++usual.count;
  } else {
    log_ratios_[timed_++ % kTimedWindow] = log_ns - usual.log_ns;
  }
}

size_t RuleMonitor::CountOtherMicroBatches() const {
  return static_cast<size_t>(
      std::count(other_micro_batches_.begin(), other_micro_batches_.end(), true));
}

bool RuleMonitor::may_have_micro_batches() const {
  return steps_ < kWindow || CountOtherMicroBatches() * 2 <= kWindow;
}

std::optional<std::string> RuleMonitor::Check(uint64_t now_ns, bool micro_batches_elsewhere) {
  if (std::exchange(checked_, seen_) != seen_) quiet_since_ns_ = now_ns;
  if (steps_ < kWindow) return std::nullopt;
  if (!micro_batches_elsewhere && !may_have_micro_batches()) {
    return absl::StrCat(CountOtherMicroBatches(), " of the last ", kWindow,
                        " iterations did not have ", micro_batches_,
                        " micro-batches: the training loop has changed");
  }
  const auto n = std::count(lengths_missing_.begin(), lengths_missing_.end(), true);
  if (static_cast<size_t>(n) * 2 > kWindow) {
    return absl::StrCat("the length of ", n, " of the last ", kWindow,
                        " iterations could not be read: what told it is gone");
  }
  const uint64_t ordinary = std::max(
      {kFewCandidates, kCandidatesPerStep * steps_, kCandidatesPerEarlier * most_candidates_});
  if (candidates_ > ordinary) {
    return absl::StrCat(candidates_, " batches came since the last optimiser step, more than an ",
                        "evaluation has: the optimiser step has changed");
  }
  if (auto why = CheckTimes()) return why;
  if (now_ns > quiet_since_ns_) {
    const uint64_t silent_ns = now_ns - quiet_since_ns_;
    if (silent_ns > kPatienceNs && silent_ns > kPatienceLongest * longest_ns_) {
      return absl::StrCat("nothing of the training loop was seen for ", silent_ns / 60'000'000'000,
                          " minutes; the longest pause before took ", longest_ns_ / 1'000'000'000,
                          " s: the training loop has ended or changed");
    }
  }
  return std::nullopt;
}

// All of the last iterations are twice, or half, as long as usual at the same lengths: two
// iterations are taken for one, or one for two. A GPU that becomes slower is hardly slower by
// exactly two.
std::optional<std::string> RuleMonitor::CheckTimes() const {
  if (timed_ < kTimedWindow) return std::nullopt;
  std::array<double, kTimedWindow> sorted = log_ratios_;
  std::sort(sorted.begin(), sorted.end());
  const double median = sorted[kTimedWindow / 2];
  const double low = sorted[kTimedWindow / 10], high = sorted[kTimedWindow - kTimedWindow / 10 - 1];
  const double off = std::abs(std::abs(median) - std::log(2.0));
  if (off > kMaxOff || high - low > 4 * kMaxOff) return std::nullopt;
  return absl::StrCat("iterations of the same length now take ", median > 0 ? "twice" : "half",
                      " as long as when the rule was new: ",
                      median > 0 ? "two are taken for one" : "one is taken for two",
                      ", or the GPU's speed has changed");
}

}  // namespace seqpoint::iterations
