// Estimates with intervals, from a mixture of normal distributions.
//
// The engine does not pick one value for a noise level or a curve's roughness but weighs several by
// how well they agree with the data; each gives a normal distribution of the answer. The interval
// of their mixture is what a Student interval is for the mean of few values: wider, where little is
// known of the noise.
//
// Threading: free functions without state.
#ifndef DAEMON_SEQPOINT_INTERVAL_H_
#define DAEMON_SEQPOINT_INTERVAL_H_

#include <vector>

#include "absl/types/span.h"

namespace seqpoint {

struct Estimate {
  double value = 0;
  double low = 0;
  double high = 0;
};

// A normal distribution and its probability. Probabilities of a mixture sum to 1.
struct Normal {
  double probability = 1;
  double mean = 0;
  double variance = 0;
};

// Every pair of a component of `a` and one of `b`, added: the sum of two independent quantities.
std::vector<Normal> AddIndependent(absl::Span<const Normal> a, absl::Span<const Normal> b);

// Few components with nearly the same distribution: those of similar spread become one.
std::vector<Normal> Condensed(absl::Span<const Normal> mixture);

double MixtureMean(absl::Span<const Normal> mixture);
double MixtureVariance(absl::Span<const Normal> mixture);

// Mean and the central interval of `confidence` (in (0, 1)).
Estimate MixtureEstimate(absl::Span<const Normal> mixture, double confidence);

// The two-sided quantile of the standard normal distribution: 1.96 for 0.95.
double NormalQuantile(double confidence);

// The two-sided quantile of Student's distribution with `freedom` degrees of freedom.
double StudentQuantile(double confidence, double freedom);

}  // namespace seqpoint

#endif  // DAEMON_SEQPOINT_INTERVAL_H_
