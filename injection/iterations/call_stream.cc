#include "injection/iterations/call_stream.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <utility>

#include "injection/cupti/activity.h"
#include "injection/process/guest.h"
#include "injection/process/stand_down.h"

namespace seqpoint::inject {
namespace {

using abi::Level;
using abi::Op;

constexpr uint64_t kOrphanedAfterNs = 2'000'000'000;
// Without a boundary for so long, the helper thread applies what the daemon wants.
constexpr uint64_t kIdleNs = 1'000'000'000;
// While learning, the control block is looked at every 256 calls, and once in so long.
constexpr uint64_t kPollMask = 255;
constexpr uint64_t kPollEveryNs = 100'000'000;
constexpr uint32_t kShortestFlushMs = 10;
constexpr uint64_t kStopPatienceNs = 100'000'000;
// Most captures that began unseen are over then; one that compiles kernels takes longer.
constexpr uint64_t kBlindNs = 1'000'000'000;
// Windows opened before the lengths are known. After several for nothing in a row so many
// iterations may pass to the next, and always so long that they stay within half of the overhead
// budget.
constexpr uint32_t kMaxAheadBackoff = 31;
constexpr uint64_t kAheadCostFactor = 2 * 1000;
constexpr uint64_t kDefaultOverheadPermille = 10;
// So many iterations in a row that were decided before, or behind, their first work tell how it is;
// fewer may be another thread that launched just then.
constexpr uint32_t kDecidedProbes = 4;
// What a GPU's counters see. Copies to and from the host are left out: they are what begins an
// iteration, run on engines of their own, and move next to nothing compared with the kernels.
constexpr uint32_t kWorkOps =
    1u << static_cast<uint32_t>(Op::kLaunch) | 1u << static_cast<uint32_t>(Op::kGraphLaunch) |
    1u << static_cast<uint32_t>(Op::kMemset) | 1u << static_cast<uint32_t>(Op::kCopyD2D);
constexpr uint32_t kLaunchOps = 1u << static_cast<uint32_t>(Op::kLaunch);
// Where an iteration leaves no time stamp, when the host waited for the GPU tells times; the others
// tell what it waited for.
constexpr uint32_t kWaitOps =
    1u << static_cast<uint32_t>(Op::kStreamSync) | 1u << static_cast<uint32_t>(Op::kEventSync) |
    1u << static_cast<uint32_t>(Op::kContextSync) | 1u << static_cast<uint32_t>(Op::kCopyD2H) |
    1u << static_cast<uint32_t>(Op::kEventRecord);
constexpr uint32_t kAllOps = ((1u << static_cast<uint32_t>(Op::kCount)) - 1) & ~1u;
// What is seen without CUPTI.
constexpr uint32_t kHostOps =
    1u << static_cast<uint32_t>(Op::kNvtxPush) | 1u << static_cast<uint32_t>(Op::kNvtxPop) |
    1u << static_cast<uint32_t>(Op::kNvtxMark) | 1u << static_cast<uint32_t>(Op::kMark) |
    1u << static_cast<uint32_t>(Op::kForward) | 1u << static_cast<uint32_t>(Op::kFeature) |
    1u << static_cast<uint32_t>(Op::kStep);

uint16_t Clamp16(uint32_t value) { return value < 0xFFFF ? static_cast<uint16_t>(value) : 0xFFFF; }

bool AlwaysReady(uint16_t) { return true; }
bool CanCount(uint16_t config_id) { return g_guest->counters.CanBeHad(config_id); }
bool CanMeasure(uint16_t config_id) {
  const CallStream::Hold hold = g_guest->stream.hold();
  if (hold == CallStream::Hold::kNothing || g_guest->stream.HoldsCaptures()) return false;
  // Ranges belong to contexts, whose end nobody would announce without callbacks.
  return config_id == abi::kConfigTrace
             ? g_guest->activity.traces() && !g_guest->stream.GraphsAreHidden()
             : hold == CallStream::Hold::kAll && g_guest->counters.Ready(config_id);
}

bool IsWork(Op op) { return (kWorkOps >> static_cast<uint32_t>(op) & 1) != 0; }
bool IsNvtx(Op op) { return op == Op::kNvtxPush || op == Op::kNvtxPop || op == Op::kNvtxMark; }

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

// Activity kinds that a level keeps on. At *mark* only the kind of the rule's clock event, if that
// is a rare one: its GPU start is the time of the iteration.
// The kind that records the rule's clock event; 0: none does.
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

uint32_t KindsOfLevel(Level level, const abi::Rule& rule) {
  switch (level) {
    case Level::kLearn:
      return kKindsOfLearn;
    case Level::kMark:
      // A graph that is instantiated while the kind is off leaves no record in any trace window
      // after (CUPTI user guide 2.3.7.5), so the kind is never off.
      return kKindGraph | KindOfClock(rule);
    default:
      return 0;
  }
}

bool Watching(Level level) { return level != Level::kPaused && level != Level::kReleased; }

// Some of what the rule must see are calls of the CUDA driver.
bool NeedsDriver(const abi::Rule& rule) {
  uint32_t needed = 1u << rule.boundary.op | 1u << rule.confirm.op | 1u << rule.step.op;
  for (uint32_t i = 0; i < rule.length_count && i < 2; ++i) {
    needed |= 1u << rule.length[i].pattern.op;
  }
  return (needed & kAllOps & ~kHostOps) != 0;
}

// Lengths that are known only with the last micro-batch or with the step itself.
bool DecidesLate(const abi::Rule& rule) {
  for (uint32_t i = 0; i < rule.length_count && i < 2; ++i) {
    if (rule.length[i].field == static_cast<uint8_t>(abi::LengthField::kCallCount)) return true;
  }
  return rule.micro_batches > 1;
}

}  // namespace

void CallStream::Start(Hold hold) {
  hold_.store(hold);
  start_monotonic_ns_ = MonotonicNs();
  boundary_monotonic_ns_ = start_monotonic_ns_;
  LockGuard guard(&lock_);
  // Processes draw other lots, and those of the next run are others again.
  const uint64_t seed = start_monotonic_ns_ ^ static_cast<uint64_t>(getpid()) << 32;
  random_ = static_cast<uint32_t>(seed * 0x9E3779B97F4A7C15u >> 32);
  level_ = Level::kLearn;
  wanted_.level = static_cast<uint8_t>(Level::kLearn);
  learning_.store(true, std::memory_order_relaxed);
  watched_.store(WantedOps(), std::memory_order_relaxed);
  abi::RuleEvent event = {};
  event.api_ns = g_guest->clock.NowNs();
  event.level = static_cast<uint8_t>(level_);
  g_guest->ring.WriteEvent(abi::EventType::kRule, &event, sizeof(event));
}

void CallStream::OnCall(const Call& call) {
  Guest* guest = g_guest;
  // The ring is not there in a child that was forked past every handler.
  if (!Watches(call.op) || !guest->ring.active()) return;
  if (call.context != nullptr && !guest->knows_contexts()) guest->AddContext(call.context);
  // NVTX names are matched by their shape, and need a number only where calls are recorded: a
  // program that numbers its iterations would fill the table. Shaping takes longer than anything
  // that holds the lock.
  NameRef name = {};
  if (call.op == Op::kLaunch) {
    name = guest->names.InternKernel(call.name);
    if (guest->modules_went.load(std::memory_order_relaxed)) {
      guest->launch_names.Add(call.correlation_id, name.id);
    }
  } else if (!IsNvtx(call.op) || learning()) {
    name = guest->names.Intern(call.name);
  }
  abi::NameShape shape;
  bool shaped = IsNvtx(call.op) && matching_.load(std::memory_order_relaxed);
  if (shaped) shape = ShapeOf(call.name);

  Todo todo = {};
  bool learn = false, after_hole = false, no_end = false;
  uint64_t sequence = 0;
  {
    LockGuard lock(&lock_);
    if (stopped_) return;
    learn = level_ == Level::kLearn;
    after_hole = std::exchange(after_hole_, false);
    sequence = learn ? TakeSequence(guest->ring.header()) : calls_;
    ++calls_;
    if (call.context != nullptr) {
      ++calls_at_[static_cast<uint8_t>(level_) & 3];
      no_end = call.end_ns != 0 && !WaitedForWork(call);
      wait_watch_.OnCall(call.op, call.stream, call.event);
    }
    if (matcher_.rule().generation != 0) {
      if (call.end_ns != 0 && !no_end) WriteSync(call.op, call.begin_ns, call.end_ns);
      if (IsNvtx(call.op) && !shaped) {  // the rule came just now
        shape = ShapeOf(call.name);
        shaped = true;
      }
      const abi::MatchEvent event = EventOf(call, name.hash, shaped ? &shape : nullptr);
      if (step_watch_.assumes() && !steps_watched_) EndUnwatched(call, event, sequence, &todo);
      const uint32_t flags = matcher_.OnEvent(event);
      if (flags != 0) OnMatched(call, sequence, flags, &todo);
      if (IsWork(call.op)) worked_ = true;
    } else if (!acting_ && captures() == 0 &&
               ((calls_ & kPollMask) == 0 || call.begin_ns > polled_ns_ + kPollEveryNs)) {
      polled_ns_ = call.begin_ns;
      todo.poll = control_.Changed();
    }
    if (todo.any()) acting_ = true;
  }
  if (learn) {
    abi::DataRecord record;
    abi::CallRecord& out = record.call;
    out.type = static_cast<uint16_t>(abi::DataType::kCall);
    out.op = static_cast<uint8_t>(call.op);
    out.flags =
        call.flags | (after_hole ? abi::kCallAfterHole : 0) | (no_end ? abi::kCallNoEnd : 0);
    out.name_id = name.id;
    out.sequence = sequence;
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
    guest->ring.WriteData(record);
  }
  if (todo.any()) Act(&call, todo);
  if (todo.boundary) guest->call_watch.Look(&guest->features);
  // The launch that opened the measurement is in it, the one that closed it is not.
  if (guest->counters.kernels().listing()) {
    guest->counters.kernels().OnCall(call.context, call.op, name.id);
  }
}

void CallStream::ReportCost(uint32_t callback_ns) {
  // What inject_benchmark shows for the body of a callback.
  constexpr uint32_t kBodyNs[4] = {0, 46, 19, 19};
  abi::CostEvent event = {};
  {
    LockGuard lock(&lock_);
    if (calls_ == reported_calls_) return;
    reported_calls_ = calls_;
    memcpy(event.calls, calls_at_, sizeof(event.calls));
  }
  event.callback_ns = callback_ns;
  for (int level = 1; level < 4; ++level) {
    event.spent_ns[level] = event.calls[level] * (callback_ns + kBodyNs[level]);
  }
  g_guest->ring.WriteEvent(abi::EventType::kCost, &event, sizeof(event));
}

void CallStream::OnBlocked(const Call& call) {
  if (!Watches(call.op)) return;
  LockGuard lock(&lock_);
  if (stopped_ || matcher_.rule().generation == 0 || !WaitedForWork(call)) return;
  WriteSync(call.op, call.begin_ns, call.end_ns);
}

// Nothing that the program launched is left to do. Another thread's wait may be for what was
// launched before it began, while the boundaries went on. Holds lock_.
bool CallStream::WaitedForWork(const Call& call) const {
  return (boundary_thread_ == 0 || boundary_thread_ == ThreadId()) &&
         wait_watch_.Covers(call.op, call.stream, call.event);
}

// The lock is held.
void CallStream::NoteClock(uint64_t call) {
  abi::ClockStepEvent step;
  if (!g_guest->clock.TakeStep(call, &step)) return;
  g_guest->ring.WriteEvent(abi::EventType::kClockStep, &step, sizeof(step));
}

void CallStream::CheckClock() {
  LockGuard lock(&lock_);
  if (stopped_ || level_ == Level::kReleased) return;
  NoteClock(level_ == Level::kLearn ? g_guest->ring.header()->call_sequence : calls_);
}

void CallStream::WriteSync(Op op, uint64_t begin_ns, uint64_t end_ns) {
  const abi::SyncEvent sync = {
      matcher_.iteration(), begin_ns, end_ns, static_cast<uint8_t>(op), {}};
  g_guest->ring.WriteEvent(abi::EventType::kSync, &sync, sizeof(sync));
}

// Steps are taken for granted: if the call is a boundary, the iteration that ends there had one.
// Holds lock_.
void CallStream::EndUnwatched(const Call& call, const abi::MatchEvent& event, uint64_t sequence,
                              Todo* todo) {
  if (!matcher_.Begins(event)) return;
  if (const uint32_t flags = matcher_.StepNow(); flags != 0) {
    OnMatched(call, sequence, flags, todo);
  }
}

// Keeps account of iterations that had their step, at the boundary behind each. Holds lock_.
void CallStream::CountStep() {
  const uint64_t next = matcher_.iteration();
  if (step_watch_.OnIteration(next, steps_watched_, stepped_, NextRandom()) &&
      step_watch_.unseen() > 0) {
    doubtful_until_ = next - 1;
  }
  steps_watched_ = WatchesSteps();
  stepped_ = false;
}

void CallStream::ReportEvaluation() {
  uint64_t count = 0, first = 0, last = 0;
  {
    LockGuard lock(&lock_);
    if (doubtful_until_ == 0) return;
    count = step_watch_.unseen();
    first = step_watch_.first_unseen();
    last = doubtful_until_;
  }
  g_guest->features.Report(
      abi::Feature::kEvaluation, abi::FeatureState::kFailed, 0,
      "the program has iterations without an optimiser step, as of evaluation, in ranges of the "
      "same name as training, which was seen late: %llu of the iterations %llu to %llu may be "
      "such, too, and counts are upper bounds; give evaluation's ranges another name (where mixed "
      "precision leaves out the steps whose gradients overflow, it may be no more than that)",
      static_cast<unsigned long long>(count), static_cast<unsigned long long>(first),
      static_cast<unsigned long long>(last));
}

// Launches that the rule names are watched now. Holds lock_.
bool CallStream::WatchesSteps() const {
  const uint32_t off = matcher_.rule().watched_ops & ~watched_.load(std::memory_order_relaxed);
  return (off & kWorkOps) == 0 && step_watch_.spared_ops() == 0;
}

// Writes the events of one matched call. Holds lock_.
void CallStream::OnMatched(const Call& call, uint64_t sequence, uint32_t flags, Todo* todo) {
  Guest* guest = g_guest;
  const abi::MatchResult& result = matcher_.result();
  const uint64_t now_ns = call.begin_ns != 0 ? call.begin_ns : guest->clock.NowNs();

  if ((flags & abi::kMatchedMicroLengths) != 0) {
    const abi::MicroBatchEvent micro_batch = {result.micro_iteration,
                                              {result.micro_length[0], result.micro_length[1]},
                                              result.micro_valid,
                                              result.micro_index};
    guest->ring.WriteEvent(abi::EventType::kMicroBatch, &micro_batch, sizeof(micro_batch));
  }
  if ((flags & abi::kMatchedStep) != 0) {
    stepped_ = true;
    const Op op = static_cast<Op>(matcher_.rule().step.op);
    if (op == Op::kLaunch || op == Op::kGraphLaunch) wait_watch_.OnStep(call.stream);
    if (measurement_.kind != Kind::kNone && measurement_.iteration == result.step_iteration) {
      // Lengths that only the step tells.
      if (!measurement_.chosen && ChooseAhead(result.step_length, result.step_valid)) {
        abi::MatchResult step = result;
        step.iteration = result.step_iteration;
        step.valid = result.step_valid;
        memcpy(step.length, result.step_length, sizeof(step.length));
        WriteDecision(step, now_ns, measurement_.config_id);
      }
      measurement_.stepped = true;
      measurement_.length[0] = result.step_length[0];
      measurement_.length[1] = result.step_length[1];
      measurement_.valid = result.step_valid;
      if (!measurement_.chosen ||
          !Plan::Holds(measurement_.entry, result.step_length, result.step_valid)) {
        measurement_.unwanted = true;
      }
    }
    const abi::StepEvent step = {result.step_iteration,
                                 now_ns,
                                 {result.step_length[0], result.step_length[1]},
                                 result.step_valid,
                                 result.step_micro_batches};
    guest->ring.WriteEvent(abi::EventType::kStep, &step, sizeof(step));
  }

  const bool boundary = (flags & abi::kMatchedBoundary) != 0;
  const bool decision = (flags & abi::kMatchedDecision) != 0;
  if (boundary) {
    boundary_thread_ = ThreadId();
    wait_watch_.OnBoundary();
    first_decision_ = true;
    worked_ = false;
    CountStep();
    if (measurement_.kind != Kind::kNone) {
      // While another thread acts, or a stream is being captured (nothing may synchronise then),
      // the window stays open to the next boundary and is then worth nothing.
      if (acting_ || may_capture()) {
        measurement_.unwanted = true;
      } else {
        EndMeasurement(todo);
      }
    }
  }
  const bool counted = todo->close && closing_.kind == Kind::kCounters;  // an iteration is over
  if (boundary || decision) Decide(result, flags, todo);
  if (guest->counters.samples()) {
    const bool recorded = guest->activity.records(KindOfClock(matcher_.rule()));
    if (boundary) guest->counters.pm().OnBoundary(now_ns);
    if (counted) guest->counters.pm().ExpectEnd(recorded);
    if (todo->open && measurement_.kind == Kind::kCounters) {
      guest->counters.pm().ExpectBegin(recorded);
    }
  }

  if (boundary) {
    NoteClock(sequence);
    todo->boundary = true;
    abi::BoundaryEvent event = {};
    event.iteration = result.iteration;
    event.api_ns = now_ns;
    event.call_sequence = sequence;
    event.correlation_id = call.correlation_id;
    event.rule_generation = matcher_.rule().generation;
    event.level = static_cast<uint8_t>(level_);
    if ((flags & abi::kMatchedConfirmed) != 0) event.flags |= abi::kConfirmed;
    if (distorted_) event.flags |= abi::kDistorted;
    if ((call.flags & abi::kCallHostTime) != 0) event.flags |= abi::kHostTime;
    event.stopped_ns = held_ns_ < UINT32_MAX ? static_cast<uint32_t>(held_ns_) : UINT32_MAX;
    guest->ring.WriteEvent(abi::EventType::kBoundary, &event, sizeof(event));
    held_ns_ = 0;
    distorted_ = todo->close || measurement_.kind != Kind::kNone || guest->counters.pm().enabled();
    boundary_monotonic_ns_ = MonotonicNs();
    iteration_ns_ = boundary_ns_ != 0 && now_ns > boundary_ns_ ? now_ns - boundary_ns_ : 0;
    boundary_ns_ = now_ns;
    // What else must be watched, or need not be any more, is switched here, too.
    if (!acting_ && !may_capture()) {
      todo->poll = control_.Changed() || WantedOps() != watched_.load(std::memory_order_relaxed);
    }
  }
  const bool measured = measurement_.kind != Kind::kNone && measurement_.chosen &&
                        measurement_.iteration == result.iteration;
  if (decision) {
    WriteDecision(result, now_ns, measured ? measurement_.config_id : abi::kConfigNone);
  } else if (todo->open && measured) {  // a rule without lengths
    abi::MatchResult none = {};
    none.iteration = result.iteration;
    WriteDecision(none, now_ns, measurement_.config_id);
  }
  if ((flags & abi::kMatchedClock) != 0) {
    if (guest->counters.samples()) guest->counters.pm().OnClock(call.correlation_id);
    const abi::ClockEvent event = {result.iteration, now_ns, call.correlation_id, 0};
    guest->ring.WriteEvent(abi::EventType::kClock, &event, sizeof(event));
    if (guest->activity.records(KindOfClock(matcher_.rule()))) {
      clocked_.fetch_add(1, std::memory_order_relaxed);
    }
  }
}

void CallStream::WriteDecision(const abi::MatchResult& result, uint64_t now_ns,
                               uint16_t config_id) {
  const abi::DecisionEvent event = {
      result.iteration, now_ns, {result.length[0], result.length[1]}, result.valid, config_id, 0};
  g_guest->ring.WriteEvent(abi::EventType::kDecision, &event, sizeof(event));
}

// A rule's lengths may be known at its boundary, before the first kernel (the batch's copy after an
// NVTX range), or only behind kernels. In the last case a window that opened at the decision would
// miss them. Called at the first decision of a candidate. Holds lock_.
void CallStream::LearnWhenDecided(bool boundary) {
  if (decided_ == Decided::kAfterWork) return;
  const Decided now = worked_ && !boundary ? Decided::kAfterWork : Decided::kBeforeWork;
  decided_probes_ = now == probed_ ? decided_probes_ + 1 : 1;
  probed_ = now;
  if (decided_probes_ >= kDecidedProbes) decided_ = now;
}

// The lengths of an iteration whose window opened ahead of them: does an entry want them? Holds
// lock_.
bool CallStream::ChooseAhead(const int64_t length[2], uint32_t valid) {
  const abi::PlanEntry* entry = plan_.Match(length, valid, measurement_.config_id, AlwaysReady);
  if (entry == nullptr) {
    ahead_backoff_ = ahead_backoff_ < kMaxAheadBackoff ? 2 * ahead_backoff_ + 1 : kMaxAheadBackoff;
    // Drawn, not counted: lengths may come in a fixed rhythm.
    ahead_wait_ = NextRandom() % (ahead_backoff_ + 1);
    return false;
  }
  measurement_.entry = *entry;
  measurement_.chosen = true;
  plan_.Take(entry->entry_id);
  ahead_backoff_ = 0;
  return true;
}

// The entry for which a window may open although the lengths are not known yet. Each such window
// disturbs its iteration, and where wanted lengths are rare, most must stay undisturbed.
const abi::PlanEntry* CallStream::EntryAhead() {
  if (ahead_wait_ > 0) {
    --ahead_wait_;
    return nullptr;
  }
  if (g_guest->clock.NowNs() < ahead_not_before_ns_) return nullptr;
  return plan_.Pending(CanMeasure, NextRandom());
}

uint32_t CallStream::NextRandom() {
  random_ = random_ * 1664525 + 1013904223;
  return random_ >> 16;
}

// Takes, keeps or refuses a measurement for the iteration. Holds lock_.
void CallStream::Decide(const abi::MatchResult& result, uint32_t flags, Todo* todo) {
  const abi::Rule& rule = matcher_.rule();
  const bool boundary = (flags & abi::kMatchedBoundary) != 0;
  const bool decision = (flags & abi::kMatchedDecision) != 0;
  const bool first = decision && first_decision_;
  if (decision) first_decision_ = false;
  if (first) LearnWhenDecided(boundary);
  if (boundary) operators_ = kNotWanted;
  if ((decision || rule.length_count == 0) &&
      plan_.Wants(abi::kConfigOperators, result.length, decision ? result.valid : 0)) {
    operators_ = static_cast<int>(rule.length_count);
    operators_length_[0] = result.length[0];
    operators_length_[1] = result.length[1];
  }
  const bool may_act = !acting_ && !may_capture();

  if (measurement_.kind != Kind::kNone && !measurement_.chosen && decision &&
      !ChooseAhead(result.length, result.valid) && may_act) {
    measurement_.unwanted = true;
    EndMeasurement(todo);
    return;
  }
  if (measurement_.kind != Kind::kNone || !may_act) return;

  // A window must hold all the iteration's work: it opens at the boundary, at a decision that comes
  // before any work, or ahead of the decision, and is then given up if nobody wants the lengths.
  const abi::PlanEntry* entry = nullptr;
  bool ahead = false;
  if (first && (boundary || (decided_ != Decided::kAfterWork && !worked_))) {
    entry = plan_.Match(result.length, result.valid, 0, CanMeasure);
  } else if (boundary && rule.length_count == 0) {
    const int64_t none[2] = {0, 0};
    entry = plan_.Match(none, 0, 0, CanMeasure);
  } else if (boundary && decided_ == Decided::kAfterWork) {
    entry = EntryAhead();
    ahead = true;
  }
  if (entry == nullptr) return;
  measurement_ = {};
  measurement_.kind = entry->config_id == abi::kConfigTrace ? Kind::kTrace : Kind::kCounters;
  measurement_.ahead = ahead;
  measurement_.chosen = !ahead;
  measurement_.config_id = entry->config_id;
  measurement_.kernels = g_guest->counters.OfKernels(entry->config_id);
  measurement_.iteration = result.iteration;
  measurement_.entry = *entry;
  if (!ahead) {
    plan_.Take(entry->entry_id);
    measurement_.length[0] = result.length[0];
    measurement_.length[1] = result.length[1];
    measurement_.valid = decision ? result.valid : 0;
  }
  distorted_ = true;
  todo->open = true;
}

int CallStream::WantsOperators(int64_t length[2]) {
  LockGuard lock(&lock_);
  length[0] = operators_length_[0];
  length[1] = operators_length_[1];
  return operators_;
}

void CallStream::Distort() {
  LockGuard lock(&lock_);
  distorted_ = true;
}

// Hands the open measurement to the thread that will close it. Holds lock_.
void CallStream::EndMeasurement(Todo* todo) {
  closing_ = measurement_;
  measurement_ = {};
  distorted_ = true;
  todo->close = true;
}

// The open measurement comes to nothing, and nothing is called for it. Holds lock_.
void CallStream::DropMeasurement() {
  closing_ = measurement_;
  measurement_ = {};
  distorted_ = true;
  if (closing_.chosen) plan_.GiveBack(closing_.entry.entry_id);
}

// What an event asked for, outside the lock, by the one thread that has acting_.
void CallStream::Act(const Call* call, const Todo& todo) {
  if (todo.close) Close(call->context);
  if (todo.open) Open(call);
  if (todo.poll) ApplyControl(true, todo.boundary);
  EndActing();
}

void CallStream::Open(const Call* call) {
  Guest* guest = g_guest;
  const uint64_t begin_ns = guest->clock.NowNs();
  uint32_t status = 0;
  Activity::Seen seen = {};
  if (measurement_.kind == Kind::kTrace) {
    seen = guest->activity.seen();
    guest->activity.SetKindsOfWindow(KindsOfTrace());
    if (!guest->activity.traces()) {  // CUPTI refused, just now
      guest->activity.SetKindsOfWindow(applied_kinds_);
      status = abi::kCountersAborted;
    }
  } else {
    status = guest->counters.Open(guest->ContextOf(call->context), call->context,
                                  measurement_.config_id, iteration_ns_);
  }
  if (status == 0 && (measurement_.kernels || NamesLaunches())) WatchLaunches();
  const uint64_t end_ns = guest->clock.NowNs();
  LockGuard lock(&lock_);
  measurement_.begin_ns = begin_ns;
  measurement_.usual_ns = iteration_ns_;
  measurement_.seen = seen;
  measurement_.stopped_ns = end_ns - begin_ns;
  held_ns_ += end_ns - begin_ns;
  if (status == 0) return;
  if (measurement_.chosen) plan_.GiveBack(measurement_.entry.entry_id);
  closing_ = measurement_;
  measurement_ = {};
  ReportFailure(status);
  WriteWindow(closing_, end_ns, status);
}

// Brings the callbacks in line with whether launches are to be listed. Runs with acting_.
void CallStream::WatchLaunches() {
  {
    LockGuard lock(&lock_);
    watched_.store(WantedOps(), std::memory_order_relaxed);
  }
  g_guest->callbacks.EnableOps(watched_.load(std::memory_order_relaxed));
}

void CallStream::Close(CUcontext known) {
  Guest* guest = g_guest;
  const uint64_t begin_ns = guest->clock.NowNs();
  uint32_t status = abi::kCountersOk;
  if (!closing_.stepped) status = abi::kCountersAborted;
  if (closing_.unwanted) status = abi::kCountersDiscarded;
  if (closing_.captured) status = abi::kCountersNotTold;
  uint32_t closed = 0;
  if (closing_.kind == Kind::kTrace) {
    guest->activity.SetKindsOfWindow(applied_kinds_);
    if (guest->activity.Lost(closing_.seen)) closed = abi::kCountersRangeDropped;
    if (NamesLaunches()) WatchLaunches();
  } else {
    closed = guest->counters.Close(known);
    if (closing_.kernels) WatchLaunches();
  }
  const uint64_t end_ns = guest->clock.NowNs();
  closing_.stopped_ns += end_ns - begin_ns;
  // Kernels that were measured ran one after the other: what the iteration took beyond the one
  // before it is a stop, too.
  const uint64_t took_ns = end_ns - closing_.begin_ns;
  if (closing_.kernels && took_ns > closing_.usual_ns + closing_.stopped_ns) {
    closing_.stopped_ns = took_ns - closing_.usual_ns;
  }
  if (closed != 0) status = closed;
  if (closing_.kind == Kind::kCounters) {
    if (status == abi::kCountersOk) {
      guest->counters.Decode({closing_.iteration,
                              {closing_.length[0], closing_.length[1]},
                              closing_.config_id,
                              closing_.stopped_ns});
    } else {
      guest->counters.Discard();
      ReportFailure(status);
    }
  }
  WriteWindow(closing_, end_ns, status);
  LockGuard lock(&lock_);
  held_ns_ += end_ns - begin_ns;
  if (status == abi::kCountersOk) return;
  if (closing_.chosen) plan_.GiveBack(closing_.entry.entry_id);
  if (!closing_.ahead) return;
  const uint64_t permille =
      wanted_.overhead_permille > 0 ? wanted_.overhead_permille : kDefaultOverheadPermille;
  ahead_not_before_ns_ = end_ns + closing_.stopped_ns * kAheadCostFactor / permille;
}

void CallStream::WriteWindow(const Measurement& measurement, uint64_t end_ns, uint32_t status) {
  const bool trace = measurement.kind == Kind::kTrace;
  abi::WindowEvent window = {};
  window.begin_ns = measurement.begin_ns;
  window.end_ns = end_ns;
  window.iteration = measurement.iteration;
  window.stopped_ns = measurement.stopped_ns;
  window.level = static_cast<uint8_t>(trace ? Level::kTrace : Level::kMark);
  if (status != abi::kCountersOk) window.flags = abi::kWindowGivenUp;
  g_guest->ring.WriteEvent(abi::EventType::kWindow, &window, sizeof(window));
}

// A counter measurement, the one in closing_, that came to nothing.
void CallStream::ReportFailure(uint32_t status) {
  if (closing_.kind != Kind::kCounters) return;
  const abi::CountersEvent event = {
      closing_.iteration, {closing_.length[0], closing_.length[1]}, closing_.config_id, 0, status,
      closing_.stopped_ns};
  g_guest->ring.WriteEvent(abi::EventType::kCounters, &event, sizeof(event));
}

Level CallStream::WantedLevel() const {
  const Level level = static_cast<Level>(wanted_.level);
  switch (level) {
    case Level::kLearn:
    case Level::kTrace:
      return orphaned_ ? Level::kMark : level;  // nobody reads what they write
    case Level::kMark:
    case Level::kReleased:
      return level;
    default:
      return Level::kPaused;
  }
}

// The operations that must reach OnCall. Holds lock_.
uint32_t CallStream::WantedOps() const {
  const bool calls = hold() == Hold::kAll;
  if (level_ == Level::kLearn) return calls ? kAllOps : kHostOps;
  const abi::Rule& rule = matcher_.rule();
  if ((level_ != Level::kMark && level_ != Level::kTrace) || rule.generation == 0) return 0;
  // Half a rule would find other iterations.
  if (!calls) return NeedsDriver(rule) ? 0 : rule.watched_ops & kHostOps;
  // Until it is known whether work comes before the lengths, work is watched, too; the matcher
  // looks only at what the rule names.
  const bool probing = decided_ == Decided::kUnknown && rule.length_count > 0;
  const uint32_t ops = rule.watched_ops & ~step_watch_.spared_ops();
  const bool traced = measurement_.kind == Kind::kTrace || level_ == Level::kTrace;
  const bool names = traced && NamesLaunches();
  return (ops | (rule.clock.op == 0 ? kWaitOps : 0) |
          (probing || measurement_.kernels ? kWorkOps : 0) | (names ? kLaunchOps : 0)) &
         kAllOps;
}

// The rule comes in the middle of a running loop. Holds lock_.
void CallStream::BeginRule(const abi::Rule& rule) {
  matcher_.SetRule(rule, matcher_.iteration(), true);
  step_watch_.Begin(rule);
  steps_watched_ = stepped_ = false;
  decided_ = DecidesLate(rule) ? Decided::kAfterWork : Decided::kUnknown;
  decided_probes_ = 0;
  probed_ = Decided::kUnknown;
  ahead_backoff_ = ahead_wait_ = 0;
  ahead_not_before_ns_ = 0;
}

void CallStream::ApplyControl(bool on_application_thread, bool at_boundary) {
  Guest* guest = g_guest;
  // A torn copy is not used: the daemon is writing, or was killed while it did. What was wanted
  // before still holds.
  const bool news = control_.Changed() && control_.Copy(&incoming_);
  if (news) {
    memcpy(&wanted_, &incoming_, sizeof(wanted_));
    flush_interval_ms_.store(
        wanted_.flush_interval_ms >= kShortestFlushMs ? wanted_.flush_interval_ms : kDefaultFlushMs,
        std::memory_order_relaxed);
    LockGuard lock(&configs_lock_);
    // The first control of a daemon counts as a change: whether and on what chip counters can be
    // had is asked before any is wanted.
    const auto backend = static_cast<abi::CounterBackend>(wanted_.counter_backend);
    if (configs_generation_ == 0 || backend != backend_ ||
        memcmp(configs_, wanted_.config, sizeof(configs_)) != 0) {
      memcpy(configs_, wanted_.config, sizeof(configs_));
      backend_ = backend;
      ++configs_generation_;
    }
  }
  Todo todo = {};
  bool same_iteration = at_boundary;
  {
    LockGuard lock(&lock_);
    if (stopped_) return;
    const Level level = WantedLevel();
    const bool new_rule = wanted_.rule.generation != matcher_.rule().generation;
    const bool watching = Watching(level);
    if (measurement_.kind != Kind::kNone && (new_rule || !watching)) {
      measurement_.unwanted = true;
      if (captures() == 0) EndMeasurement(&todo);  // else at the next boundary, or by Tick
    }
    if (new_rule) BeginRule(wanted_.rule);
    plan_.Apply(wanted_);
    if (new_rule || level != level_) {
      // Without a GPU nothing is switched that could take time; but while nothing was watched,
      // iterations passed.
      distorted_ = distorted_ || !watching || !Watching(level_) ||
                   !guest->host_only.load(std::memory_order_relaxed);
      after_hole_ = after_hole_ || !Watching(level_);
      steps_watched_ = same_iteration = false;
      level_ = level;
      abi::RuleEvent event = {};
      event.api_ns = guest->clock.NowNs();
      event.call_sequence = guest->ring.header()->call_sequence;
      event.next_iteration = matcher_.iteration();
      event.rule_generation = wanted_.rule.generation;
      event.level = static_cast<uint8_t>(level);
      guest->ring.WriteEvent(abi::EventType::kRule, &event, sizeof(event));
    }
    learning_.store(level == Level::kLearn, std::memory_order_relaxed);
    matching_.store(wanted_.rule.generation != 0, std::memory_order_relaxed);
    watched_.store(WantedOps(), std::memory_order_relaxed);
    release_.store(level == Level::kReleased, std::memory_order_relaxed);
  }
  if (todo.close) Close(nullptr);
  SwitchWatching(on_application_thread);
  if (same_iteration) {
    // The thread that begins the iteration is still at its begin: nothing of it has passed unseen.
    LockGuard lock(&lock_);
    steps_watched_ = steps_watched_ || WatchesSteps();
  }
  if (news) guest->helper.Wake();
}

// Activity kinds while iterations are traced. Of a graph that was instantiated while graphs were
// not recorded there is no record as long as they are (CUPTI user guide 2.3.7.2), but there are
// those of its kernels when they are not.
uint32_t CallStream::KindsOfTrace() const {
  const uint32_t kinds = kKindsOfTrace | KindOfClock(matcher_.rule());
  return early_graphs_ ? kinds & ~kKindGraph : kinds;
}

// Traced iterations would lack such graphs, as the rule's clock needs records of whole ones.
bool CallStream::GraphsAreHidden() const {
  return early_graphs_ && KindOfClock(matcher_.rule()) == kKindGraph;
}

// Are kernels named by their launches? See LaunchNames.
bool CallStream::NamesLaunches() const {
  return g_guest->modules_went.load(std::memory_order_relaxed) && g_guest->activity.traces();
}

// Activity kinds outside of windows. Holds lock_.
uint32_t CallStream::WantedKinds() const {
  if (hold() == Hold::kNothing) return 0;
  // Without calls nothing joins the records of single events with them.
  if (hold() == Hold::kRecords && level_ != Level::kTrace) return 0;
  return level_ == Level::kTrace ? KindsOfTrace() : KindsOfLevel(level_, matcher_.rule());
}

// Brings callback ids and activity kinds in line with the level. Runs with acting_.
void CallStream::SwitchWatching(bool on_application_thread) {
  Guest* guest = g_guest;
  const uint64_t begin_ns = guest->clock.NowNs();
  uint32_t kinds = 0;
  abi::WindowEvent window = {};
  {
    LockGuard lock(&lock_);
    applied_kinds_ = WantedKinds();
    kinds = measurement_.kind == Kind::kTrace ? KindsOfTrace() : applied_kinds_;
    window.iteration = matcher_.iteration();
    window.level = static_cast<uint8_t>(level_);
    early_graphs_ = early_graphs_ || ((kinds & kKindGraph) == 0 && guest->knows_contexts());
  }
  guest->callbacks.EnableOps(watched_.load(std::memory_order_relaxed));
  // Waiting for the GPU would break a capture that is under way.
  const bool may_wait = on_application_thread && !may_capture();
  if (!guest->activity.SetKinds(kinds, may_wait)) return;
  window.begin_ns = begin_ns;
  window.end_ns = guest->clock.NowNs();
  window.stopped_ns = on_application_thread ? window.end_ns - begin_ns : 0;
  guest->ring.WriteEvent(abi::EventType::kWindow, &window, sizeof(window));
  LockGuard lock(&lock_);
  held_ns_ += window.stopped_ns;
}

void CallStream::OnCaptureBegin(CUcontext context) {
  captures_.fetch_add(1, std::memory_order_relaxed);  // from now on nothing begins
  captured_.store(true, std::memory_order_relaxed);
  const uint64_t held_ns = g_guest->counters.AwaitUnsafe() + AwaitActing();
  Todo todo = {};
  {
    // A kernel that is measured by itself is waited for, which a capture forbids.
    LockGuard lock(&lock_);
    held_ns_ += held_ns;
    distorted_ = distorted_ || held_ns != 0;
    if (acting_ || !measurement_.kernels) return;
    measurement_.captured = true;
    EndMeasurement(&todo);
    acting_ = true;
  }
  g_guest->counters.KernelsNotTold("a stream capture began in the iteration");
  Call call = {};
  call.context = context;
  Act(&call, todo);
}

// Another thread that acts may wait for the GPU or have CUPTI allocate, which breaks a capture.
// That thread may wait for what this one launches next, or hang in CUPTI: it is waited for a
// quarter of a second, once; where that was not enough several times, nothing is measured any more.
// Nanoseconds that the caller was held.
uint64_t CallStream::AwaitActing() {
  constexpr uint64_t kPatienceNs = 250'000'000;
  const uint64_t begin_ns = MonotonicNs();
  uint64_t held_ns = 0;
  while (held_ns < kPatienceNs) {
    {
      LockGuard lock(&lock_);
      if (!acting_ || stopped_) {
        acting_too_long_ = false;
        return held_ns;
      }
      if (acting_too_long_) return held_ns;
    }
    const timespec pause = {0, 50'000};
    nanosleep(&pause, nullptr);
    held_ns = MonotonicNs() - begin_ns;
  }
  LockGuard lock(&lock_);
  acting_too_long_ = true;
  if (++captures_held_ == kMostCapturesHeld) {
    g_guest->features.Report(
        abi::Feature::kActivity, abi::FeatureState::kFailed, 0,
        "stream captures of the program waited for the profiler, which waited for the GPU: no "
        "iteration is traced or counted in this process any more; iterations are timed as before");
  }
  return held_ns;
}

bool CallStream::may_capture() const {
  if (captures() != 0) return true;
  // Without callbacks captures are not seen.
  if (hold() == Hold::kRecords && captured_.load(std::memory_order_relaxed)) return true;
  const uint64_t blind_until_ns = blind_until_ns_.load(std::memory_order_relaxed);
  return blind_until_ns != 0 && MonotonicNs() < blind_until_ns;
}

void CallStream::OnCaptureEnd() {
  uint32_t count = captures();
  while (count > 0 && !captures_.compare_exchange_weak(count, count - 1)) {
  }
  g_guest->counters.OnCaptureEnd();
}

void CallStream::OnContextDestroy(CUcontext context) {
  Todo todo = {};
  {
    LockGuard lock(&lock_);
    // A trace window may stay: it belongs to no context.
    if (acting_ || measurement_.kind != Kind::kCounters) return;
    EndMeasurement(&todo);
    acting_ = true;
  }
  Call call = {};
  call.context = context;
  Act(&call, todo);
}

void CallStream::Tick() {
  const uint64_t now_ns = MonotonicNs();
  const bool orphaned = control_.HeartbeatAgeNs() > kOrphanedAfterNs &&
                        now_ns - start_monotonic_ns_ > kOrphanedAfterNs;
  {
    LockGuard lock(&lock_);
    if (stopped_ || acting_) return;
    // Without a rule every call counts as progress, else only a boundary: a rule that does not fit
    // any more must not keep its successor out.
    if (matcher_.rule().generation == 0 && calls_ != ticked_calls_) {
      ticked_calls_ = calls_;
      boundary_monotonic_ns_ = now_ns;
    }
    const bool watching = watched_.load(std::memory_order_relaxed) != 0;
    const bool loop_runs = watching && now_ns - boundary_monotonic_ns_ < kIdleNs;
    // A range that could not be closed when the watching ended.
    const bool left_open = !watching && measurement_.kind != Kind::kNone && captures() == 0;
    if (orphaned == orphaned_ && !left_open && (loop_runs || !control_.Changed())) return;
    orphaned_ = orphaned;
    acting_ = true;
  }
  ApplyControl(false);
  EndActing();
}

bool CallStream::BeginActing() {
  LockGuard lock(&lock_);
  if (stopped_ || acting_) return false;
  acting_ = true;
  return true;
}

void CallStream::EndActing() {
  LockGuard lock(&lock_);
  acting_ = false;
}

bool CallStream::ReleaseCupti(bool may_wait) {
  Guest* guest = g_guest;
  if (!BeginActing()) return false;
  if (hold() == Hold::kNothing) {
    NoteStandDown(StandsDown());
    EndActing();
    return true;
  }
  Todo todo = {};
  bool dropped = false;
  {
    LockGuard lock(&lock_);
    if (measurement_.kind != Kind::kNone && captures() == 0) {
      measurement_.unwanted = true;
      EndMeasurement(&todo);
    } else if (measurement_.kind == Kind::kTrace) {
      // Nobody may wait now; and the window must not be closed within the other tool's session.
      DropMeasurement();
      dropped = true;
    }
  }
  if (todo.close) Close(nullptr);
  if (dropped) WriteWindow(closing_, guest->clock.NowNs(), abi::kCountersAborted);
  // In a capture a range cannot be closed; and what the helper thread decodes is waited for.
  if (measurement_.kind == Kind::kCounters || !guest->counters.Rest()) {
    EndActing();
    return false;
  }
  {
    LockGuard lock(&lock_);
    hold_.store(Hold::kNothing);
    distorted_ = true;
    steps_watched_ = false;
    watched_.store(WantedOps(), std::memory_order_relaxed);
  }
  SwitchWatching(may_wait);
  // A buffer of ours that stayed would take records of the next tool with it.
  guest->activity.Flush(true);
  guest->callbacks.Unsubscribe();
  NoteStandDown(StandsDown());
  EndActing();
  return true;
}

bool CallStream::TakeCupti(bool may_wait) {
  if (!BeginActing()) return false;
  NoteStandDown(StandsDown());
  if (g_guest->has_cupti && hold() != Hold::kAll && !StandsDown() && !release_wanted()) {
    TakeNow(may_wait);
  }
  EndActing();
  return true;
}

// Runs with acting_.
void CallStream::TakeNow(bool may_wait) {
  Guest* guest = g_guest;
  const Hold before = hold();
  const bool first = !guest->measuring;
  const bool records = before == Hold::kRecords || (stood_down_ && !first);
  const uint32_t result = guest->callbacks.Subscribe(!records);
  const bool held = result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  may_be_had_.store(held || result == CUPTI_SUCCESS, std::memory_order_relaxed);
  if (held) anothers_ = true;
  if (result != CUPTI_SUCCESS && (!records || before == Hold::kRecords)) return;
  const bool clock_claimed = guest->clock.Claim();
  if (first) guest->StartMeasuring();
  if (!first || anothers_ || stood_down_ || clock_claimed) {
    // Nobody saw what the program did while CUPTI was another tool's.
    early_graphs_ = true;
    guest->modules_went.store(guest->cupti.Has(kKeepsNamesOfUnloadedModules));
    guest->activity.TakeBuffers(clock_claimed);
    guest->counters.Renew();
  }
  if (result == CUPTI_SUCCESS) {
    stood_down_ = false;
    guest->ForgetContexts();
    captures_.store(0, std::memory_order_relaxed);  // what ended meanwhile was not seen
    // One that began unseen may go on still, in a program that captures.
    if (captured_.load(std::memory_order_relaxed)) {
      blind_until_ns_.store(MonotonicNs() + kBlindNs, std::memory_order_relaxed);
    }
  } else if (before == Hold::kNothing) {
    guest->features.Report(
        abi::Feature::kCallbacks, abi::FeatureState::kIgnored, result,
        "%s has stopped recording but still holds CUPTI's callbacks: the program's calls are not "
        "seen, iterations are found by NVTX ranges and program marks, and only their GPU work is "
        "measured; CUPTI is asked for again every few seconds",
        holder_);
  }
  {
    LockGuard lock(&lock_);
    hold_.store(result == CUPTI_SUCCESS ? Hold::kAll : Hold::kRecords);
    distorted_ = after_hole_ = true;
    steps_watched_ = false;
    watched_.store(WantedOps(), std::memory_order_relaxed);
  }
  SwitchWatching(may_wait);
}

bool CallStream::StillHeld() {
  Guest* guest = g_guest;
  if (hold() != Hold::kAll || !BeginActing()) return true;
  const bool ours = guest->callbacks.StillOurs();
  if (!ours) {
    guest->counters.Renew();
    uint64_t since_ns = 0;
    {
      LockGuard lock(&lock_);
      DropMeasurement();
      hold_.store(Hold::kNothing);
      distorted_ = after_hole_ = true;
      steps_watched_ = false;
      watched_.store(WantedOps(), std::memory_order_relaxed);
      since_ns = boundary_ns_;
    }
    if (closing_.kind != Kind::kNone) {
      ReportFailure(abi::kCountersAborted);
      WriteWindow(closing_, guest->clock.NowNs(), abi::kCountersAborted);
    }
    snprintf(holder_, sizeof(holder_), "a tool in this process that ended CUPTI");
    BeginStandDown(since_ns);
    stood_down_ = false;  // who has CUPTI now has not stopped recording
  }
  EndActing();
  return ours;
}

// Since `since_ns`, for holder_. Runs with acting_.
void CallStream::BeginStandDown(uint64_t since_ns) {
  stand_down_ns_ = since_ns != 0 ? since_ns : 1;
  stood_down_ = true;
  WriteStandDown(0);
}

// Tells the daemon from when to when CUPTI was left to another profiler. Runs with acting_.
void CallStream::NoteStandDown(bool down) {
  if (down == (stand_down_ns_ != 0)) return;
  Guest* guest = g_guest;
  if (down && guest->host_only.load()) return;  // there is nothing to leave
  const uint64_t now_ns = guest->clock.NowNs();
  if (!down) {
    WriteStandDown(now_ns);
    stand_down_ns_ = 0;
    return;
  }
  CopyHolder(holder_, sizeof(holder_));
  guest->features.Report(abi::Feature::kCallbacks, abi::FeatureState::kIgnored, 0,
                         "standing down for %s, which has CUPTI to itself: until it ends, "
                         "iterations are found by NVTX ranges and program marks only, and nothing "
                         "is measured",
                         holder_);
  BeginStandDown(now_ns);
}

void CallStream::WriteStandDown(uint64_t end_ns) {
  abi::StandDownEvent event = {};
  {
    LockGuard lock(&lock_);
    event.iteration = matcher_.iteration();
  }
  event.begin_ns = stand_down_ns_;
  event.end_ns = end_ns;
  event.length = static_cast<uint32_t>(strlen(holder_));
  g_guest->ring.WriteEvent(abi::EventType::kStandDown, &event, sizeof(event), holder_,
                           event.length);
}

void CallStream::Stop() {
  watched_.store(0, std::memory_order_relaxed);
  // A program may call exit() in a signal handler that interrupted this very thread while it held
  // the lock; the process must end all the same.
  if (!lock_.TryLock(kStopPatienceNs)) return;
  stopped_ = true;
  if (measurement_.kind != Kind::kNone && !acting_) {
    closing_ = measurement_;
    measurement_ = {};
    ReportFailure(abi::kCountersAborted);
  }
  lock_.Unlock();
}

bool CallStream::WantsCounters() {
  LockGuard lock(&lock_);
  return measurement_.kind == Kind::kCounters || plan_.Pending(CanCount, 0) != nullptr;
}

uint32_t CallStream::CopyConfigs(abi::MetricConfig configs[abi::kMaxConfigs],
                                 abi::CounterBackend* backend) {
  LockGuard lock(&configs_lock_);
  *backend = backend_;
  memcpy(configs, configs_, sizeof(configs_));
  return configs_generation_;
}

}  // namespace seqpoint::inject
