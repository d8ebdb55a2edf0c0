// The fixed places of an iteration: the calls that happen once in each, in cyclic order.
//
// Threading: free functions over constant input.
#ifndef DAEMON_ITERATIONS_COMMON_SUBSEQUENCE_H_
#define DAEMON_ITERATIONS_COMMON_SUBSEQUENCE_H_

#include <cstdint>
#include <vector>

#include "daemon/iterations/kernel_groups.h"
#include "daemon/iterations/log_window.h"

namespace seqpoint::iterations {

// A launch at, or after, a call that happens once in each loop iteration.
struct Place {
  Member member;              // symbol 0: the batch's copy
  std::vector<uint32_t> at;   // one launch per loop iteration between anchors
  std::vector<uint32_t> all;  // also those outside of complete loop iterations
};
using CommonSubsequence = std::vector<Place>;  // in cyclic order

// Empty where the group's calls change their order from loop iteration to loop iteration.
CommonSubsequence FindCommonSubsequence(const LogWindow& window, const KernelGroup& group);

// The large host-to-device copies, each group of them once. They are the batch where its bytes
// follow the length and no symbol comes twice.
std::vector<uint32_t> BatchCopies(const LogWindow& window, Positions anchors);

}  // namespace seqpoint::iterations

#endif  // DAEMON_ITERATIONS_COMMON_SUBSEQUENCE_H_
