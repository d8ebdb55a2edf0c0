#include "injection/nccl/open_arrivals.h"

#include <gtest/gtest.h>

namespace seqpoint::inject {
namespace {

TEST(OpenArrivalsTest, FourFitIntoARecord) {
  OpenArrivals open;
  EXPECT_TRUE(open.empty());
  for (uint32_t i = 0; i < 4; ++i) {
    EXPECT_FALSE(open.full());
    EXPECT_TRUE(open.Add(7, {5, 1000 + 10 * i, 100 + i, static_cast<uint16_t>(1 + i)}));
  }
  EXPECT_TRUE(open.full());
  EXPECT_FALSE(open.Add(7, {5, 2000, 104, 1}));
  const abi::ArrivalsRecord& record = open.record().arrivals;
  EXPECT_EQ(record.type, static_cast<uint16_t>(abi::DataType::kArrivals));
  EXPECT_EQ(record.communicator, 7);
  EXPECT_EQ(record.count, 4);
  EXPECT_EQ(record.base_ns, 1000u);
  EXPECT_EQ(record.iteration, 5u);
  for (uint32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(record.delay_ns[i], 10 * i);
    EXPECT_EQ(record.sequence[i], 100 + i);
    EXPECT_EQ(record.kind[i], 1 + i);
  }
  open.Clear();
  EXPECT_TRUE(open.empty());
}

TEST(OpenArrivalsTest, AnotherIterationDoesNotFit) {
  OpenArrivals open;
  EXPECT_TRUE(open.Add(1, {5, 1000, 0, 1}));
  EXPECT_FALSE(open.Add(1, {6, 1001, 1, 1}));
  EXPECT_EQ(open.record().arrivals.count, 1);
}

TEST(OpenArrivalsTest, NeitherDoesATimeThatCannotBeADelay) {
  OpenArrivals open;
  EXPECT_TRUE(open.Add(1, {5, 1000, 0, 1}));
  EXPECT_FALSE(open.Add(1, {5, 999, 1, 1})) << "the clock was set back";
  EXPECT_TRUE(open.Add(1, {5, 1000 + uint64_t{UINT32_MAX}, 1, 1}));
  EXPECT_FALSE(open.Add(1, {5, 1001 + uint64_t{UINT32_MAX}, 2, 1}));
  EXPECT_FALSE(open.Add(1, {5, 2000, 2, 1})) << "before the last one";
}

TEST(OpenArrivalsTest, ItIsOldAtTheSecondLookWithoutAnArrivalBetween) {
  OpenArrivals open;
  EXPECT_FALSE(open.IsOld());
  EXPECT_FALSE(open.IsOld()) << "empty";
  EXPECT_TRUE(open.Add(1, {5, 1000, 0, 1}));
  EXPECT_FALSE(open.IsOld());
  EXPECT_TRUE(open.Add(1, {5, 1001, 1, 1}));
  EXPECT_FALSE(open.IsOld());
  EXPECT_TRUE(open.IsOld());
}

}  // namespace
}  // namespace seqpoint::inject
