// The rule matcher: says for each call whether it begins an iteration, tells its length, or ends
// its optimiser step. The injected library runs it on live calls, the daemon on learn records: the
// same code, so both agree. What a rule means, with examples: docs/internals/iteration-rules.md.
//
//   Matcher matcher;
//   matcher.SetRule(rule, /*next_iteration=*/0, /*inside=*/true);
//   uint32_t flags = matcher.OnEvent(event);      // 0 for almost every call
//   if (flags & kMatchedStep) Emit(StepEvent ... matcher.result());
//   if (flags & kMatchedBoundary) Emit(BoundaryEvent ...);   // in the order of MatchedFlags
//
// Freestanding: no allocation, no exceptions, no library calls; trivially copyable, so a copy is a
// snapshot. O(1) per event. Threading: none of its own; calls of several threads need one lock and
// come in the order in which the lock was taken.
#ifndef SEQPOINT_INJECTION_ABI_MATCHER_H_
#define SEQPOINT_INJECTION_ABI_MATCHER_H_

#include <stddef.h>
#include <stdint.h>

#include "injection/abi/control.h"
#include "injection/abi/names.h"
#include "injection/abi/records.h"

namespace seqpoint::abi {

// One call, as the matcher sees it. Fields that an operation does not have are 0.
struct MatchEvent {
  uint8_t op;          // Op
  bool has_payload;    // `bytes` of an NVTX call is its payload
  uint8_t digit_runs;  // entries of `digits`
  uint32_t grid_x, grid_y, grid_z;
  uint64_t name_hash;     // NameHash; for NVTX calls NameShape::hash
  uint64_t bytes;         // as CallRecord::bytes
  uint64_t stream;        // as CallRecord::stream
  const int64_t* digits;  // NVTX: NameShape::digits; need not outlive the call
};

// Where the lengths of an iteration are sums over its micro-batches, those of each are reported,
// too.
constexpr bool SumsLengths(const Rule& rule) {
  bool sums = rule.micro_batches > 1 && rule.length_count > 0;
  for (uint32_t i = 0; i < rule.length_count && i < 2; ++i) {
    sums = sums && rule.length[i].fold == static_cast<uint8_t>(LengthFold::kSum);
  }
  return sums;
}

// Bits of OnEvent's answer; several may come at once and are meant in this order.
enum MatchedFlags : uint32_t {
  kMatchedMicroLengths = 64,  // a micro-batch is over: `micro_batch` (SumsLengths)
  kMatchedStep = 1,       // iteration `step.iteration` is a training iteration and has its lengths
  kMatchedBoundary = 2,   // a candidate for the begin of `iteration`
  kMatchedConfirmed = 4,  // with kMatchedBoundary: the rule has no step, the candidate is the begin
  kMatchedMicroBatch = 8,  // a further micro-batch of `iteration` begins; no boundary
  kMatchedDecision = 16,   // the lengths of `iteration` are known, or known again
  kMatchedClock = 32,      // this event's activity record carries the GPU start of `iteration`
};

struct MatchResult {
  uint64_t iteration;
  int64_t length[2];            // with kMatchedDecision
  uint32_t valid;               // bit i: length[i]
  StepEvent step;               // with kMatchedStep; its time is the caller's to add
  MicroBatchEvent micro_batch;  // with kMatchedMicroLengths
};

class Matcher {
 public:
  Matcher() = default;
  explicit Matcher(const Rule& rule) { SetRule(rule, 0, false); }

  // Forgets the old rule and begins with `next_iteration`. `inside`: the rule comes in the middle
  // of a running loop, so the first step may end an iteration whose begin this matcher never saw
  // (it is then reported with micro_batches 0 and no lengths).
  void SetRule(Rule rule, uint64_t next_iteration, bool inside);

  // The next call begins an iteration: as if a step had come before it.
  void ExpectBegin() {
    if (phase_ == Phase::kNone) phase_ = Phase::kStepped;
  }

  // Answers MatchedFlags and, when it is not 0, fills result().
  uint32_t OnEvent(const MatchEvent& event) {
    if ((rule_.watched_ops >> (event.op & 31) & 1) == 0) return 0;
    const uint32_t flags = (pattern_ops_ >> (event.op & 31) & 1) != 0 ? Evaluate(event) : 0;
    previous_op_ = event.op;
    previous_name_hash_ = event.name_hash;
    return flags;
  }

  // Is this call a boundary?
  bool Begins(const MatchEvent& event) const {
    return rule_.boundary.every <= 1 && Matches(rule_.boundary, event);
  }
  // The step of the open iteration is taken for granted: as if its events had come. Answers as
  // OnEvent does.
  uint32_t StepNow() {
    if (!open()) return 0;
    phase_ = Phase::kConfirmed;
    const uint32_t flags = OnStep();
    result_.iteration = iteration_;
    return flags;
  }

  const MatchResult& result() const { return result_; }
  const Rule& rule() const { return rule_; }
  // Number of the iteration that is open, or of the next one when none is.
  uint64_t iteration() const { return iteration_; }
  // True from a candidate to its step (without a step pattern: from the first boundary on).
  bool open() const { return phase_ == Phase::kCandidate || phase_ == Phase::kConfirmed; }

 private:
  enum class Phase : uint8_t {
    kNone,       // nothing seen yet
    kInside,     // nothing seen yet, but an iteration may have begun before the rule came
    kCandidate,  // a candidate is open
    kConfirmed,  // ... and it is training
    kStepped,    // the optimiser step came; the next candidate ends the iteration
  };
  struct Value {
    bool known;
    int64_t value;
  };
  struct Reading {
    uint32_t occurrences;  // of the pattern since the candidate; kCallCount: while it is open
    Value last;            // read since the candidate
    Value kept[2];         // read in the last confirmed micro-batch, and in the one before that
    Value folded;          // over the micro-batches of the open iteration
  };

  bool Matches(const EventPattern& pattern, const MatchEvent& event) const;
  static constexpr uint32_t kUncounted = ~0u;
  static bool Take(const EventPattern& pattern, const MatchEvent& event, uint32_t* count);
  static uint64_t Read(const LengthSource& source, const MatchEvent& event);
  static void Fold(uint8_t fold, int64_t value, Value* folded);
  uint32_t Evaluate(const MatchEvent& event);
  uint32_t OnStep();
  uint32_t OnCandidate();
  bool ReadLengths(const MatchEvent& event);
  bool LengthPending() const;
  uint32_t Lengths(int64_t length[2]) const;
  uint32_t EndMicroBatch();

  Rule rule_ = {};
  uint32_t pattern_ops_ = 0;     // that some pattern of the rule names
  uint32_t length_ops_ = 0;      // that one of a length names
  uint32_t boundary_count_ = 0;  // occurrences since the last step
  uint32_t confirm_count_ = 0, step_count_ = 0, clock_count_ = 0;
  uint64_t iteration_ = 0;
  uint64_t previous_name_hash_ = 0;
  uint32_t micro_batches_ = 0;  // candidates of the open iteration
  uint8_t previous_op_ = 0;
  Phase phase_ = Phase::kNone;
  bool clock_seen_ = false;  // since the last candidate or step
  Reading reading_[2] = {};
  MatchResult result_ = {};
};

inline void Matcher::SetRule(Rule rule, uint64_t next_iteration, bool inside) {
  *this = Matcher();
  rule_ = rule;
  if (rule_.length_count > 2) rule_.length_count = 2;
  for (LengthSource& source : rule_.length) {
    if (source.lag > 2) source.lag = 2;
  }
  const EventPattern* patterns[] = {
      &rule_.boundary, &rule_.confirm,           &rule_.step,
      &rule_.clock,    &rule_.length[0].pattern, &rule_.length[1].pattern};
  for (const EventPattern* pattern : patterns) {
    if (pattern->op != 0) pattern_ops_ |= 1u << (pattern->op & 31);
  }
  for (uint32_t i = 0; i < rule_.length_count; ++i) {
    length_ops_ |= 1u << (rule_.length[i].pattern.op & 31);
  }
  if ((rule_.step.match & kMatchAnchored) != 0) {
    step_count_ = inside || rule_.step.start >= rule_.step.every ? kUncounted : rule_.step.start;
  }
  iteration_ = next_iteration;
  if (inside) phase_ = Phase::kInside;
}

inline bool Matcher::Matches(const EventPattern& pattern, const MatchEvent& event) const {
  if (pattern.op != event.op || event.op == 0) return false;
  const uint8_t match = pattern.match;
  if ((match & kMatchName) != 0 && pattern.name_hash != event.name_hash) return false;
  if ((match & kMatchBytes) != 0 && pattern.bytes != event.bytes) return false;
  if ((match & kMatchBytesAtLeast) != 0 && event.bytes < pattern.bytes) return false;
  if ((match & kMatchGrid) != 0 &&
      pattern.bytes != PackGrid(event.grid_x, event.grid_y, event.grid_z)) {
    return false;
  }
  if ((match & kMatchStream) != 0 && pattern.stream != event.stream) return false;
  if ((match & (kMatchPrevious | kMatchNotPrevious)) != 0) {
    const bool previous =
        previous_op_ == pattern.previous_op &&
        (pattern.previous_name_hash == 0 || pattern.previous_name_hash == previous_name_hash_);
    if (previous != ((match & kMatchPrevious) != 0)) return false;
  }
  return true;
}

inline bool Matcher::Take(const EventPattern& pattern, const MatchEvent& event, uint32_t* count) {
  if (pattern.every <= 1) return true;
  if ((pattern.match & kMatchAnchored) != 0) {
    const uint64_t name = event.name_hash;
    if (name != 0 &&
        (name == pattern.previous_name_hash || name == pattern.bytes || name == pattern.stream)) {
      *count = pattern.phase;
    }
    if (*count == kUncounted) return false;
  }
  const uint32_t n = *count;
  *count = n + 1 == pattern.every ? 0 : n + 1;
  return n == pattern.phase;
}

inline uint32_t Matcher::Evaluate(const MatchEvent& event) {
  uint32_t flags = 0;
  if (Matches(rule_.step, event) && Take(rule_.step, event, &step_count_)) flags |= OnStep();
  // Before it is known where a counted step lies, no begin means anything.
  if (step_count_ != kUncounted && Matches(rule_.boundary, event) &&
      Take(rule_.boundary, event, &boundary_count_)) {
    flags |= OnCandidate();
  }
  if (phase_ == Phase::kCandidate && Matches(rule_.confirm, event) &&
      Take(rule_.confirm, event, &confirm_count_)) {
    phase_ = Phase::kConfirmed;
  }
  // Lengths with lag are known at the candidate, the others when their event comes.
  const bool candidate = (flags & (kMatchedBoundary | kMatchedMicroBatch)) != 0;
  const bool read = (length_ops_ >> (event.op & 31) & 1) != 0 && ReadLengths(event);
  if (open() && (candidate || read) && rule_.length_count > 0 &&
      micro_batches_ >= rule_.micro_batches && !LengthPending()) {
    const uint32_t all = (1u << rule_.length_count) - 1;
    int64_t length[2];
    if (Lengths(length) == all) {
      result_.length[0] = length[0];
      result_.length[1] = length[1];
      result_.valid = all;
      flags |= kMatchedDecision;
    }
  }
  if (!clock_seen_ && phase_ != Phase::kNone && phase_ != Phase::kInside &&
      Matches(rule_.clock, event) && Take(rule_.clock, event, &clock_count_)) {
    clock_seen_ = true;
    flags |= kMatchedClock;
  }
  result_.iteration = iteration_;
  return flags;
}

// Ends the open iteration's step. Repeated step events (one kernel per tensor) find nothing open.
inline uint32_t Matcher::OnStep() {
  boundary_count_ = 0;
  const bool unseen = phase_ == Phase::kInside;
  const bool trained =
      phase_ == Phase::kConfirmed || (phase_ == Phase::kCandidate && rule_.confirm.op == 0);
  if (!trained && !unseen) return 0;
  result_.step = {.iteration = iteration_, .micro_batches = unseen ? 0 : micro_batches_};
  result_.step.valid = Lengths(result_.step.length);
  const uint32_t flags = unseen ? 0 : EndMicroBatch();
  ++iteration_;
  micro_batches_ = 0;
  clock_seen_ = false;
  phase_ = Phase::kStepped;
  return flags | kMatchedStep;
}

// The lengths that the last micro-batch has added to the sums.
inline uint32_t Matcher::EndMicroBatch() {
  if (!SumsLengths(rule_)) return 0;
  MicroBatchEvent& ended = result_.micro_batch;
  ended = {.iteration = iteration_, .index = micro_batches_ - 1};
  for (uint32_t i = 0; i < 2; ++i) {
    const LengthSource& source = rule_.length[i];
    const Reading& reading = reading_[i];
    Value value = source.lag != 0 ? reading.kept[source.lag - 1] : reading.last;
    if (source.field == static_cast<uint8_t>(LengthField::kCallCount)) {
      value = {true, reading.occurrences};
    }
    if (i >= rule_.length_count || !value.known) continue;
    ended.length[i] = value.value;
    ended.valid |= 1u << i;
  }
  return kMatchedMicroLengths;
}

inline uint32_t Matcher::OnCandidate() {
  uint32_t flags = kMatchedBoundary;
  // Without a step pattern the next boundary is the end of the step.
  if (rule_.step.op == 0) {
    if (phase_ == Phase::kConfirmed) flags |= OnStep();
    flags |= kMatchedConfirmed;
  }
  const bool micro_batch = phase_ == Phase::kConfirmed;
  const uint32_t ended = micro_batch ? EndMicroBatch() : 0;
  const bool training = micro_batch || phase_ == Phase::kStepped;
  for (uint32_t i = 0; i < rule_.length_count; ++i) {
    Reading& reading = reading_[i];
    if (training) {  // what an evaluation batch copied is not the next training batch
      reading.kept[1] = reading.kept[0];
      reading.kept[0] = reading.last;
    }
    reading.last.known = false;
    reading.occurrences = 0;
    if (!micro_batch) reading.folded.known = false;
    const uint8_t lag = rule_.length[i].lag;
    if (lag != 0 && reading.kept[lag - 1].known) {
      Fold(rule_.length[i].fold, reading.kept[lag - 1].value, &reading.folded);
    }
  }
  if (micro_batch) {
    ++micro_batches_;
    phase_ = Phase::kConfirmed;
    return kMatchedMicroBatch | ended;
  }
  micro_batches_ = 1;
  clock_seen_ = false;
  phase_ = rule_.step.op == 0 ? Phase::kConfirmed : Phase::kCandidate;
  return flags;
}

// Above INT64_MAX: the event has no such length.
inline uint64_t Matcher::Read(const LengthSource& source, const MatchEvent& event) {
  switch (static_cast<LengthField>(source.field)) {
    case LengthField::kBytes:
      return event.bytes;
    case LengthField::kGridX:
      return event.grid_x;
    case LengthField::kGridY:
      return event.grid_y;
    case LengthField::kGridZ:
      return event.grid_z;
    case LengthField::kNamePayload:
      return event.has_payload ? event.bytes : UINT64_MAX;
    case LengthField::kNameDigits:
      if (source.digit_run >= event.digit_runs) return UINT64_MAX;
      return static_cast<uint64_t>(event.digits[source.digit_run]);
    default:
      return UINT64_MAX;
  }
}

inline void Matcher::Fold(uint8_t fold, int64_t value, Value* folded) {
  if (!folded->known) {
    *folded = {true, value};
  } else if (fold == static_cast<uint8_t>(LengthFold::kSum) &&
             __builtin_add_overflow(folded->value, value, &folded->value)) {
    folded->value = INT64_MAX;
  }
}

// True when a length without lag changed.
inline bool Matcher::ReadLengths(const MatchEvent& event) {
  bool changed = false;
  for (uint32_t i = 0; i < rule_.length_count; ++i) {
    const LengthSource& source = rule_.length[i];
    if (!Matches(source.pattern, event)) continue;
    Reading& reading = reading_[i];
    if (source.field == static_cast<uint8_t>(LengthField::kCallCount)) {
      if (!open()) continue;
      Fold(static_cast<uint8_t>(LengthFold::kSum), 1, &reading.folded);
      ++reading.occurrences;
      continue;  // known at the step, not before
    }
    if (reading.occurrences++ != source.ordinal) continue;
    const uint64_t read = Read(source, event);
    reading.last = {read <= INT64_MAX, static_cast<int64_t>(read)};
    if (reading.last.known && source.lag == 0 && open()) {
      Fold(source.fold, reading.last.value, &reading.folded);
      changed = true;
    }
  }
  return changed;
}

// The open micro-batch has yet to add its part to a length.
inline bool Matcher::LengthPending() const {
  for (uint32_t i = 0; i < rule_.length_count; ++i) {
    const LengthSource& source = rule_.length[i];
    if (source.lag == 0 && source.fold != static_cast<uint8_t>(LengthFold::kFirst) &&
        source.field != static_cast<uint8_t>(LengthField::kCallCount) && !reading_[i].last.known) {
      return true;
    }
  }
  return false;
}

inline uint32_t Matcher::Lengths(int64_t length[2]) const {
  uint32_t valid = 0;
  for (uint32_t i = 0; i < 2; ++i) {
    const bool known = i < rule_.length_count && reading_[i].folded.known;
    length[i] = known ? reading_[i].folded.value : 0;
    if (known) valid |= 1u << i;
  }
  return valid;
}

}  // namespace seqpoint::abi

#endif  // SEQPOINT_INJECTION_ABI_MATCHER_H_
