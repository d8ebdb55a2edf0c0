// Forecast: the iterations of a run that are to come, by key, as far as they are known.
//
// Threading: free functions without state.
#ifndef DAEMON_SEQPOINT_FORECAST_H_
#define DAEMON_SEQPOINT_FORECAST_H_

#include <cstdint>
#include <vector>

#include "daemon/seqpoint/cold_iterations.h"
#include "daemon/seqpoint/cost_curve.h"
#include "daemon/seqpoint/drift_estimate.h"
#include "daemon/seqpoint/horizon.h"
#include "daemon/seqpoint/iteration_log.h"
#include "daemon/seqpoint/time_model.h"
#include "daemon/seqpoint/unseen_lengths.h"

namespace seqpoint {

struct Forecast {
  std::vector<CurveTarget> past;       // every counted iteration
  std::vector<CurveTarget> untimed;    // those whose time is estimated
  double untimed_unknown = 0;          // ... and whose length is not known either
  std::vector<CurveTarget> remaining;  // what is to come; empty when unknown
  int64_t iterations_total = 0;        // 0 = unknown
  bool sampled = false;                // remaining keys are drawn, not known
  bool mismatch = false;               // the histogram is not that of this run
  bool overrun = false;                // more iterations than the horizon said
  BucketCounts unseen = {};            // buckets of lengths that are new to the run
  BucketCounts opened_untimed = {};    // buckets that iterations without a usable time opened

  // Unseen buckets and those above: what has a warm-up cost that no time shows.
  BucketCounts AllUntimed() const;
};

// `drifting`: the distribution of lengths drifts. Does not fill `opened_untimed`.
Forecast MakeForecast(const IterationLog& log, const ColdIterations& cold, const Horizon& horizon,
                      const TimeModel& model, bool drifting);

// The variance that the drawing of `remaining` unknown keys adds to a sum over them. `variance`:
// that of one iteration over the keys that occurred.
double SamplingVariance(const IterationLog& log, const Horizon& horizon, const Forecast& forecast,
                        const DriftEstimate& drift, double remaining, double variance);

// Σ weight.
double IterationsOf(absl::Span<const CurveTarget> targets);

}  // namespace seqpoint

#endif  // DAEMON_SEQPOINT_FORECAST_H_
