// Windows that open at the boundary, before the lengths of their iteration are known, and are given
// up at the decision where nobody wants the lengths. Each disturbs its iteration, and where wanted
// lengths are rare, most must stay undisturbed. So after several for nothing in a row iterations
// pass to the next, and always so long that such windows stay within half of the overhead budget.
// Threading: IterationState's lock.
#ifndef SEQPOINT_INJECTION_ITERATIONS_SPECULATIVE_WINDOW_H_
#define SEQPOINT_INJECTION_ITERATIONS_SPECULATIVE_WINDOW_H_

#include <stdint.h>

namespace seqpoint::inject {

class SpeculativeWindow {
 public:
  // Iterations that may pass after several windows for nothing.
  static constexpr uint32_t kMaxBackoff = 31;

  // There is another rule.
  void Reset() {
    backoff_ = wait_ = 0;
    not_before_ns_ = 0;
  }
  // `permille` of the time may be stops; 0: the default.
  void SetBudget(uint32_t permille) {
    overhead_permille_ = permille > 0 ? permille : kDefaultOverheadPermille;
  }
  // Called at each boundary where one is wanted: may it open?
  bool MayOpen(uint64_t now_ns) {
    if (wait_ > 0) {
      --wait_;
      return false;
    }
    return now_ns >= not_before_ns_;
  }
  // The lengths of an iteration with such a window are known, and wanted, or not. `random` draws
  // how many iterations pass: lengths may come in a fixed rhythm.
  void OnWanted() { backoff_ = 0; }
  void OnUnwanted(uint32_t random) {
    backoff_ = backoff_ < kMaxBackoff ? 2 * backoff_ + 1 : kMaxBackoff;
    wait_ = random % (backoff_ + 1);
  }
  // One came to nothing at `end_ns`, after it had held the program for `stopped_ns`.
  void Charge(uint64_t end_ns, uint64_t stopped_ns) {
    not_before_ns_ = end_ns + stopped_ns * kCostFactor / overhead_permille_;
  }

 private:
  static constexpr uint64_t kCostFactor = 2 * 1000;
  static constexpr uint32_t kDefaultOverheadPermille = 10;

  uint32_t overhead_permille_ = kDefaultOverheadPermille;
  uint32_t backoff_ = 0;  // most iterations to wait after a window that nobody wanted
  uint32_t wait_ = 0;
  uint64_t not_before_ns_ = 0;
};

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_ITERATIONS_SPECULATIVE_WINDOW_H_
