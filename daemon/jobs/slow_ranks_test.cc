#include "daemon/jobs/slow_ranks.h"

#include <cstdint>
#include <limits>
#include <map>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace seqpoint::jobs {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::infinity();

std::map<int32_t, std::vector<int64_t>> Measured(const std::vector<int64_t>& of_each) {
  std::map<int32_t, std::vector<int64_t>> measured;
  for (int32_t rank = 0; rank < 4; ++rank) measured[rank] = of_each;
  return measured;
}

// Four ranks whose kernels take 1,000 in all, of which rank 2's become slower.
Estimate Asked(const SlowSpan& span, const std::vector<int64_t>& of_each, int64_t iterations) {
  const auto measured = Measured(of_each);
  const auto count = static_cast<int32_t>(4 * of_each.size());
  const SlowShares shares = SharesOf(span, measured, count, 4, 0, iterations);
  return WithSpan({1000, 990, 1010}, span, shares, /*kernel_times=*/true);
}

TEST(SlowRanks, WhatNoMeasurementSawIsInTheInterval) {
  const SlowSpan span = {.rank = 2, .first = 500, .most = 2.1, .all = 2};
  const Estimate e = Asked(span, {100, 200, 300, 400}, 1000);
  // An eighth of the work takes twice as long.
  EXPECT_NEAR(e.value, 1125, 1e-9);
  EXPECT_NEAR(e.low, 990, 1e-9);
  EXPECT_NEAR(e.high, 1010 * (1 + 1.1 / 8), 1e-9);
  EXPECT_EQ(SpanInWords(span, Measured({100, 200, 300, 400, 600}), 20),
            "rank 2 became slower at iteration 500; 4 of its 5 measurements are of iterations "
            "before it, so intervals are wider: they hold its slower part");
}

TEST(SlowRanks, MeasurementsOfBothPartsMayCountByAnyShare) {
  const Estimate e =
      Asked({.rank = 2, .first = 500, .most = 2.1, .all = 2}, {100, 300, 600, 900}, 1000);
  EXPECT_NEAR(e.value, 1000, 1e-9);
  // Where the slow rank has the shortest and longest lengths, its measurements decide alone.
  EXPECT_NEAR(e.low, 990 * (1 + 1.1 / 8) / 2.1, 1e-9);
  EXPECT_NEAR(e.high, 1010 * (1 + 1.1 / 8), 1e-9);
}

TEST(SlowRanks, TooManyMeasurementsOfTheSlowPartLowerTheFigure) {
  // All of rank 2's are slow: 1.25 of what an even run takes, where 1.05 is true.
  const Estimate e = Asked({.rank = 2, .first = 800, .most = 2, .all = 2}, {900, 950}, 1000);
  EXPECT_NEAR(e.value, 1000 * 1.05 / 1.25, 1e-9);
  EXPECT_NEAR(e.low, 990 * 1.05 / 2, 1e-9);
  EXPECT_NEAR(e.high, 1010 * 1.05, 1e-9);
}

TEST(SlowRanks, WithoutAFactorThereIsNoUpperBound) {
  const SlowSpan span = {.rank = 2, .first = 500, .most = kUnknown};
  const Estimate e = Asked(span, {100, 200}, 1000);
  EXPECT_EQ(e.value, 1000);
  EXPECT_EQ(e.low, 990);
  EXPECT_EQ(e.high, kUnknown);
  EXPECT_THAT(SpanInWords(span, Measured({100}), 4), testing::HasSubstr("no upper bound is known"));
}

TEST(SlowRanks, MeasurementsOfUnknownRanksMayBeOfEitherPart) {
  const SlowSpan span = {.rank = 2, .first = 500, .most = 2};
  const SlowShares shares = SharesOf(span, {}, 8, 4, 0, 1000);
  EXPECT_EQ(shares.measured.low, 0);
  EXPECT_EQ(shares.measured.high, 1);
  EXPECT_THAT(SpanInWords(span, {}, 8),
              testing::HasSubstr("of 8 of the 8 measurements the rank is not known"));
}

TEST(SlowRanks, CollectivesAreUnboundedUnlessTheWholeRunIsSlow) {
  const auto measured = Measured({100, 300});
  SlowSpan span = OfCollectives({.rank = 2, .first = 500, .most = 1});
  Estimate e = WithSpan({1000, 990, 1010}, span, SharesOf(span, measured, 8, 4, 0, 1000), false);
  EXPECT_NEAR(e.low, 495, 1e-9) << "nobody waits in the other half";
  EXPECT_EQ(e.high, kUnknown);
  span.first = 0;
  e = WithSpan({1000, 990, 1010}, span, SharesOf(span, measured, 8, 4, 0, 1000), false);
  EXPECT_NEAR(e.low, 990, 1e-9);
  EXPECT_NEAR(e.high, 1010, 1e-9);
}

TEST(SlowRanks, InAnotherRunItMayBeSlowOrNot) {
  const SlowSpan span = {.rank = 2, .first = 500, .most = 2, .all = 2};
  const auto measured = Measured({100, 200});
  const Estimate e =
      WithSpan({1000, 1000, 1000}, span, SharesOf(span, measured, 8, 4, 0, -1), true);
  EXPECT_NEAR(e.low, 1000, 1e-9);
  EXPECT_NEAR(e.high, 1250, 1e-9);
}

}  // namespace
}  // namespace seqpoint::jobs
