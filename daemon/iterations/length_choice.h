// Chooses the early feature of an iteration that decides how long it takes.
//
// A candidate is judged by the share of the variance of iteration time that it explains on
// iterations left out of the fit. The smallest subset of at most two wins. Where no time is known,
// the launched threads and the launches replace the time.
//
// Threading: free functions over constant input.
#ifndef DAEMON_ITERATIONS_LENGTH_CHOICE_H_
#define DAEMON_ITERATIONS_LENGTH_CHOICE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "daemon/iterations/length_features.h"

namespace seqpoint::iterations {

struct LengthChoice {
  std::vector<size_t> sources;  // indices into the table, at most two
  double explained = 0;         // share of the variance that they explain, cross-validated
  // False when the time of iterations is known and no candidate explains it: the job's time does
  // not depend on a length. The sources are then the likeliest guess.
  bool depends = false;
  bool judged = false;  // false: nothing varied or no times, `sources` is a guess
  // "GPU stamps", "host waits" or "what was launched", which `explained` refers to.
  std::string judged_by;
  std::vector<int64_t> unit;  // greatest common divisor of each source's values
  std::string words;
};

LengthChoice ChooseLengths(const FeatureTable& table);

}  // namespace seqpoint::iterations

#endif  // DAEMON_ITERATIONS_LENGTH_CHOICE_H_
