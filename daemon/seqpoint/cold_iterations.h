// ColdIterations: the iterations in which a length occurred for the first time, and what is known
// of their warm-up cost (algorithm search, compilation, allocation).
//
// A length is unseen until either dimension's value has occurred: kernels of that shape never ran.
// Where keys are sums over micro-batches, lengths are those of micro-batches, not their sum.
//
// Threading: values. Units: times in ns.
#ifndef DAEMON_SEQPOINT_COLD_ITERATIONS_H_
#define DAEMON_SEQPOINT_COLD_ITERATIONS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/types/span.h"
#include "daemon/seqpoint/iteration_log.h"
#include "daemon/seqpoint/iteration_sample.h"
#include "daemon/seqpoint/key_table.h"
#include "daemon/seqpoint/time_model.h"
#include "daemon/seqpoint/unseen_lengths.h"

namespace seqpoint {

// Iterations that are kept by number.
inline constexpr size_t kMaxNumbers = 1 << 20;

// Lists of lengths: one for each dimension and kind of micro-batch.
inline constexpr int kMicroBatchKinds = 3;
inline constexpr int kLengthLists = 2 * kMicroBatchKinds;
inline int LengthList(int dimension, MicroBatch::Kind kind) {
  return 2 * static_cast<int>(kind) + dimension;
}

struct ColdIteration {
  Key key;
  double time_ns = 0;       // 0: not usable
  bool in_stretch = false;  // its time is part of a stretch's
};

// A cold iteration is a recurrence where a further process (another rank, a resumed run) has a
// length for the first time that the run has had before.
struct ColdIterations {
  uint64_t count = 0;  // recurrences too
  // Iteration in which a length first occurred.
  std::array<absl::flat_hash_map<int64_t, uint64_t>, kLengthLists> first_seen;
  absl::flat_hash_map<uint64_t, ColdIteration> by_iteration;
  double recurrence_ns = 0;  // of usable recurrences, which KeyRecord::recurrences counts
  double recurrences_timed = 0, recurrences_untimed = 0;  // counted ones
  absl::flat_hash_set<uint64_t> measured_recurrences;     // at most kMaxNumbers
  // How often each length of a micro-batch came.
  std::array<absl::flat_hash_map<int64_t, uint64_t>, kLengthLists> micro_batches;
  bool sums = false;  // keys are sums over micro-batches

  struct Noted {
    bool cold = false;        // for the first time in the run
    bool recurrence = false;  // ... only in the process
  };
  Noted Add(const IterationSample& sample, const SampleUse& use, KeyRecord& record);
  void AddStretch(absl::Span<const StretchIteration> iterations);

  bool IsCold(uint64_t iteration) const {
    return by_iteration.contains(iteration) || measured_recurrences.contains(iteration);
  }
  // Micro-batches of the lengths of a list.
  double MicroBatchesOf(int list) const;
  LengthHistory HistoryOf(int list) const;

  struct Costs {
    std::vector<ColdTime> times;  // in key order
    BucketCounts opened_untimed =
        {};  // buckets of lengths that iterations without a usable time opened
  };
  Costs CostsOf(const KeyTable& keys) const;

  // The time that recurrences took beyond the normal, in proportion to the run's first cold
  // iterations. Recurrences to come are expected in the same proportion.
  double RecurrenceShare(const KeyTable& keys, const TimeModel& model) const;

 private:
  bool NoteLengths(const IterationSample& sample);
};

}  // namespace seqpoint

#endif  // DAEMON_SEQPOINT_COLD_ITERATIONS_H_
