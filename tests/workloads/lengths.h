// Sequence lengths per example, read from a file or drawn from a histogram. Pure except for reading
// the file; any thread.
#ifndef SEQPOINT_TESTS_WORKLOADS_LENGTHS_H_
#define SEQPOINT_TESTS_WORKLOADS_LENGTHS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace seqpoint::workload {

// One row per example: one length, or a source and a target length.
using LengthTable = std::vector<std::vector<int>>;

constexpr int kMaxLength = 100000;

// Reads a CSV file with a header. Columns whose name begins with `len_` are lengths if there are
// any, else every column is; the first two count. Errors name file, line and value: a file that
// cannot be read, no column, no example, a row with too few fields, a value that is not an integer
// in [1, kMaxLength].
absl::StatusOr<LengthTable> ReadLengths(const std::string& path);

// Writes what ReadLengths reads: columns len_0 and, with two lengths, len_1. False, with errno set,
// when the file cannot be written.
bool WriteLengths(const LengthTable& table, const std::string& path);

// Gives every row exactly `count` lengths (1 or 2): the first is repeated, or the second dropped.
void SetLengthCount(int count, LengthTable* table);

}  // namespace seqpoint::workload

#endif  // SEQPOINT_TESTS_WORKLOADS_LENGTHS_H_
