// The judgement as a picture. Threading: pure functions.
#ifndef TESTS_ACCURACY_PICTURE_H_
#define TESTS_ACCURACY_PICTURE_H_

#include <string>

#include "absl/types/span.h"
#include "tests/accuracy/result.h"

namespace seqpoint::accuracy {

// SVG: mean error over m of each method, a panel for each measured data set of protocol "sampled".
std::string ErrorPicture(absl::Span<const Result> results);

}  // namespace seqpoint::accuracy

#endif  // TESTS_ACCURACY_PICTURE_H_
