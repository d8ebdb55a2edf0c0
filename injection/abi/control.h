// The control block: what the daemon wants of the process. It holds the rule, the level, metric
// configurations and at most 256 plan entries, under a sequence lock. The daemon writes it. Readers
// in the process copy it whole at a boundary when `generation` has changed. A reader that finds
// `sequence` odd three times keeps its old copy. A new daemon rewrites the whole block. Rules:
// docs/internals/iteration-rules.md. Layout: docs/formats/shared-ring.md.
#ifndef SEQPOINT_INJECTION_ABI_CONTROL_H_
#define SEQPOINT_INJECTION_ABI_CONTROL_H_

#include <stdint.h>

#include "injection/abi/records.h"

namespace seqpoint::abi {

enum class Level : uint8_t {
  kOff = 0,
  kLearn = 1,
  kMark = 2,
  kTrace = 3,
  kPaused = 4,
  kReleased = 5
};

// One event of the stream, as the matcher sees it.
enum PatternMatch : uint8_t {
  kMatchName = 1,      // name_hash equal: abi::NameHash, for NVTX calls NameShape::hash
  kMatchPrevious = 2,  // the watched event before it, on any thread, has op previous_op and name
                       // previous_name_hash (0: any name)
  kMatchBytes = 4,     // bytes equal
  kMatchStream = 8,    // stream equal
  kMatchNotPrevious = 16,   // like kMatchPrevious, negated
  kMatchBytesAtLeast = 32,  // bytes equal or greater
  kMatchGrid = 64,          // a launch whose abi::PackGrid(x, y, z) is `bytes`
  kMatchAnchored = 128,  // a step with `every`: previous_name_hash, bytes and stream are names (0:
                         // none), and each of their occurrences has the number `phase`
};
struct EventPattern {
  uint8_t op;  // Op; 0: no pattern
  uint8_t match;
  uint8_t previous_op;
  uint8_t reserved;
  uint32_t every;  // each `every`-th occurrence counts (0 and 1: all); a step begins the count of
                   // boundaries again
  uint32_t phase;  // which of them, from 0
  uint32_t start;  // kMatchAnchored: the number of the process' first occurrence
  uint64_t name_hash;
  uint64_t previous_name_hash;
  uint64_t bytes;
  uint64_t stream;
};

// The field of an event from which a length is read.
enum class LengthField : uint8_t {
  kNone = 0,
  kBytes = 1,
  kGridX = 2,
  kGridY = 3,
  kGridZ = 4,
  kNamePayload = 5,
  kNameDigits = 6,
  kCallCount = 7  // occurrences of the pattern in the iteration: known at the step, not before
};
enum class LengthFold : uint8_t { kFirst = 0, kSum = 1 };
struct LengthSource {
  EventPattern pattern;
  uint8_t field;      // LengthField
  uint8_t fold;       // over the micro-batches of an iteration
  uint8_t lag;        // 0: read in its own micro-batch; 1, 2: so many before it (prefetch)
  uint8_t digit_run;  // kNameDigits: which number of the name, from 0
  uint32_t ordinal;   // the n-th occurrence of the pattern from the candidate on, from 0; the
                      // candidate itself may be one
};

// A rule says which events make an iteration. abi::Matcher (matcher.h) evaluates it, in the library
// on live calls and in the daemon on learn records. Both run the same code and agree.
struct Rule {
  uint32_t generation;   // 0: no rule
  uint32_t watched_ops;  // bit (1 << Op) for each op that must reach the matcher
  EventPattern boundary;
  EventPattern confirm;  // op 0: none
  EventPattern step;     // op 0: every candidate is an iteration
  EventPattern clock;    // event whose activity record gives the GPU start; op 0: none
  LengthSource length[2];
  uint32_t length_count;
  uint32_t micro_batches;  // decision after this many; 0 and 1: the first
};

// Measure iterations whose lengths lie in the box with configuration `config_id`, `quota` times.
inline constexpr uint16_t kConfigNone = 0;
inline constexpr uint16_t kConfigTrace = 1;  // full kernel trace instead of counters
// The framework's adapter, and not the library, records the operators of an iteration with these
// lengths. `quota` does not count: the adapter knows what it has recorded.
inline constexpr uint16_t kConfigOperators = UINT16_MAX;
struct PlanEntry {
  int64_t low[2];   // inclusive
  int64_t high[2];  // inclusive; an unused dimension has low = INT64_MIN, high = INT64_MAX
  uint16_t config_id;
  uint16_t reserved;
  uint32_t quota;     // the library counts it down itself
  uint64_t entry_id;  // stable over generations: an entry that stays keeps its count
};

// The part of CUPTI that collects counters: docs/using/counters.md.
enum class CounterBackend : uint8_t { kRange = 0, kPm = 1 };

// The work that a value belongs to.
enum class Ranges : uint8_t {
  kIteration = 0,
  kKernels = 1,  // each kernel; CounterBackend::kRange only. Kernels run one after the other
};

struct MetricConfig {
  uint16_t config_id;  // from 2; 0: unused
  uint8_t metric_count;
  uint8_t ranges;  // Ranges
  uint32_t text_bytes;
  char names[1016];  // metric names separated by '\n'
};

inline constexpr uint32_t kMaxPlanEntries = 256;
inline constexpr uint32_t kMaxConfigs = 12;
inline constexpr uint32_t kMaxKernelMetrics = 16;  // in a configuration of kernels

struct Control {
  uint32_t generation;         // raised with every rewrite
  uint8_t level;               // Level wanted
  uint8_t counter_backend;     // CounterBackend
  uint16_t overhead_permille;  // share of the time that stops may take; 0: 10
  uint32_t plan_count;
  uint32_t config_count;
  uint32_t flush_interval_ms;
  // Measurements in the process' life: at this count no further one starts. It holds for any plan
  // that the process still has when the daemon is slow.
  uint32_t measurement_cap;
  Rule rule;
  MetricConfig config[kMaxConfigs];
  PlanEntry plan[kMaxPlanEntries];
  // NCCL's kernel channels are on in iterations whose number modulo the period is the phase. A rank
  // counts its own iterations, so ranks that take the same one may have different phases.
  uint32_t channel_period;  // 0: they are off
  uint32_t channel_phase;
  // 1 + the number of an iteration that is traced whatever its lengths are, in addition to the
  // plan: the same one on all ranks. 0: none.
  uint64_t traced_iteration;
};

struct alignas(64) ControlBlock {
  uint64_t sequence;    // odd while the daemon writes
  uint32_t generation;  // copy of control.generation, readable without the lock
  uint32_t reserved;
  uint64_t heartbeat_ns;  // CLOCK_MONOTONIC at the daemon's last sign of life
  alignas(64) Control control;
};

}  // namespace seqpoint::abi

#endif  // SEQPOINT_INJECTION_ABI_CONTROL_H_
