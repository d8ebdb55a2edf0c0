#include "injection/iterations/step_watch.h"

#include <string.h>

#include "injection/iterations/op_sets.h"

namespace seqpoint::inject {
namespace {

using abi::EventPattern;
using abi::Op;

constexpr uint32_t Bit(uint32_t op) { return op == 0 ? 0 : 1u << op; }

// Events that the program names itself.
constexpr uint32_t kNamedOps = kNvtxOps | OpBit(Op::kMark);

bool LooksBack(const EventPattern& pattern) {
  return (pattern.match & (abi::kMatchPrevious | abi::kMatchNotPrevious)) != 0;
}

}  // namespace

void StepWatch::Begin(const abi::Rule& rule) {
  step_ops_ = learned_ = 0;
  granted_ = assumed_ = missed_ = stepped_ = false;
  // The same rule may come again, from a daemon that started again.
  const EventPattern patterns[] = {rule.boundary, rule.confirm, rule.step};
  if (disproved_ && memcmp(patterns, patterns_, sizeof(patterns)) == 0) return;
  if ((Bit(rule.boundary.op) & kNamedOps) == 0 || rule.micro_batches > 1) return;
  // Other operations that the rule looks at; and whether it looks at the event before one of them.
  uint32_t needed = Bit(rule.boundary.op) | Bit(rule.clock.op);
  bool looks_back = LooksBack(rule.boundary) || LooksBack(rule.clock);
  for (uint32_t i = 0; i < rule.length_count && i < 2; ++i) {
    needed |= Bit(rule.length[i].pattern.op);
    looks_back = looks_back || LooksBack(rule.length[i].pattern);
  }
  if (looks_back) return;
  disproved_ = false;
  memcpy(patterns_, patterns, sizeof(patterns));
  step_ops_ = (Bit(rule.step.op) | Bit(rule.confirm.op)) & ~needed &
              (OpBit(Op::kLaunch) | OpBit(Op::kGraphLaunch));
}

bool StepWatch::OnIteration(uint64_t next, bool watched, bool stepped, uint32_t random) {
  if (step_ops_ == 0) return false;
  if (watched && !stepped) {
    disproved_ = missed_ && stepped_;
    if (disproved_) step_ops_ = 0;
    missed_ = true;
    granted_ = false;
    learned_ = 0;
    return disproved_ && assumed_;
  }
  if (watched) {
    missed_ = false;
    stepped_ = true;
  } else if (assumes()) {
    assumed_ = true;
    if (unseen_++ == 0) first_unseen_ = next - 1;
  }
  if (learned_ < kLearned) {
    learned_ += watched;
  } else if (granted_) {
    granted_ = check_after_-- > 1;
    return false;
  } else if (!watched) {
    return false;
  }
  granted_ = assumes();
  if (granted_) check_after_ = kCheckEvery - kVaries - 1 + random % (2 * kVaries + 1);
  return false;
}

}  // namespace seqpoint::inject
