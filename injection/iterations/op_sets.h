// Sets of operations, a bit per abi::Op, and what a rule or a level wants watched and recorded.
// Threading: pure functions.
#ifndef SEQPOINT_INJECTION_ITERATIONS_OP_SETS_H_
#define SEQPOINT_INJECTION_ITERATIONS_OP_SETS_H_

#include <stdint.h>

#include "injection/abi/control.h"
#include "injection/abi/records.h"

namespace seqpoint::inject {

using abi::OpBit;

// Operations that a GPU's counters see. Copies to and from the host are left out: they start an
// iteration, run on engines of their own, and move next to nothing compared with the kernels.
inline constexpr uint32_t kWorkOps = OpBit(abi::Op::kLaunch) | OpBit(abi::Op::kGraphLaunch) |
                                     OpBit(abi::Op::kMemset) | OpBit(abi::Op::kCopyD2D);
// The host blocks until the GPU is done.
inline constexpr uint32_t kSyncOps =
    OpBit(abi::Op::kStreamSync) | OpBit(abi::Op::kEventSync) | OpBit(abi::Op::kContextSync);
// Where an iteration leaves no time stamp, its time comes from the host's waits for the GPU. The
// others say which work a wait was for.
inline constexpr uint32_t kWaitOps =
    kSyncOps | OpBit(abi::Op::kCopyD2H) | OpBit(abi::Op::kEventRecord);
inline constexpr uint32_t kAllOps = (OpBit(abi::Op::kCount) - 1) & ~1u;
inline constexpr uint32_t kNvtxOps =
    OpBit(abi::Op::kNvtxPush) | OpBit(abi::Op::kNvtxPop) | OpBit(abi::Op::kNvtxMark);
// Operations that are seen without CUPTI.
inline constexpr uint32_t kHostOps = kNvtxOps | OpBit(abi::Op::kMark) | OpBit(abi::Op::kForward) |
                                     OpBit(abi::Op::kFeature) | OpBit(abi::Op::kStep);

constexpr bool IsWatching(abi::Level level) {
  return level != abi::Level::kPaused && level != abi::Level::kReleased;
}

// The activity kind that records the rule's clock event; 0: none does.
uint32_t KindOfClock(const abi::Rule& rule);
// Some of what the rule must see are calls of the CUDA driver.
bool NeedsDriver(const abi::Rule& rule);
// Its lengths are known only with the last micro-batch or with the step itself.
bool DecidesLate(const abi::Rule& rule);

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_ITERATIONS_OP_SETS_H_
