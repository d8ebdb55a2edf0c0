// IterationLog: how many iterations a run had of each key, and how long they took together.
//
// Threading: values. Units: times in ns. Single iterations are not kept.
#ifndef DAEMON_SEQPOINT_ITERATION_LOG_H_
#define DAEMON_SEQPOINT_ITERATION_LOG_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "daemon/seqpoint/iteration_sample.h"
#include "daemon/seqpoint/key_table.h"

namespace seqpoint {

inline constexpr int64_t kMaxTimeNs = int64_t{1} << 56;  // about two years

// How the time of a sample may be used.
struct SampleUse {
  explicit SampleUse(const IterationSample& sample)
      : timed(sample.time_ns > 0 && !sample.distorted && !sample.measured),
        usable(timed && sample.rest_ns <= 0),
        counted(!sample.redone) {}

  bool timed;    // the time is in the sum
  bool usable;   // other iterations are judged by it, too
  bool counted;  // it is an iteration of the run
};

struct IterationLog {
  uint64_t iterations = 0;  // training iterations, redone ones counted once
  uint64_t redone = 0;
  uint64_t untimed = 0;    // time unknown
  uint64_t distorted = 0;  // times changed by the profiler
  uint64_t measured = 0;   // ran under a configuration
  uint64_t rejected = 0;   // negative key or time, or too many unique keys
  uint64_t other_iterations = 0;
  double other_time_ns = 0;
  double observed_time_ns = 0;  // of all training iterations, distorted ones too

  uint64_t newest = 0;  // the highest number of an iteration
  bool two_dimensional = false;
  KeyTable keys;
  double exact_time_ns = 0;      // of counted iterations with a known time
  double rest_ns = 0;            // IterationSample::rest_ns of these
  int64_t overflow_untimed = 0;  // untimed iterations whose key found no room

  // False: the sample is rejected, and counted as such.
  bool Accepts(const IterationSample& sample);
  // A sample of another phase than training.
  void AddOther(const IterationSample& sample);
  // A training iteration that was accepted. Null: its key found no room.
  KeyRecord* Add(const IterationSample& sample, const SampleUse& use);

  // InvalidArgument where `iterations` are not untimed ones of the log.
  absl::Status CheckStretch(absl::Span<const StretchIteration> iterations, int64_t time_ns) const;
  // Iterations of the log, checked, took so much together.
  void AddStretch(absl::Span<const StretchIteration> iterations, double time_ns);
};

}  // namespace seqpoint

#endif  // DAEMON_SEQPOINT_ITERATION_LOG_H_
