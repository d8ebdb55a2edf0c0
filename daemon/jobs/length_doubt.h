// Whether the observed lengths can be those that the user gave, and if not, the cause.
//
// The given lengths of a shuffled run are drawn: batches are put together at random, in another
// order than the program's. Some drawn lengths never occur, and others occur that were not drawn.
// A match is a question of distributions, and their difference shows the cause.
//
// When F is the distribution of the examples' lengths, the longest of b examples has the
// distribution F^b. Batches of another size than the given ones show as another power of the given
// distribution. Examples that were sorted first show as the power 1 / b: then the longest of a
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

// The largest distance (Kolmogorov-Smirnov) between two samples of one distribution, of so many
// iterations each: what chance exceeds in 1 % of the cases, and a tenth, as data is never quite the
// same.
double MostDistance(double observed, double expected);

// FindScale where the expected lengths are a sample. Returns the divisor of the observed values'
// unit whose distribution is nearest to the expected one, if it is near enough.
std::optional<LengthScale> FindScaleOfDrawn(const Histogram1& observed, const Histogram1& expected);

// The difference between the observed and the given lengths.
struct LengthDoubt {
  double distance = 0;  // between the distributions, at the scale where they are nearest
  std::string cause;    // with the way out; empty while chance explains the difference
};

// `batch`: examples in a given batch, 0: each example is an iteration. `ranks`: of the run.
LengthDoubt WhyLengthsDiffer(const Histogram1& observed, const Histogram1& expected, int64_t batch,
                             int64_t ranks);

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_LENGTH_DOUBT_H_
