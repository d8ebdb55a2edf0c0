#include "daemon/seqpoint/projection.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <tuple>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/engine_runs.h"
#include "tests/support/estimates.h"

namespace seqpoint {
namespace {

TEST(RatioOfTest, WidensWithBoth) {
  const auto ratio = RatioOf({50, 49, 51}, {100, 96, 104});
  ASSERT_TRUE(ratio.has_value());
  EXPECT_DOUBLE_EQ(ratio->value, 0.5);
  EXPECT_NEAR(ratio->high, 0.5 + std::hypot(0.01, 0.02), 1e-12);
  EXPECT_FALSE(RatioOf({50, 49, 51}, {1, -1, 3}).has_value());
}

}  // namespace
}  // namespace seqpoint
