// Figures as the API says them: the only place where estimates and projections become messages.
//
// Threading: pure functions; who passes engines holds their snapshot's mutex.
#ifndef DAEMON_JOBS_FIGURES_H_
#define DAEMON_JOBS_FIGURES_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/strings/string_view.h"
#include "daemon/jobs/snapshot.h"
#include "daemon/seqpoint/engine.h"
#include "daemon/seqpoint/interval.h"
#include "daemon/seqpoint/projection.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::jobs {

// A time or a count, which is never negative.
void SetEstimate(const Estimate& from, v1::Estimate* to);
// A difference, which may be negative.
void SetDifference(const Estimate& from, v1::Estimate* to);

v1::Verdict VerdictOf(KeyVerdict verdict);
// How well the lengths explain time.
void SetFit(const KeyFit& fit, v1::Rule* rule);

// Projects the run's time.
Projection ProjectTime(const SnapshotData& job, double confidence);
// Without what is doubtful: the run may have had more iterations, or fewer.
Projection WithDoubts(const SnapshotData& job, Projection projection);
// The kernels that a statistic times. A slow rank's factor holds for its own where its clocks are
// slower; collectives are longer on the ranks that wait for it.
enum class KernelTimes : uint8_t { kNone, kKernels, kCollectives };
// The projection of a statistic of `set`, whose measurements may not represent the part of the run
// in which a rank was slow: the interval holds what that part may be, and the basis says it.
Projection WithSlowRanks(const SnapshotData& job, uint32_t set, Projection projection,
                         StatisticKind kind, KernelTimes times = KernelTimes::kNone);
// A sentence for each slow rank that this concerns; empty: none.
std::string SlowRanksInWords(const SnapshotData& job, uint32_t set);
// With the doubts, and what the figure rests on.
v1::Projection ProjectionOf(const SnapshotData& job, const Projection& known,
                            std::string_view metric, std::string_view unit);

// With the number of ranks; nothing when there is one.
std::string RanksInWords(const SnapshotData& job, absl::string_view before);
std::string StepsInWords(const SnapshotData& job);

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_FIGURES_H_
