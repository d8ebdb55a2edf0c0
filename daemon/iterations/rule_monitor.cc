#include "daemon/iterations/rule_monitor.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace seqpoint::iterations {

void RuleMonitor::OnStep(const abi::StepEvent& step) {
  // 0 micro-steps: the rule came in the middle of this iteration.
  if (step.micro_steps == 0) return;
  const size_t slot = steps_ % kWindow;
  other_micro_steps_[slot] = step.micro_steps != micro_steps_;
  lengths_missing_[slot] = (step.valid & all_lengths_) != all_lengths_;
  if (steps_ > 0 && step.api_ns > last_ns_) {
    longest_ns_ = std::max(longest_ns_, step.api_ns - last_ns_);
  }
  last_ns_ = step.api_ns;
  ++steps_;
}

std::optional<std::string> RuleMonitor::Check(uint64_t now_ns) const {
  if (steps_ < kWindow) return std::nullopt;
  const auto count = [](const std::array<bool, kWindow>& window) {
    return static_cast<size_t>(std::count(window.begin(), window.end(), true));
  };
  if (const size_t n = count(other_micro_steps_); n * 2 > kWindow) {
    return absl::StrCat(n, " of the last ", kWindow, " iterations did not have ", micro_steps_,
                        " micro-steps: the training loop has changed");
  }
  if (const size_t n = count(lengths_missing_); n * 2 > kWindow) {
    return absl::StrCat("the length of ", n, " of the last ", kWindow,
                        " iterations could not be read: what told it is gone");
  }
  if (now_ns > last_ns_) {
    const uint64_t silent_ns = now_ns - last_ns_;
    if (silent_ns > kPatienceNs && silent_ns > kPatienceIterations * longest_ns_) {
      return absl::StrCat("no iteration ended for ", silent_ns / 1'000'000'000,
                          " s; the longest before took ", longest_ns_ / 1'000'000,
                          " ms: the training loop has ended or changed");
    }
  }
  return std::nullopt;
}

}  // namespace seqpoint::iterations
