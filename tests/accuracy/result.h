// One line of the judgement, and all of them as JSON and as tables.
// Threading: values.
#ifndef TESTS_ACCURACY_RESULT_H_
#define TESTS_ACCURACY_RESULT_H_

#include <cmath>
#include <string>
#include <vector>

#include "absl/types/span.h"

namespace seqpoint::accuracy {

// Errors and shares are fractions; NaN and empty: does not apply, null in JSON.
struct Result {
  std::string file;
  std::string protocol;  // paper, sampled, speedup, online, coverage, explained, walls
  std::string method;    // ours, seqpoint, frequent, median, worst, prior, random, equal_mass, stem
  std::string statistic;  // same (the one that chose), other (another machine's time, a counter)
  int m = 0;              // measurements; for `explained` the iterations of a window; 0: not fixed
  double fraction = NAN;  // of the run that has been seen
  std::string order;      // shuffled, real, sorted
  std::string lengths;    // of the rest: known, unknown
  double mean_error = NAN, p95_error = NAN, bias = NAN;
  double noise_floor = NAN;  // standard deviation at equal length / sqrt(m) / mean
  double coverage = NAN;     // of the 95 % interval
  double width_ratio = NAN;  // its width / that of the ideal interval of the errors as they were
  double half_width = NAN;   // relative, mean
  int unique_keys = 0;
  int iterations = 0;
  double explained = NAN;
  double refused = NAN;  // share of windows in which the length was said not to explain time
  std::string verdict;
  std::string note;
};

// Errors of one method over many draws.
class Tally {
 public:
  void Add(double error);                           // relative, signed
  void Add(double error, double low, double high);  // ... with the interval's ends, relative too
  void Fill(Result* result) const;
  double mean_error() const;

 private:
  std::vector<double> errors_;
  double covered_ = 0, width_ = 0, intervals_ = 0;
};

std::string ToJson(absl::Span<const Result> results);
std::string ToTables(absl::Span<const Result> results);  // Markdown

}  // namespace seqpoint::accuracy

#endif  // TESTS_ACCURACY_RESULT_H_
