// Input of the accuracy judge: logs of iterations, measured or made from lengths.
// Threading: values. Ownership: their own.
#ifndef TESTS_ACCURACY_DATA_SET_H_
#define TESTS_ACCURACY_DATA_SET_H_

#include <array>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/files/log_file.h"
#include "daemon/seqpoint/analysis.h"
#include "daemon/seqpoint/key.h"
#include "daemon/seqpoint/selection.h"
#include "tests/workloads/batching.h"

namespace seqpoint::accuracy {

struct DataSet {
  std::string name;
  RunLog run;                            // start-up left out
  std::vector<KeyTimes> log;             // of it, by key
  std::vector<std::vector<int>> of_key;  // iterations of each entry of `log`
  std::vector<int> entry;                // of each iteration, in `log`
  double total = 0;
  double noise = 0;  // pooled standard deviation at equal length / mean time
  KeyFit fit;
  // For made times: duration of an iteration of each entry without noise. Measurements are then
  // drawn with noise of their own, as most lengths occur once and have no other iteration to draw.
  std::vector<double> cost;
  int64_t start_up = 0;
  std::vector<std::string> key_columns;        // of the file; empty: there is none
  std::array<double, 2> length_step = {1, 1};  // keys are in steps of it
  double epoch_iterations = 0;  // of a whole epoch, where the log has only a part; else its size

  size_t size() const { return run.size(); }
  double mean() const { return total / static_cast<double>(size()); }
  // The entry of this key, or of the nearest in length.
  int EntryOf(const Key& key) const;
};

// Takes start-up out and makes everything else.
DataSet MakeDataSet(std::string name, const RunLog& run);
// Those iterations of `whole`, in this order.
DataSet PartOf(const DataSet& whole, absl::Span<const int> iterations);
// Iterations in which each group begins, or, where there are few groups, that cut it into 30.
std::vector<int> Starts(const DataSet& data);

// With a `base` that it is to be compared with, columns and steps of length are the base's.
absl::StatusOr<DataSet> ReadDataSet(client::LogOptions options, const DataSet* base = nullptr);

// One epoch over a file of examples' lengths, in batches of 32. Times are made: an affine cost of
// both lengths and their product (long ones in steps of 8 tokens), 1.5 % log-normal noise, and one
// iteration in a hundred 30 % slower. Deterministic.
// `options` name the file and, if at all, its length columns.
absl::StatusOr<DataSet> MadeFromLengths(client::LogOptions options, workload::Order order);

// The same iterations with noise drawn anew; only of made times.
DataSet Redrawn(const DataSet& data, uint64_t seed);

// A random order of measuring, the same for every method: the k-th measurement of a length is the
// k-th iteration that has it in that order (again from the start when there are no more).
class Draws {
 public:
  Draws(const DataSet& data, uint64_t seed);
  double Mean(int entry, int count);  // time, over so many iterations of this entry of the log
  double TimeOf(int iteration);       // of an iteration that was chosen otherwise
  std::mt19937_64& random() { return random_; }

 private:
  int Draw(int entry);  // one iteration

  const DataSet& data_;
  const uint64_t seed_;
  std::mt19937_64 random_;
  std::vector<std::vector<int>> order_;
  std::vector<size_t> next_;
};

}  // namespace seqpoint::accuracy

#endif  // TESTS_ACCURACY_DATA_SET_H_
