// The share of a time that one or two lengths explain.
//
// Threading: a free function over constant input.
#ifndef DAEMON_ITERATIONS_EXPLAINED_SHARE_H_
#define DAEMON_ITERATIONS_EXPLAINED_SHARE_H_

#include <vector>

namespace seqpoint::iterations {

// The share of the variance of `y` that a quadratic in the keys explains, with each point predicted
// from the others; 0 when it explains nothing. `keys` has one or two columns of y.size() values.
double ExplainedShare(const std::vector<std::vector<double>>& keys, const std::vector<double>& y);

}  // namespace seqpoint::iterations

#endif  // DAEMON_ITERATIONS_EXPLAINED_SHARE_H_
