#include "injection/iterations/call_router.h"

#include <string.h>

#include <utility>

namespace seqpoint::inject {
namespace {

using abi::Op;

// While learning, the control block is looked at every 256 calls, and once in so long.
constexpr uint64_t kPollMask = 255;
constexpr uint64_t kPollEveryNs = 100'000'000;

uint16_t Clamp16(uint32_t value) { return value < 0xFFFF ? static_cast<uint16_t>(value) : 0xFFFF; }

abi::NameShape ShapeOf(const char* name) {
  return name == nullptr ? abi::NameShape{} : abi::ShapeOfName(name, strlen(name));
}

// The number of the next learn record. The caller's lock makes it a plain addition.
uint64_t TakeSequence(abi::RingHeader* header) {
  const uint64_t sequence = __atomic_load_n(&header->call_sequence, __ATOMIC_RELAXED);
  __atomic_store_n(&header->call_sequence, sequence + 1, __ATOMIC_RELAXED);
  return sequence;
}

abi::MatchEvent EventOf(const Call& call, uint64_t name_hash, const abi::NameShape* shape) {
  abi::MatchEvent event = {};
  event.op = static_cast<uint8_t>(call.op);
  event.has_payload = (call.flags & abi::kCallHasPayload) != 0;
  event.grid_x = call.grid_x;
  event.grid_y = call.grid_y;
  event.grid_z = call.grid_z;
  event.name_hash = name_hash;
  event.bytes = call.bytes;
  event.stream = call.stream;
  if (shape != nullptr) {
    event.name_hash = shape->hash;
    event.digits = shape->digits;
    event.digit_runs = static_cast<uint8_t>(shape->digit_runs);
  }
  return event;
}

}  // namespace

// NVTX names are matched by their shape, and need a number only where calls are recorded: a program
// that numbers its iterations would fill the table.
inline NameRef CallRouter::NameOf(const Call& call, bool nvtx) {
  // Each return is the caller's own object: a copy would wait for the parts that were written to
  // it.
  if (call.op == Op::kLaunch) return parts_.names->InternKernel(call.name);
  if (!nvtx || parts_.state->is_learning()) return parts_.names->Intern(call.name);
  return {};
}

// Holds the lock.
inline void CallRouter::Match(const Call& call, const abi::MatchEvent& event, uint64_t number,
                              DeferredActions* actions) {
  // Steps are taken for granted: if the call is a boundary, the iteration that ends there had one.
  if (parts_.steps->assumes() && parts_.state->matcher.Begins(event)) {
    if (const uint32_t flags = parts_.state->matcher.StepNow(); flags != 0) {
      parts_.events->OnMatched(call, number, flags, actions);
    }
  }
  if (const uint32_t flags = parts_.state->matcher.OnEvent(event); flags != 0) {
    parts_.events->OnMatched(call, number, flags, actions);
  }
}

inline void CallRouter::WriteCall(const Call& call, uint32_t name_id, uint64_t number,
                                  uint8_t more_flags) {
  abi::DataRecord record;
  abi::CallRecord& out = record.call;
  out.type = static_cast<uint16_t>(abi::DataType::kCall);
  out.op = static_cast<uint8_t>(call.op);
  out.flags = call.flags | more_flags;
  out.name_id = name_id;
  out.sequence = number;
  out.api_ns = call.begin_ns;
  out.grid_x = call.grid_x;
  out.grid_y = Clamp16(call.grid_y);
  out.grid_z = Clamp16(call.grid_z);
  out.block_x = Clamp16(call.block_x);
  out.block_y = Clamp16(call.block_y);
  out.block_z = Clamp16(call.block_z);
  out.context = call.context_uid;
  out.stream = call.stream;
  out.bytes = call.end_ns != 0 ? call.end_ns - call.begin_ns : call.bytes;
  out.thread_id = ThreadId();
  out.correlation_id = call.correlation_id;
  parts_.ring->WriteData(record);
}

void CallRouter::OnCall(const Call& call) {
  IterationState* const state = parts_.state;  // stays in a register
  // The ring is not there in a child that was forked past every handler.
  const uint32_t bit = OpBit(call.op);
  if ((state->watched.load(std::memory_order_relaxed) & bit) == 0 || !parts_.ring->active()) return;
  if (call.context != nullptr && !parts_.contexts->any()) parts_.contexts->Add(call.context);
  const bool nvtx = (bit & kNvtxOps) != 0;
  const NameRef name = NameOf(call, nvtx);
  if (call.op == Op::kLaunch && parts_.launch_names->needed()) {
    parts_.launch_names->Add(call.correlation_id, name.id);
  }
  // Shaping takes longer than anything that holds the lock.
  abi::NameShape shape;
  bool shaped = nvtx && state->matching.load(std::memory_order_relaxed);
  if (shaped) shape = ShapeOf(call.name);

  DeferredActions actions = {};
  bool learn = false;
  uint8_t more_flags = 0;
  uint64_t number = 0;
  {
    LockGuard lock(&state->lock);
    if (parts_.token->stopped()) return;
    learn = state->level == abi::Level::kLearn;
    if (std::exchange(state->after_hole, false)) more_flags |= abi::kCallAfterHole;
    number = learn ? TakeSequence(parts_.ring->header()) : state->calls;
    ++state->calls;
    if (call.context != nullptr) {
      ++cuda_calls_[static_cast<uint8_t>(state->level) & 3];
      if (call.end_ns != 0 && !parts_.events->WaitedForWork(call)) more_flags |= abi::kCallNoEnd;
      parts_.events->OnCudaCall(call);
    }
    if (state->has_rule()) {
      if (call.end_ns != 0 && (more_flags & abi::kCallNoEnd) == 0) parts_.events->WriteSync(call);
      if (nvtx && !shaped) {  // the rule came just now
        shape = ShapeOf(call.name);
        shaped = true;
      }
      Match(call, EventOf(call, name.hash, shaped ? &shape : nullptr), number, &actions);
      if ((bit & kWorkOps) != 0) parts_.window->OnWork();
    } else if (!parts_.token->taken() && parts_.captures->count() == 0 &&
               ((state->calls & kPollMask) == 0 || call.begin_ns > polled_ns_ + kPollEveryNs)) {
      polled_ns_ = call.begin_ns;
      actions.apply = parts_.control->Changed();
    }
    if (actions.any()) parts_.token->Take();
  }
  if (learn) WriteCall(call, name.id, number, more_flags);
  if (actions.any()) parts_.levels->Perform(call.context, actions);
  if (actions.boundary) parts_.call_watch->Look();
  // The launch that opened the measurement is in it, the one that closed it is not.
  if (parts_.kernels->listing()) parts_.kernels->OnCall(call.context, call.op, name.id);
}

void CallRouter::OnBlocked(const Call& call) {
  if (!parts_.state->Watches(call.op)) return;
  LockGuard lock(&parts_.state->lock);
  if (parts_.token->stopped() || !parts_.state->has_rule() || !parts_.events->WaitedForWork(call))
    return;
  parts_.events->WriteSync(call);
}

void CallRouter::ReportCost(uint32_t callback_ns) {
  // The body of a callback in inject_benchmark, in ns by level.
  constexpr uint32_t kBodyNs[4] = {0, 46, 19, 19};
  abi::CostEvent event = {};
  {
    LockGuard lock(&parts_.state->lock);
    if (parts_.state->calls == reported_calls_) return;
    reported_calls_ = parts_.state->calls;
    memcpy(event.calls, cuda_calls_, sizeof(event.calls));
  }
  event.callback_ns = callback_ns;
  for (int level = 1; level < 4; ++level) {
    event.spent_ns[level] = event.calls[level] * (callback_ns + kBodyNs[level]);
  }
  parts_.ring->WriteEvent(abi::EventType::kCost, &event, sizeof(event));
}

void CallRouter::CheckClock() {
  LockGuard lock(&parts_.state->lock);
  if (parts_.token->stopped() || parts_.state->level == abi::Level::kReleased) return;
  const bool learn = parts_.state->level == abi::Level::kLearn;
  parts_.events->NoteClock(learn ? parts_.ring->header()->call_sequence : parts_.state->calls);
}

void CallRouter::Distort() {
  LockGuard lock(&parts_.state->lock);
  parts_.state->distorted = true;
}

}  // namespace seqpoint::inject
