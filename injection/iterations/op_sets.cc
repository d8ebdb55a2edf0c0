#include "injection/iterations/op_sets.h"

#include "injection/cupti/activity.h"

namespace seqpoint::inject {

using abi::Op;

uint32_t KindOfClock(const abi::Rule& rule) {
  switch (static_cast<Op>(rule.clock.op)) {
    case Op::kCopyH2D:
    case Op::kCopyD2H:
    case Op::kCopyD2D:
    case Op::kCopyOther:
      return kKindCopy;
    case Op::kMemset:
      return kKindMemset;
    case Op::kGraphLaunch:
      return kKindGraph;
    default:
      return 0;
  }
}

bool NeedsDriver(const abi::Rule& rule) {
  uint32_t needed = 1u << rule.boundary.op | 1u << rule.confirm.op | 1u << rule.step.op;
  for (uint32_t i = 0; i < rule.length_count && i < 2; ++i) {
    needed |= 1u << rule.length[i].pattern.op;
  }
  return (needed & kAllOps & ~kHostOps) != 0;
}

bool DecidesLate(const abi::Rule& rule) {
  for (uint32_t i = 0; i < rule.length_count && i < 2; ++i) {
    if (rule.length[i].field == static_cast<uint8_t>(abi::LengthField::kCallCount)) return true;
  }
  return rule.micro_batches > 1;
}

}  // namespace seqpoint::inject
