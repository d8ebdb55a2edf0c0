// The rules by which methods of choosing iterations are judged. Each draws the measurements of a
// length from its logged iterations at random, without a look at their times; every method gets the
// same draws.
// Threading: pure functions; results do not depend on it.
#ifndef TESTS_ACCURACY_PROTOCOLS_H_
#define TESTS_ACCURACY_PROTOCOLS_H_

#include <vector>

#include "tests/accuracy/data_set.h"
#include "tests/accuracy/result.h"

namespace seqpoint::accuracy {

// Draws: `count` of them, with seeds from `first` + 1 on.
struct Seeds {
  int count = 200;
  uint64_t first = 0;
};

inline constexpr int kMeasurements[] = {5, 8, 16, 32, 64};

// The paper's: at most 10 lengths, all iterations of which are measured; chosen on one half of the
// groups, judged on the other at equal lengths.
std::vector<Result> JudgePaper(const DataSet& data, const Seeds& seeds);
// m single measurements; the total of the log that chose them.
std::vector<Result> JudgeSampled(const DataSet& data, const Seeds& seeds);
// m single measurements on `target` of what `base` chose: how much faster the base's iterations are
// there; the base's time known, or measured with as many.
std::vector<Result> JudgeSpeedup(const DataSet& base, const DataSet& target, const Seeds& seeds);
// The whole run's time when a part of it ran.
std::vector<Result> JudgeOnline(const DataSet& data, const Seeds& seeds, const std::string& order);
// Whether the length explains time, in windows of the log.
std::vector<Result> JudgeExplained(const DataSet& data, const Seeds& seeds);

// The fewest measurements with a mean error of at most `error`; 0: none up to 256.
int MeasurementsFor(const DataSet& data, double error, const Seeds& seeds);

}  // namespace seqpoint::accuracy

#endif  // TESTS_ACCURACY_PROTOCOLS_H_
