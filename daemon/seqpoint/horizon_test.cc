#include "daemon/seqpoint/horizon.h"

#include "gtest/gtest.h"

namespace seqpoint {
namespace {

TEST(HorizonTest, HasEachKeyOnceInOrder) {
  const absl::StatusOr<Horizon> h =
      Horizon::Checked(Horizon::Histogram({{{9}, 2}, {{4}, 1}, {{9}, 3}, {{5}, 0}}, 2));
  ASSERT_TRUE(h.ok());
  EXPECT_EQ(h->iterations, 12);
  ASSERT_EQ(h->histogram.size(), 2u);
  EXPECT_EQ(h->histogram[0].key, Key{4});
  EXPECT_EQ(h->histogram[1].count, 10);
}

TEST(HorizonTest, WithoutIterationsItIsUnknown) {
  EXPECT_EQ(Horizon::Checked(Horizon::Histogram({}))->kind, Horizon::Kind::kUnknown);
}

TEST(HorizonTest, RefusesWhatIsNegativeOrOverflows) {
  EXPECT_TRUE(absl::IsInvalidArgument(Horizon::Checked(Horizon::Iterations(-1)).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(Horizon::Checked(Horizon::Histogram({{{-3}, 1}})).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(
      Horizon::Checked(Horizon::Histogram({{{3}, INT64_MAX / 2}}, 3)).status()));
}

}  // namespace
}  // namespace seqpoint
