// The order of examples: shuffled, bucketed or sorted, cut into batches and padded. Pure; any
// thread.
#ifndef SEQPOINT_TESTS_WORKLOADS_BATCHING_H_
#define SEQPOINT_TESTS_WORKLOADS_BATCHING_H_

#include <vector>

#include "tests/workloads/lengths.h"
#include "tests/workloads/models.h"
#include "tests/workloads/random.h"

namespace seqpoint::workload {

enum class Order {
  kShuffle,  // a random permutation
  kBucket,   // a random permutation sorted within windows of 100 batches; batches shuffled
  kSorted    // ascending
};

struct Batch {
  std::vector<Example> examples;
  std::vector<int> lengths;  // the longest of each, rounded up to the padding multiple
};

// One pass over `table`. Examples sort by the sum of their lengths, ties by position. The last
// batch may be smaller, unless `drop_last`. `first_id` is the example number of row 0.
std::vector<Batch> MakeEpoch(const LengthTable& table, int batch_size, Order order,
                             int pad_multiple, bool drop_last, uint64_t first_id, Random* random);

// The longest of each length over `table`, rounded up.
std::vector<int> LongestLengths(const LengthTable& table, int pad_multiple);

}  // namespace seqpoint::workload

#endif  // SEQPOINT_TESTS_WORKLOADS_BATCHING_H_
