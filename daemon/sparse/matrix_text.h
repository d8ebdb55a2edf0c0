// Sparse matrices as text: Matrix Market, and the .tsv of GraphChallenge; and how matrices of
// layers, from whatever file, make a network. Formats: docs/formats/partition-files.md, "Networks".
//
// Sources: math.nist.gov/MatrixMarket/formats.html; graphchallenge.mit.edu. Threading: free
// functions. Ownership: values. InvalidArgument: one sentence with the file and the line.
#ifndef SEQPOINT_DAEMON_SPARSE_MATRIX_TEXT_H_
#define SEQPOINT_DAEMON_SPARSE_MATRIX_TEXT_H_

#include <stdint.h>

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/sparse/network.h"

namespace seqpoint::sparse {

inline constexpr int32_t kMostNeuronsOfLayer = 1 << 24;

// The matrix of one layer as its file has it: nonzeros in any order.
struct MatrixEntries {
  struct Entry {
    int32_t row = 0;     // from 0 on
    int32_t column = 0;  // from 0 on
    float weight = 0;
    int64_t line = 0;  // in the file; 0: it has none
  };
  std::string file;  // for messages
  int32_t rows = 0;  // 0: the file does not say
  int32_t columns = 0;
  std::vector<Entry> entries;
};

absl::StatusOr<MatrixEntries> ReadMatrixMarket(std::string_view text, const std::string& file);
absl::StatusOr<MatrixEntries> ReadTsv(std::string_view text, const std::string& file);

// A layer for each matrix, the first one first. A size that a file does not say is that of its
// neighbour, else `neurons` where that is not 0, else the largest number in the two files that meet
// there. Refused: no nonzero, one twice, a number above the size, shapes that do not chain.
absl::StatusOr<Network> MakeNetwork(std::vector<MatrixEntries> matrices, int32_t neurons = 0);

// As GraphChallenge writes it: a nonzero a line, source, target, weight; by target, then source.
std::string WriteTsv(const Layer& layer);

}  // namespace seqpoint::sparse

#endif  // SEQPOINT_DAEMON_SPARSE_MATRIX_TEXT_H_
