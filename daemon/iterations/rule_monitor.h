// RuleMonitor: does the published rule still fit? It sees what the rule reports and asks, in a
// sentence, to learn anew.
//
//   RuleMonitor monitor(learned.micro_steps);
//   monitor.OnStep(event);
//   if (auto why = monitor.Check(now_ns)) Relearn(*why);
//
// Threading: one thread. Ownership: values only; O(1) memory.
#ifndef DAEMON_ITERATIONS_RULE_MONITOR_H_
#define DAEMON_ITERATIONS_RULE_MONITOR_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "injection/abi/records.h"

namespace seqpoint::iterations {

class RuleMonitor {
 public:
  // What was learned: micro-steps per iteration and lengths that the rule reads.
  RuleMonitor(uint32_t micro_steps, uint32_t length_count)
      : micro_steps_(micro_steps), all_lengths_((1u << length_count) - 1) {}

  void OnStep(const abi::StepEvent& step);

  // Times in ns of the clock of the events. Nothing while all is well.
  std::optional<std::string> Check(uint64_t now_ns) const;

 private:
  static constexpr size_t kWindow = 32;
  static constexpr uint64_t kPatienceNs = 10'000'000'000;
  static constexpr uint64_t kPatienceIterations = 50;

  uint32_t micro_steps_;
  uint32_t all_lengths_;
  uint64_t steps_ = 0;
  uint64_t last_ns_ = 0;
  uint64_t longest_ns_ = 0;  // between steps, so far
  std::array<bool, kWindow> other_micro_steps_{};
  std::array<bool, kWindow> lengths_missing_{};
};

}  // namespace seqpoint::iterations

#endif  // DAEMON_ITERATIONS_RULE_MONITOR_H_
