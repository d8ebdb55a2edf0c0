#include "daemon/sparse/assignment.h"

#include <cstddef>
#include <limits>

namespace seqpoint::sparse {

std::vector<int> LargestAssignment(const std::vector<int64_t>& gain, int size) {
  constexpr int64_t kFar = std::numeric_limits<int64_t>::max() / 4;
  // Columns have one more, `size`, where each augmenting path begins.
  std::vector<int64_t> row_price(size, 0);
  std::vector<int64_t> column_price(size + 1, 0);
  std::vector<int> row_of(size + 1, -1);
  for (int row = 0; row < size; ++row) {
    std::vector<int64_t> distance(size + 1, kFar);
    std::vector<int> before(size + 1, size);
    std::vector<bool> done(size + 1, false);
    row_of[size] = row;
    int column = size;
    while (row_of[column] >= 0) {
      done[column] = true;
      const int from = row_of[column];
      int64_t step = kFar;
      int next = -1;
      for (int other = 0; other < size; ++other) {
        if (done[other]) continue;
        const int64_t through =
            -gain[static_cast<size_t>(from) * size + other] - row_price[from] - column_price[other];
        if (through < distance[other]) {
          distance[other] = through;
          before[other] = column;
        }
        if (distance[other] < step) {
          step = distance[other];
          next = other;
        }
      }
      for (int other = 0; other <= size; ++other) {
        if (done[other]) {
          row_price[row_of[other]] += step;
          column_price[other] -= step;
        } else {
          distance[other] -= step;
        }
      }
      column = next;
    }
    while (column != size) {
      row_of[column] = row_of[before[column]];
      column = before[column];
    }
    row_of[size] = -1;
  }
  std::vector<int> column_of(size);
  for (int column = 0; column < size; ++column) column_of[row_of[column]] = column;
  return column_of;
}

}  // namespace seqpoint::sparse
