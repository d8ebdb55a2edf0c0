// Wall time of whole epochs against what a log of every tenth iteration says.
// Threading: pure but for reading the files.
#ifndef TESTS_ACCURACY_WALLS_H_
#define TESTS_ACCURACY_WALLS_H_

#include <string>
#include <vector>

#include "tests/accuracy/result.h"

namespace seqpoint::accuracy {

// `iterations` is X_iters.csv[.gz]; X_epochs.csv beside it has each epoch's wall time. Nothing
// where either is missing or lacks a column.
std::vector<Result> JudgeWalls(const std::string& iterations);

}  // namespace seqpoint::accuracy

#endif  // TESTS_ACCURACY_WALLS_H_
