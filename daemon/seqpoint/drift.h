// How times at equal length drift while the run goes on.
//
// Real logs drift: time at equal length grows by 0.6 to 0.8 % within an epoch.
//
// Threading: free functions without state.
#ifndef DAEMON_SEQPOINT_DRIFT_H_
#define DAEMON_SEQPOINT_DRIFT_H_

#include <cstdint>
#include <vector>

#include "daemon/seqpoint/block_trace.h"
#include "daemon/seqpoint/cost_curve.h"
#include "daemon/seqpoint/interval.h"

namespace seqpoint {

// By how much the time at equal length will differ, in the mean over the next `rest` iterations,
// from its mean over the `past` ones; relative. The trace weighs kinds of drift (no drift is one)
// and their sizes. A surprise may always come.
// `noise` is the relative standard deviation of one iteration, with what correlation between
// neighbours adds. `host_times`: of a CPU's work, of which larger drifts are expected.
std::vector<Normal> ProjectDrift(const BlockTrace& trace, const Quadratic& curve, double noise,
                                 double past, double rest, bool host_times = false);

struct Level {
  double value = 0;
  double iterations = 0;  // a mean of so many is as certain
};

// The time at equal length about a past iteration: by how much, relative to its mean over the past,
// it differs from that. Single slow iterations and a slow start of the run do not raise it.
Level DriftAt(const BlockTrace& trace, const Quadratic& curve, uint64_t iteration);

// The variance of that over the past, beyond what `noise` makes of it (as in ProjectDrift).
double DriftVariance(const BlockTrace& trace, const Quadratic& curve, double noise);

}  // namespace seqpoint

#endif  // DAEMON_SEQPOINT_DRIFT_H_
