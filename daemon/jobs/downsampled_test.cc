#include "daemon/jobs/downsampled.h"

#include <gtest/gtest.h>

#include <map>

namespace seqpoint::jobs {
namespace {

std::vector<Measured> Many(int keys, int of_each) {
  std::vector<Measured> all;
  for (int i = 0; i < keys * of_each; ++i) {
    all.push_back({static_cast<uint64_t>(i), Key{i % keys, 0}, {1.0 * (i % keys), 1.0 * i}});
  }
  return all;
}

TEST(Downsampled, FewStayAsTheyAre) { EXPECT_EQ(Downsampled(Many(3, 4), 12).size(), 12u); }

TEST(Downsampled, OfAKeyMeansAreKept) {
  const std::vector<Measured> fewer = Downsampled(Many(5, 100), 20);
  ASSERT_EQ(fewer.size(), 20u);
  std::map<Key, double> sums;
  for (const Measured& one : fewer) {
    EXPECT_EQ(one.values[0], one.key.first);
    sums[one.key] += one.values[1] / 4;
  }
  ASSERT_EQ(sums.size(), 5u);
  // Key k has k, k + 5, ..., k + 495.
  for (const auto& [key, mean] : sums) EXPECT_NEAR(mean, key.first + 247.5, 1e-9);
}

TEST(Downsampled, OfTooManyKeysSomeStayAllAcross) {
  const std::vector<Measured> fewer = Downsampled(Many(1000, 2), 10);
  ASSERT_EQ(fewer.size(), 10u);
  for (size_t i = 0; i < fewer.size(); ++i) EXPECT_EQ(fewer[i].key.first / 100, i);
}

TEST(Downsampled, EachIsInOneGroup) {
  const std::vector<std::vector<size_t>> groups = Groups({{4, 0}, {2, 0}, {4, 0}, {4, 0}}, 3);
  EXPECT_EQ(groups, (std::vector<std::vector<size_t>>{{1}, {0, 3}, {2}}));
}

TEST(Downsampled, RareKeysAreNotLost) {
  std::vector<Measured> all = Many(1, 1000);
  all.push_back({5000, Key{77, 0}, {77, 3}});
  const std::vector<Measured> fewer = Downsampled(all, 8);
  EXPECT_EQ(fewer.back().key.first, 77);
  EXPECT_EQ(fewer.back().values[1], 3);
  EXPECT_LE(fewer.size(), 8u);
}

}  // namespace
}  // namespace seqpoint::jobs
