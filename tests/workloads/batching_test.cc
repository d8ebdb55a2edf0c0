#include "tests/workloads/batching.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace seqpoint::workload {
namespace {

using testing::ElementsAre;

LengthTable Ascending(int count) {
  LengthTable table;
  for (int i = 1; i <= count; ++i) table.push_back({i});
  return table;
}

std::vector<Batch> Epoch(const LengthTable& table, int size, Order order, uint64_t seed = 1,
                         int pad_multiple = 1, bool drop_last = false) {
  Random random(seed);
  return MakeEpoch(table, size, order, pad_multiple, drop_last, 0, &random);
}

std::vector<int> FirstLengths(const std::vector<Batch>& batches) {
  std::vector<int> lengths;
  for (const Batch& batch : batches) lengths.push_back(batch.lengths[0]);
  return lengths;
}

TEST(BatchingTest, EveryOrderVisitsEachExampleOnce) {
  const LengthTable table = Ascending(1003);
  for (Order order : {Order::kShuffle, Order::kBucket, Order::kSorted}) {
    const auto batches = Epoch(table, 4, order);
    EXPECT_EQ(batches.size(), 251u);
    std::multiset<uint64_t> ids;
    for (const Batch& batch : batches) {
      int longest = 0;
      for (const Example& example : batch.examples) {
        ids.insert(example.id);
        EXPECT_EQ(example.lengths, table[example.id]);
        longest = std::max(longest, example.lengths[0]);
      }
      EXPECT_EQ(batch.lengths[0], longest);
    }
    EXPECT_EQ(ids.size(), 1003u);
    EXPECT_EQ(std::set<uint64_t>(ids.begin(), ids.end()).size(), 1003u);
  }
}

TEST(BatchingTest, SortedAscends) {
  const LengthTable table = {{9}, {2}, {7}, {4}, {3}};
  EXPECT_THAT(FirstLengths(Epoch(table, 2, Order::kSorted)), ElementsAre(3, 7, 9));
  EXPECT_THAT(FirstLengths(Epoch(table, 2, Order::kSorted, 1, 1, /*drop_last=*/true)),
              ElementsAre(3, 7));
}

TEST(BatchingTest, BucketsPadLessThanShufflingAndStillMixTheOrder) {
  const LengthTable table = Ascending(4000);
  auto padding = [](const std::vector<Batch>& batches) {
    int64_t padded = 0;
    for (const Batch& batch : batches) {
      for (const Example& example : batch.examples) padded += batch.lengths[0] - example.lengths[0];
    }
    return padded;
  };
  const auto bucketed = Epoch(table, 10, Order::kBucket);
  EXPECT_LT(padding(bucketed) * 10, padding(Epoch(table, 10, Order::kShuffle)));
  const std::vector<int> lengths = FirstLengths(bucketed);
  EXPECT_FALSE(std::is_sorted(lengths.begin(), lengths.begin() + 20));
}

TEST(BatchingTest, TheSeedFixesTheOrder) {
  const LengthTable table = Ascending(500);
  EXPECT_EQ(FirstLengths(Epoch(table, 4, Order::kShuffle, 7)),
            FirstLengths(Epoch(table, 4, Order::kShuffle, 7)));
  EXPECT_NE(FirstLengths(Epoch(table, 4, Order::kShuffle, 7)),
            FirstLengths(Epoch(table, 4, Order::kShuffle, 8)));
}

TEST(BatchingTest, PadsEachLengthToTheMultiple) {
  const LengthTable table = {{3, 17}, {9, 16}};
  EXPECT_THAT(Epoch(table, 2, Order::kSorted, 1, 8)[0].lengths, ElementsAre(16, 24));
  EXPECT_THAT(LongestLengths(table, 1), ElementsAre(9, 17));
  EXPECT_THAT(LongestLengths(table, 10), ElementsAre(10, 20));
}

}  // namespace
}  // namespace seqpoint::workload
