#include "daemon/jobs/length_scale.h"

#include <random>

#include "daemon/base/horizon.h"
#include "gtest/gtest.h"

namespace seqpoint::jobs {
namespace {

TEST(FindScale, BytesOfACopyBecomeTokens) {
  const Histogram1 expected = {{10, 50}, {11, 80}, {12, 60}, {13, 10}};
  Histogram1 observed;
  for (const auto& [length, count] : expected) observed[length * 4 * 128] = count / 10;
  const auto scale = FindScale(observed, expected);
  ASSERT_TRUE(scale.has_value());
  EXPECT_EQ(scale->factor, 512);
}

TEST(FindScale, AmongSeveralFactorsTheLargestWins) {
  // Every multiple is a length, so 100 and 200 both map onto known lengths.
  Histogram1 expected, observed;
  for (int length = 1; length <= 50; ++length) expected[length] = 10;
  for (int length = 2; length <= 25; ++length) observed[length * 200] = 1;
  const auto scale = FindScale(observed, expected);
  ASSERT_TRUE(scale.has_value());
  EXPECT_EQ(scale->factor, 200);
}

TEST(FindScale, AFewValuesAreNotEnough) {
  Histogram1 expected;
  for (int length = 1; length <= 50; ++length) expected[length] = 10;
  EXPECT_FALSE(FindScale({{512, 40}, {1024, 10}}, expected).has_value());
}

TEST(FindScale, ASmallLastBatchDoesNotPreventTheMatch) {
  const Histogram1 expected = {{10, 500}, {11, 500}};
  const Histogram1 observed = {{5120, 60}, {5632, 60}, {10 * 4 * 17, 1}};
  const auto scale = FindScale(observed, expected);
  ASSERT_TRUE(scale.has_value());
  EXPECT_EQ(scale->factor, 512);
}

TEST(FindScale, TheFirstLengthsOfASortedDataSetAreNotStretchedOverAllOfIt) {
  Histogram1 expected, observed;
  for (int length = 1; length <= 100; ++length) expected[length] = 10;
  for (int length = 5; length <= 20; ++length) observed[length * 128] = 10;
  const auto scale = FindScale(observed, expected);
  ASSERT_TRUE(scale.has_value());
  EXPECT_EQ(scale->factor, 128);
}

TEST(FindScale, RoundedGridsDoNotMatch) {
  Histogram1 expected, observed;
  for (int length = 10; length <= 60; ++length) {
    expected[length] = 5;
    observed[(length * 100 + 255) / 256] += 1;
  }
  EXPECT_FALSE(FindScale(observed, expected).has_value());
}

TEST(FindScale, NothingSeenOrExpectedGivesNothing) {
  EXPECT_FALSE(FindScale({}, {{1, 1}}).has_value());
  EXPECT_FALSE(FindScale({{1, 1}}, {}).has_value());
  EXPECT_FALSE(FindScale({{0, 5}}, {{0, 5}}).has_value());
}

TEST(FindScaleOfSums, FindsTheUnitOfSumsThatNeverComeTwice) {
  std::mt19937 random(1);
  Histogram1 observed, expected;
  const auto sum = [&] {
    int64_t total = 0;
    for (int i = 0; i < 4; ++i) total += 20 + static_cast<int64_t>(random() % 60);
    return total;
  };
  for (int i = 0; i < 40; ++i) ++observed[128 * sum()];
  for (int i = 0; i < 4000; ++i) ++expected[sum()];
  const auto scale = FindScaleOfSums(observed, expected);
  ASSERT_TRUE(scale.has_value());
  EXPECT_EQ(scale->factor, 128);
}

TEST(FindScaleOfSums, ASortedStartGivesNone) {
  Histogram1 observed, expected;
  for (int i = 0; i < 20; ++i) ++observed[128 * (80 + i)];
  for (int i = 0; i < 1000; ++i) ++expected[80 + i];
  EXPECT_FALSE(FindScaleOfSums(observed, expected).has_value());
}

TEST(NaturalUnit, IsTheGreatestCommonDivisor) {
  EXPECT_EQ(NaturalUnit({{5120, 1}, {5632, 1}}), 512);
  EXPECT_EQ(NaturalUnit({}), 1);
  EXPECT_EQ(NaturalUnit({{0, 3}}), 1);
}

TEST(FindScale, NoFactorMakesALengthOverflow) {
  constexpr int64_t kHuge = int64_t{1} << 52;
  EXPECT_EQ(ScaledLength(kHuge, 2), kMaxLength);
  EXPECT_FALSE(ScaledLength(kHuge, 3).has_value());
  EXPECT_FALSE(ScaledLength(-1, 3).has_value());
  EXPECT_EQ(ScaledLength(kHuge, 0), 0);
  // 512 maps all lengths but the longest, which then is none.
  Histogram1 expected = {{10, 50}, {11, 50}}, observed = {{5120, 60}, {5632, 60}};
  ASSERT_TRUE(FindScale(observed, expected).has_value());
  expected[kHuge] = 1;
  EXPECT_FALSE(FindScale(observed, expected).has_value());
}

TEST(NaturalUnit, ASmallLastBatchIsLeftOut) {
  Histogram1 observed;
  for (int length = 20; length < 60; ++length) observed[length * 256] = 1 + length % 3;
  observed[57 * 4 * 8] = 1;
  EXPECT_EQ(NaturalUnit(observed), 256);
  // Too many to be that.
  for (int length = 20; length < 30; ++length) observed[length * 128 + 8] = 5;
  EXPECT_EQ(NaturalUnit(observed), 8);
}

TEST(NaturalUnit, ValuesThatNoLengthHasAreLeftOut) {
  EXPECT_EQ(NaturalUnit({{INT64_MIN, 1}, {-7, 3}, {0, 1}, {12, 1}, {18, 1}}), 6);
}

}  // namespace
}  // namespace seqpoint::jobs
