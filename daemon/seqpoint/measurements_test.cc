#include "daemon/seqpoint/measurements.h"

#include <cmath>

#include "gtest/gtest.h"

namespace seqpoint {
namespace {

TEST(MeasurementsTest, ARefusedIterationIsSpentTwoSetsOfOneAreOne) {
  Measurements m;
  m.Add(1, 7, {5}, {2.0, 3.0});
  m.Add(2, 7, {5}, {4.0});
  m.Refuse(8);
  EXPECT_EQ(m.spent.size(), 2u);
  EXPECT_EQ(m.used, 2u);
  EXPECT_EQ(m.refused, 1u);
  EXPECT_EQ(m.Of(1).size(), 1u);
  EXPECT_TRUE(m.Of(3).empty());
}

TEST(MeasurementsTest, VectorsOfASetMayGrow) {
  Measurements m;
  m.Add(0, 1, {5}, {2.0});
  m.Add(0, 2, {6}, {1.0, 10.0});
  EXPECT_EQ(m.Sums(0), (std::vector<double>{3, 10}));
}

TEST(MeasurementsTest, RefusesWhatIsNoNumberAndWhatIsTooMuch) {
  Measurements m;
  EXPECT_TRUE(absl::IsInvalidArgument(m.Check(0, 1, {NAN})));
  EXPECT_TRUE(absl::IsResourceExhausted(m.Check(0, 1, std::vector<double>(kMaxValues + 1, 1.0))));
  for (uint32_t set = 0; set < kMaxSets; ++set) m.Add(set, 1, {5}, {1.0});
  EXPECT_TRUE(m.Check(0, 1, {1.0}).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(m.Check(kMaxSets, 1, {1.0})));
}

}  // namespace
}  // namespace seqpoint
