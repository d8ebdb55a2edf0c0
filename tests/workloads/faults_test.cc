#include "tests/workloads/faults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "tests/workloads/schedule.h"

namespace seqpoint::workload {
namespace {

using testing::HasSubstr;

TEST(FaultTest, SaysWhoWhatAndWhen) {
  const Fault slow = *ParseSlow("3:seqpoint::kernels:gemm:1.25@10-20");
  EXPECT_EQ(slow.rank, 3);
  EXPECT_EQ(slow.kernels, "seqpoint::kernels:gemm");
  EXPECT_EQ(slow.factor, 1.25);
  EXPECT_FALSE(slow.Acts(9));
  EXPECT_TRUE(slow.Acts(10) && slow.Acts(20));
  EXPECT_FALSE(slow.Acts(21));
  EXPECT_EQ(ParseSlow("0:kernels:2")->kernels, "");
  EXPECT_TRUE(ParseSlow("0:kernels:2")->Acts(0));
  EXPECT_TRUE(ParseLate("1:host:1.2@5")->Acts(1'000'000));
  EXPECT_FALSE(ParseLate("1:host:1.2@5")->Acts(4));
  EXPECT_EQ(ParseLoader("1:2.5")->factor, 2.5);
  const Fault link = *ParseLink("2-5:0.5@7-7");
  EXPECT_EQ(link.rank, 2);
  EXPECT_EQ(link.other_rank, 5);
  EXPECT_TRUE(link.Acts(7));
  EXPECT_FALSE(link.Acts(8));
  EXPECT_TRUE(ParseHang("1@9")->Acts(9));
  EXPECT_FALSE(ParseDie("1@9")->Acts(10));
}

TEST(FaultTest, MistakesSayWhatIsExpected) {
  for (const char* text :
       {"", "1", "1:kernels", "1::2", "x:kernels:2", "-1:kernels:2", "1:kernels:0", "1:kernels:-2",
        "1:kernels:nan", "1:kernels:2@", "1:kernels:2@x", "1:kernels:2@5-4", "1:kernels:2@5-"}) {
    const auto fault = ParseSlow(text);
    ASSERT_FALSE(fault.ok()) << text;
    EXPECT_THAT(fault.status().message(), HasSubstr("RANK:kernels:FACTOR[@N-M]")) << text;
  }
  for (const char* text : {"1:gpu:2", "1:2"}) EXPECT_FALSE(ParseLate(text).ok()) << text;
  for (const char* text : {"1", "1:2:3", "1:x"}) EXPECT_FALSE(ParseLoader(text).ok()) << text;
  for (const char* text : {"0:0.5", "0-0:0.5", "0-1", "0-1:0"}) {
    EXPECT_FALSE(ParseLink(text).ok()) << text;
  }
  for (const char* text : {"1", "1@", "1@-3", "x@3"}) EXPECT_FALSE(ParseDie(text).ok()) << text;
}

TEST(FaultTest, OnlyRanksThatAreThereHaveFaults) {
  const Faults faults({*ParseLink("0-2:0.5")}, {.rank = 0, .count = 2});
  EXPECT_THAT(faults.Check(true).message(), HasSubstr("a fault of rank 2: there are 2 ranks"));
  const Faults slow({*ParseSlow("1:kernels:2")}, {.rank = 0, .count = 2});
  EXPECT_TRUE(slow.Check(true).ok());
  EXPECT_FALSE(slow.Check(/*software_gpu=*/false).ok());
}

TEST(FaultTest, LoadersAreLateInTheirIterationsAndOnTheirRank) {
  const std::vector<Fault> both = {*ParseLoader("1:20@3-4"), *ParseLoader("1:5@4")};
  const Faults other(both, {.rank = 0, .count = 2}), own(both, {.rank = 1, .count = 2});
  for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(other.LoaderDelayNs(i), 0u);
  EXPECT_EQ(own.LoaderDelayNs(2), 0u);
  EXPECT_EQ(own.LoaderDelayNs(3), 20'000'000u);
  EXPECT_EQ(own.LoaderDelayNs(4), 25'000'000u);
  EXPECT_EQ(own.LoaderDelayNs(5), 5'000'000u);
}

TEST(ScheduleTest, RanksWithLengthsOfTheirOwnShareTheExamples) {
  Options options;
  options.model.batch = 3;
  options.accumulate = 2;
  options.own_lengths = true;
  const LengthTable table(100, {7});
  std::set<uint64_t> seen;
  size_t taken = 0;
  for (int rank = 0; rank < 4; ++rank) {
    const Schedule schedule = MakeSchedule(options, table, {.rank = rank, .count = 4});
    // 34 batches are four groups of two for each of four ranks, and two that are left out.
    EXPECT_EQ(schedule.iterations.size(), 4u);
    for (const Batch& batch : schedule.batches) {
      for (const Example& example : batch.examples) {
        seen.insert(example.id);
        ++taken;
      }
    }
  }
  EXPECT_EQ(seen.size(), taken) << "an example twice";
  EXPECT_EQ(taken, 4u * 4 * 2 * 3);
  options.own_lengths = false;
  const Schedule shared = MakeSchedule(options, table, {.rank = 3, .count = 4});
  EXPECT_EQ(shared.iterations.size(), 17u);
}

}  // namespace
}  // namespace seqpoint::workload
