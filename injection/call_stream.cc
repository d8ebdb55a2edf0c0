#include "injection/call_stream.h"

#include <string.h>

#include "injection/activity.h"
#include "injection/guest.h"

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
// Iterations between two windows opened before the lengths were known, after several for nothing.
constexpr uint32_t kMaxLateBackoff = 31;
constexpr uint32_t kAllOps = ((1u << static_cast<uint32_t>(Op::kCount)) - 1) & ~1u;

uint16_t Clamp16(uint32_t value) { return value < 0xFFFF ? static_cast<uint16_t>(value) : 0xFFFF; }

bool AlwaysReady(uint16_t) { return true; }
bool CanMeasure(uint16_t config_id) {
  return config_id == abi::kConfigTrace ? g_guest->activity.ready()
                                        : g_guest->counters.Ready(config_id);
}

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
uint32_t KindsOfLevel(Level level, const abi::Rule& rule) {
  switch (level) {
    case Level::kLearn:
      return kKindsOfLearn;
    case Level::kTrace:
      return kKindsOfTrace;
    case Level::kMark:
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
    default:
      return 0;
  }
}

uint32_t OpsOfLevel(Level level, const abi::Rule& rule) {
  if (level == Level::kLearn) return kAllOps;
  if (level != Level::kMark && level != Level::kTrace) return 0;
  return rule.generation == 0 ? 0 : rule.watched_ops & kAllOps;
}

}  // namespace

void CallStream::Start() {
  start_monotonic_ns_ = MonotonicNs();
  boundary_monotonic_ns_ = start_monotonic_ns_;
  LockGuard guard(&lock_);
  level_ = Level::kLearn;
  wanted_.level = static_cast<uint8_t>(Level::kLearn);
  learning_.store(true, std::memory_order_relaxed);
  watched_.store(kAllOps, std::memory_order_relaxed);
  applied_kinds_ = kKindsOfLearn;
  abi::RuleEvent event = {};
  event.api_ns = g_guest->clock.NowNs();
  event.level = static_cast<uint8_t>(level_);
  g_guest->ring.WriteEvent(abi::EventType::kRule, &event, sizeof(event));
}

void CallStream::OnCall(const Call& call) {
  Guest* guest = g_guest;
  // The ring is not there in a child that was forked past every handler.
  if (!Watches(call.op) || !guest->ring.active()) return;
  const NameRef name = call.op == Op::kLaunch ? guest->names.InternKernel(call.name)
                                              : guest->names.Intern(call.name);
  // NVTX names are matched by their shape; that takes longer than anything that holds the lock.
  abi::NameShape shape;
  bool shaped = IsNvtx(call.op) && matching_.load(std::memory_order_relaxed);
  if (shaped) shape = ShapeOf(call.name);

  Todo todo = {};
  bool learn = false;
  uint64_t sequence = 0;
  {
    LockGuard lock(&lock_);
    if (stopped_) return;
    learn = level_ == Level::kLearn;
    sequence = learn ? TakeSequence(guest->ring.header()) : calls_;
    ++calls_;
    if (matcher_.rule().generation != 0) {
      if (call.end_ns != 0) WriteSync(call.op, call.begin_ns, call.end_ns);
      if (IsNvtx(call.op) && !shaped) {  // the rule came just now
        shape = ShapeOf(call.name);
        shaped = true;
      }
      const uint32_t flags = matcher_.OnEvent(EventOf(call, name.hash, shaped ? &shape : nullptr));
      if (flags != 0) OnMatched(call, sequence, flags, &todo);
    } else if (!acting_ &&
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
    out.flags = call.flags;
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
}

void CallStream::OnBlocked(Op op, uint64_t begin_ns, uint64_t end_ns) {
  if (!Watches(op)) return;
  LockGuard lock(&lock_);
  if (stopped_ || matcher_.rule().generation == 0) return;
  WriteSync(op, begin_ns, end_ns);
}

void CallStream::WriteSync(Op op, uint64_t begin_ns, uint64_t end_ns) {
  const abi::SyncEvent sync = {
      matcher_.iteration(), begin_ns, end_ns, static_cast<uint8_t>(op), {}};
  g_guest->ring.WriteEvent(abi::EventType::kSync, &sync, sizeof(sync));
}

// Writes the events of one matched call. Holds lock_.
void CallStream::OnMatched(const Call& call, uint64_t sequence, uint32_t flags, Todo* todo) {
  Guest* guest = g_guest;
  const abi::MatchResult& result = matcher_.result();
  const uint64_t now_ns = call.begin_ns != 0 ? call.begin_ns : guest->clock.NowNs();

  if ((flags & abi::kMatchedStep) != 0) {
    if (measurement_.kind != Kind::kNone && measurement_.iteration == result.step_iteration) {
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
                                 result.step_micro_steps};
    guest->ring.WriteEvent(abi::EventType::kStep, &step, sizeof(step));
  }

  const bool boundary = (flags & abi::kMatchedBoundary) != 0;
  if (boundary) {
    first_decision_ = true;
    if (measurement_.kind != Kind::kNone) {
      // While another thread acts, or a stream is being captured (nothing may synchronise then),
      // the window stays open to the next boundary and is then worth nothing.
      if (acting_ || captures() != 0) {
        measurement_.unwanted = true;
      } else {
        EndMeasurement(todo);
      }
    }
  }
  if (boundary || (flags & abi::kMatchedDecision) != 0) Decide(result, flags, todo);

  if (boundary) {
    abi::BoundaryEvent event = {};
    event.iteration = result.iteration;
    event.api_ns = now_ns;
    event.call_sequence = sequence;
    event.correlation_id = call.correlation_id;
    event.rule_generation = matcher_.rule().generation;
    event.level = static_cast<uint8_t>(level_);
    if ((flags & abi::kMatchedConfirmed) != 0) event.flags |= abi::kConfirmed;
    if (distorted_) event.flags |= abi::kDistorted;
    event.stopped_ns = held_ns_ < UINT32_MAX ? static_cast<uint32_t>(held_ns_) : UINT32_MAX;
    guest->ring.WriteEvent(abi::EventType::kBoundary, &event, sizeof(event));
    held_ns_ = 0;
    distorted_ = todo->close || measurement_.kind != Kind::kNone;
    boundary_monotonic_ns_ = MonotonicNs();
    if (!acting_) todo->poll = control_.Changed();
  }
  const bool measured = measurement_.kind != Kind::kNone && measurement_.chosen &&
                        measurement_.iteration == result.iteration;
  if ((flags & abi::kMatchedDecision) != 0) {
    const abi::DecisionEvent event = {result.iteration,
                                      now_ns,
                                      {result.length[0], result.length[1]},
                                      result.valid,
                                      measured ? measurement_.config_id : abi::kConfigNone,
                                      0};
    guest->ring.WriteEvent(abi::EventType::kDecision, &event, sizeof(event));
  } else if (todo->open && measured) {  // a rule without lengths
    const abi::DecisionEvent event = {result.iteration,       now_ns, {0, 0}, 0,
                                      measurement_.config_id, 0};
    guest->ring.WriteEvent(abi::EventType::kDecision, &event, sizeof(event));
  }
  if ((flags & abi::kMatchedClock) != 0) {
    const abi::ClockEvent event = {result.iteration, now_ns, call.correlation_id, 0};
    guest->ring.WriteEvent(abi::EventType::kClock, &event, sizeof(event));
    clocked_.fetch_add(1, std::memory_order_relaxed);
  }
}

// Takes, keeps or refuses a measurement for the iteration. Holds lock_.
void CallStream::Decide(const abi::MatchResult& result, uint32_t flags, Todo* todo) {
  const abi::Rule& rule = matcher_.rule();
  const bool boundary = (flags & abi::kMatchedBoundary) != 0;
  const bool decision = (flags & abi::kMatchedDecision) != 0;
  const bool first = decision && first_decision_;
  if (decision) first_decision_ = false;

  if (measurement_.kind != Kind::kNone && !measurement_.chosen && decision) {
    const abi::PlanEntry* entry =
        plan_.Match(result.length, result.valid, measurement_.config_id, AlwaysReady);
    if (entry != nullptr) {
      measurement_.entry = *entry;
      measurement_.chosen = true;
      plan_.Take(entry->entry_id);
      late_backoff_ = 0;
    } else if (!acting_ && captures() == 0) {
      measurement_.unwanted = true;
      late_backoff_ = late_backoff_ < kMaxLateBackoff ? 2 * late_backoff_ + 1 : kMaxLateBackoff;
      // Drawn, not counted: lengths may come in a fixed rhythm.
      late_random_ = late_random_ * 1664525 + 1013904223;
      late_wait_ = (late_random_ >> 16) % (late_backoff_ + 1);
      EndMeasurement(todo);
      return;
    }
  }
  if (measurement_.kind != Kind::kNone || acting_ || captures() != 0) return;

  // Where the lengths come only after several micro-steps, the window must open before them, with
  // the configuration that waits first; it is given up at the decision if nobody wants the lengths.
  const bool late = rule.micro_steps > 1;
  const abi::PlanEntry* entry = nullptr;
  if (first && (!late || boundary)) {
    entry = plan_.Match(result.length, result.valid, 0, CanMeasure);
  } else if (boundary && rule.length_count == 0) {
    const int64_t none[2] = {0, 0};
    entry = plan_.Match(none, 0, 0, CanMeasure);
  } else if (boundary && late) {
    // Each window disturbs its iteration; where wanted lengths are rare, most must stay
    // undisturbed.
    if (late_wait_ > 0) {
      --late_wait_;
      return;
    }
    entry = plan_.Pending(CanMeasure);
  }
  if (entry == nullptr) return;
  const bool chosen = decision || rule.length_count == 0;
  measurement_ = {};
  measurement_.kind = entry->config_id == abi::kConfigTrace ? Kind::kTrace : Kind::kCounters;
  measurement_.chosen = chosen;
  measurement_.config_id = entry->config_id;
  measurement_.iteration = result.iteration;
  measurement_.entry = *entry;
  if (chosen) {
    plan_.Take(entry->entry_id);
    measurement_.length[0] = result.length[0];
    measurement_.length[1] = result.length[1];
    measurement_.valid = decision ? result.valid : 0;
  }
  distorted_ = true;
  todo->open = true;
}

// Hands the open measurement to the thread that will close it. Holds lock_.
void CallStream::EndMeasurement(Todo* todo) {
  closing_ = measurement_;
  measurement_ = {};
  distorted_ = true;
  todo->close = true;
}

// What an event asked for, outside the lock, by the one thread that has acting_.
void CallStream::Act(const Call* call, const Todo& todo) {
  if (todo.close) Close();
  if (todo.open) Open(call);
  if (todo.poll) ApplyControl(true);
  LockGuard lock(&lock_);
  acting_ = false;
}

void CallStream::Open(const Call* call) {
  Guest* guest = g_guest;
  const uint64_t begin_ns = guest->clock.NowNs();
  uint32_t status = 0;
  if (measurement_.kind == Kind::kTrace) {
    guest->activity.SetKinds(applied_kinds_ | kKindsOfTrace, true);
  } else {
    status = guest->counters.Open(guest->ContextOf(call->context), measurement_.config_id);
  }
  const uint64_t end_ns = guest->clock.NowNs();
  LockGuard lock(&lock_);
  measurement_.begin_ns = begin_ns;
  measurement_.stopped_ns = end_ns - begin_ns;
  held_ns_ += end_ns - begin_ns;
  if (status != 0) {
    plan_.GiveBack(measurement_.entry.entry_id);
    closing_ = measurement_;
    measurement_ = {};
    ReportCounters(status);
  }
}

void CallStream::Close() {
  Guest* guest = g_guest;
  const uint64_t begin_ns = guest->clock.NowNs();
  uint32_t status = abi::kCountersOk;
  if (!closing_.stepped) status = abi::kCountersAborted;
  if (closing_.unwanted) status = abi::kCountersDiscarded;
  uint32_t closed = 0;
  if (closing_.kind == Kind::kTrace) {
    guest->activity.SetKinds(applied_kinds_, true);
  } else {
    closed = guest->counters.Close();
  }
  const uint64_t end_ns = guest->clock.NowNs();
  closing_.stopped_ns += end_ns - begin_ns;
  if (closed != 0) status = closed;
  if (closing_.kind == Kind::kCounters) {
    if (status == abi::kCountersOk) {
      guest->counters.Decode({closing_.iteration,
                              {closing_.length[0], closing_.length[1]},
                              closing_.config_id,
                              closing_.stopped_ns});
    } else {
      guest->counters.Discard();
      ReportCounters(status);
    }
  }
  const abi::WindowEvent window = {
      closing_.begin_ns,
      end_ns,
      closing_.iteration,
      closing_.stopped_ns,
      static_cast<uint8_t>(closing_.kind == Kind::kTrace ? Level::kTrace : Level::kMark),
      {}};
  guest->ring.WriteEvent(abi::EventType::kWindow, &window, sizeof(window));
  LockGuard lock(&lock_);
  held_ns_ += end_ns - begin_ns;
  if (status != abi::kCountersOk && closing_.chosen) plan_.GiveBack(closing_.entry.entry_id);
}

// A counter measurement, the one in closing_, that came to nothing.
void CallStream::ReportCounters(uint32_t status) {
  if (closing_.kind != Kind::kCounters) return;
  const abi::CountersEvent event = {
      closing_.iteration, {closing_.length[0], closing_.length[1]}, closing_.config_id, 0, status,
      closing_.stopped_ns};
  g_guest->ring.WriteEvent(abi::EventType::kCounters, &event, sizeof(event));
}

Level CallStream::WantedLevel() const {
  const Level level = static_cast<Level>(wanted_.level);
  // Nobody reads what learning and tracing write.
  if (orphaned_ && (level == Level::kLearn || level == Level::kTrace)) return Level::kMark;
  return level == Level::kOff ? Level::kPaused : level;
}

void CallStream::ApplyControl(bool on_application_thread) {
  Guest* guest = g_guest;
  if (control_.Changed()) {
    // A torn copy is not used; the daemon is writing and the next boundary comes soon.
    if (!control_.Copy(&incoming_)) return;
    memcpy(&wanted_, &incoming_, sizeof(wanted_));
    flush_interval_ms_.store(
        wanted_.flush_interval_ms >= 10 ? wanted_.flush_interval_ms : kDefaultFlushMs,
        std::memory_order_relaxed);
    LockGuard lock(&configs_lock_);
    if (memcmp(configs_, wanted_.config, sizeof(configs_)) != 0) {
      memcpy(configs_, wanted_.config, sizeof(configs_));
      ++configs_generation_;
    }
  }
  Todo todo = {};
  {
    LockGuard lock(&lock_);
    if (stopped_) return;
    const Level level = WantedLevel();
    const bool new_rule = wanted_.rule.generation != matcher_.rule().generation;
    const bool watching = level != Level::kPaused && level != Level::kReleased;
    if (measurement_.kind != Kind::kNone && (new_rule || !watching)) {
      measurement_.unwanted = true;
      // A counter range can only be ended by a thread of the application: at the next boundary.
      if (on_application_thread || measurement_.kind == Kind::kTrace) EndMeasurement(&todo);
    }
    // The rule comes in the middle of a running loop.
    if (new_rule) matcher_.SetRule(wanted_.rule, matcher_.iteration(), true);
    plan_.Apply(wanted_);
    if (new_rule || level != level_) {
      level_ = level;
      distorted_ = true;
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
    watched_.store(OpsOfLevel(level, wanted_.rule), std::memory_order_relaxed);
    release_.store(level == Level::kReleased, std::memory_order_relaxed);
  }
  if (todo.close) Close();
  SwitchWatching(on_application_thread);
  guest->helper.Wake();
}

// Brings callback ids and activity kinds in line with the level. Runs with acting_.
void CallStream::SwitchWatching(bool on_application_thread) {
  Guest* guest = g_guest;
  const uint64_t begin_ns = guest->clock.NowNs();
  applied_kinds_ = KindsOfLevel(level_, wanted_.rule);
  const bool tracing = measurement_.kind == Kind::kTrace;
  guest->callbacks.EnableOps(watched_.load(std::memory_order_relaxed));
  // Waiting for the GPU would break a capture that is under way.
  const bool may_wait = on_application_thread && captures() == 0;
  const bool held =
      guest->activity.SetKinds(applied_kinds_ | (tracing ? kKindsOfTrace : 0), may_wait);
  if (!held) return;
  const uint64_t end_ns = guest->clock.NowNs();
  const abi::WindowEvent window = {
      begin_ns, end_ns, matcher_.iteration(), end_ns - begin_ns, static_cast<uint8_t>(level_), {}};
  guest->ring.WriteEvent(abi::EventType::kWindow, &window, sizeof(window));
  LockGuard lock(&lock_);
  if (on_application_thread) held_ns_ += end_ns - begin_ns;
}

void CallStream::OnContextDestroy() {
  Todo todo = {};
  {
    LockGuard lock(&lock_);
    // A trace window may stay: it belongs to no context.
    if (acting_ || measurement_.kind != Kind::kCounters) return;
    EndMeasurement(&todo);
    acting_ = true;
  }
  Act(nullptr, todo);
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
    if (orphaned == orphaned_ && (loop_runs || !control_.Changed())) return;
    orphaned_ = orphaned;
    acting_ = true;
  }
  ApplyControl(false);
  LockGuard lock(&lock_);
  acting_ = false;
}

void CallStream::Resume() {
  {
    LockGuard lock(&lock_);
    if (stopped_ || acting_) return;  // whoever acts switches everything on
    acting_ = true;
  }
  SwitchWatching(false);
  LockGuard lock(&lock_);
  acting_ = false;
}

void CallStream::Stop() {
  watched_.store(0, std::memory_order_relaxed);
  LockGuard lock(&lock_);
  stopped_ = true;
  if (measurement_.kind == Kind::kNone || acting_) return;
  closing_ = measurement_;
  measurement_ = {};
  ReportCounters(abi::kCountersAborted);
}

uint32_t CallStream::CopyConfigs(abi::MetricConfig configs[abi::kMaxConfigs]) {
  LockGuard lock(&configs_lock_);
  memcpy(configs, configs_, sizeof(configs_));
  return configs_generation_;
}

}  // namespace seqpoint::inject
