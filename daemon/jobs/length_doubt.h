// Whether the lengths that occur can be those that the user gave, and when they cannot, why.
//
// The given lengths of a shuffled run are drawn: batches put together at random, in another order
// than the program's. A longest length of few batches may then never come, and others come that
// were not drawn. So a match is a question of distributions; and of how they differ follows what
// was said wrong. When F is the distribution of the examples' lengths, that of the longest of b
// examples is F^b: batches of another size than the given ones show as another power of the given
// distribution, and examples that were sorted first as the power 1 / b, as then the longest of a
// batch is like any other.
//
// Threading: free functions. Nothing is kept.
#ifndef DAEMON_JOBS_LENGTH_DOUBT_H_
#define DAEMON_JOBS_LENGTH_DOUBT_H_

#include <cstdint>
#include <optional>
#include <string>

#include "daemon/jobs/length_scale.h"

namespace seqpoint::jobs {

// By how much two distributions may differ (Kolmogorov-Smirnov) that are samples of one, of so many
// iterations each: by chance (in 1 % of the cases), and by a tenth, as data is never quite the
// same.
double MostDistance(double observed, double expected);

// FindScale for lengths of which the expected ones are a sample: of the divisors of the observed
// values' unit the one whose distribution is nearest to the expected one, if it is near enough.
std::optional<LengthScale> FindScaleOfDrawn(const Histogram1& observed, const Histogram1& expected);

// How the observed lengths differ from the given ones.
struct LengthDoubt {
  double distance = 0;  // between the distributions, at the scale at which they are nearest
  std::string cause;    // in words, with the way out; empty while chance explains the difference
};

// `batch`: examples in a given batch, 0: each is one by itself; `ranks`: of the run.
LengthDoubt WhyLengthsDiffer(const Histogram1& observed, const Histogram1& expected, int64_t batch,
                             int64_t ranks);

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_LENGTH_DOUBT_H_
