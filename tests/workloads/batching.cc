#include "tests/workloads/batching.h"

#include <algorithm>
#include <numeric>

namespace seqpoint::workload {
namespace {

constexpr size_t kBatchesPerWindow = 100;

void RoundUp(int multiple, std::vector<int>* lengths) {
  for (int& length : *lengths) length = (length + multiple - 1) / multiple * multiple;
}

void TakeLonger(const std::vector<int>& row, std::vector<int>* longest) {
  longest->resize(row.size(), 0);
  for (size_t i = 0; i < row.size(); ++i) (*longest)[i] = std::max((*longest)[i], row[i]);
}

}  // namespace

std::vector<Batch> MakeEpoch(const LengthTable& table, int batch_size, Order order,
                             int pad_multiple, bool drop_last, uint64_t first_id, Random* random) {
  const auto size = static_cast<size_t>(batch_size);
  std::vector<size_t> rows(table.size());
  std::iota(rows.begin(), rows.end(), size_t{0});
  auto sort_rows = [&](size_t begin, size_t end) {
    auto key = [&](size_t row) {
      return std::pair(std::accumulate(table[row].begin(), table[row].end(), 0), row);
    };
    std::sort(rows.begin() + static_cast<ptrdiff_t>(begin),
              rows.begin() + static_cast<ptrdiff_t>(end),
              [&](size_t a, size_t b) { return key(a) < key(b); });
  };
  if (order == Order::kSorted) {
    sort_rows(0, rows.size());
  } else {
    random->Shuffle(&rows);
  }
  if (order == Order::kBucket) {
    const size_t window = size * kBatchesPerWindow;
    for (size_t begin = 0; begin < rows.size(); begin += window) {
      sort_rows(begin, std::min(rows.size(), begin + window));
    }
  }

  std::vector<Batch> batches;
  for (size_t begin = 0; begin < rows.size(); begin += size) {
    const size_t end = std::min(rows.size(), begin + size);
    if (drop_last && end - begin < size) break;
    Batch batch;
    for (size_t i = begin; i < end; ++i) {
      batch.examples.push_back({first_id + rows[i], table[rows[i]]});
      TakeLonger(table[rows[i]], &batch.lengths);
    }
    RoundUp(pad_multiple, &batch.lengths);
    batches.push_back(std::move(batch));
  }
  if (order == Order::kBucket) random->Shuffle(&batches);
  return batches;
}

std::vector<int> LongestLengths(const LengthTable& table, int pad_multiple) {
  std::vector<int> longest;
  for (const std::vector<int>& row : table) TakeLonger(row, &longest);
  RoundUp(pad_multiple, &longest);
  return longest;
}

}  // namespace seqpoint::workload
