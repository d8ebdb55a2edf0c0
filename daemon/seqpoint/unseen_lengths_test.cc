#include "daemon/seqpoint/unseen_lengths.h"

#include <cmath>
#include <map>
#include <random>
#include <set>

#include "gtest/gtest.h"

namespace seqpoint {
namespace {

TEST(NoveltyTest, EachValueOpensWhatItsNeighboursDidNot) {
  const LengthHistory history = LengthHistory::Of(std::vector<int64_t>{100, 140, 110, 120});
  EXPECT_EQ(history.step, 10);
  ASSERT_EQ(history.opened.size(), 4u);
  for (const auto& [value, counts] : history.opened) EXPECT_EQ(counts[0], 1) << value;
  for (double count : history.opened[0].second) EXPECT_EQ(count, 1);
  EXPECT_EQ(history.opened[1].second[2], 1);    // 40 apart, buckets of 40
  EXPECT_EQ(history.opened[1].second[3], 0.5);  // buckets of 80
  EXPECT_EQ(history.opened[2].second[1], 0.5);  // 10 from 100, buckets of 20
  EXPECT_EQ(history.opened[2].second[2], 0);    // between 100 and 140
}

// Against counting, with buckets that begin anywhere.
TEST(NoveltyTest, CountsAreMeansOverBorders) {
  std::mt19937 random(1);
  std::vector<int64_t> past;
  std::set<int64_t> distinct;
  while (past.size() < 12) {
    const int64_t value = static_cast<int64_t>(random() % 200);
    if (distinct.insert(value).second) past.push_back(value);
  }
  past.push_back(*distinct.begin() + 1);  // the step is 1
  distinct.insert(past.back());
  std::vector<std::pair<int64_t, double>> coming;
  for (int64_t value = 0; value < 260; value += 7) {
    if (!distinct.contains(value))
      coming.push_back({value, 0.3 + 0.01 * static_cast<double>(value)});
  }
  const LengthHistory history = LengthHistory::Of(past);
  const BucketCounts unseen = history.UnseenAmong(coming);
  int64_t size = 1;
  for (int s = 0; s < kBucketSizes; ++s, size *= 2) {
    double opened = 0, expected = 0;
    for (const auto& [value, counts] : history.opened) opened += counts[s];
    double buckets = 0;
    for (int64_t border = 0; border < size; ++border) {
      std::set<int64_t> past_buckets;
      for (int64_t value : past) past_buckets.insert((value + border) / size);
      buckets += static_cast<double>(past_buckets.size()) / static_cast<double>(size);
      std::map<int64_t, double> new_buckets;
      for (const auto& [value, times] : coming) {
        const int64_t bucket = (value + border) / size;
        if (!past_buckets.contains(bucket)) new_buckets[bucket] += times;
      }
      for (const auto& [bucket, times] : new_buckets) {
        expected += -std::expm1(-times) / static_cast<double>(size);
      }
    }
    EXPECT_NEAR(opened, buckets, 1e-9) << size;
    EXPECT_NEAR(unseen[s], expected, 1e-9) << size;
  }
}

TEST(NoveltyTest, NothingAndExtremes) {
  const LengthHistory nothing = LengthHistory::Of({});
  EXPECT_EQ(nothing.UnseenAmong({})[0], 0);
  EXPECT_EQ(nothing.UnseenAmong(std::vector<std::pair<int64_t, double>>{{5, 100}})[3], 1);
  const LengthHistory far = LengthHistory::Of(std::vector<int64_t>{0, INT64_MAX});
  for (double count : far.opened[1].second) EXPECT_TRUE(std::isfinite(count));
}

}  // namespace
}  // namespace seqpoint
