#include "daemon/jobs/process_collectives.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace seqpoint::jobs {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

// One communicator of two ranks, and a kind of collectives and of sends.
class ProcessCollectivesTest : public testing::Test {
 protected:
  ProcessCollectivesTest() {
    EXPECT_TRUE(collectives_.OnCommunicator(
        {.communicator = 1, .rank = 1, .ranks = 2, .hash = 0xABC}, "data parallel"));
    EXPECT_TRUE(collectives_.OnKind({.kind = 1, .peer = -1}, 11, "AllReduce", "ncclFloat32"));
    EXPECT_TRUE(collectives_.OnKind({.kind = 2, .peer = 0}, 12, "Send", "ncclInt8"));
  }
  // The host calls the operations numbered `sequences`.
  bool Call(uint64_t iteration, const std::vector<uint32_t>& sequences, uint16_t kind = 1,
            bool timed = true) {
    abi::DataRecord record = {};
    record.arrivals = {.type = static_cast<uint16_t>(abi::DataType::kArrivals),
                       .communicator = 1,
                       .count = static_cast<uint8_t>(sequences.size()),
                       .timed = static_cast<uint8_t>(timed ? sequences.size() : 0),
                       .base_ns = 1000 * iteration,
                       .iteration = iteration};
    for (size_t i = 0; i < sequences.size(); ++i) {
      record.arrivals.delay_ns[i] = static_cast<uint32_t>(i);
      record.arrivals.sequence[i] = sequences[i];
      record.arrivals.kind[i] = kind;
    }
    return collectives_.OnRecord(record);
  }
  // The GPU has done one.
  bool Time(uint64_t iteration, uint32_t sequence, uint16_t kind = 1) {
    abi::DataRecord record = {};
    record.collective = {.type = static_cast<uint16_t>(abi::DataType::kCollective),
                         .communicator = 1,
                         .kind = kind,
                         .channels = 1,
                         .iteration = iteration,
                         .gpu_start_ns = 10 * sequence,
                         .gpu_end_ns = 10 * sequence + 7,
                         .sequence = sequence};
    return collectives_.OnRecord(record);
  }
  void End(uint64_t iteration) {
    collectives_.OnIteration(
        iteration,
        {.number = static_cast<int64_t>(iteration) + 100, .rank = 5, .duration_ns = 1'000'000});
  }

  // The ring is read, and nothing is left behind.
  std::vector<ranks::RankIteration> Read() {
    collectives_.OnRead();
    return collectives_.TakeJoined(false);
  }

  ProcessCollectives collectives_;
};

TEST_F(ProcessCollectivesTest, AnIterationIsJoinedOnceTheReadingAfterItsEndWasMade) {
  Call(7, {40, 41});
  Time(7, 40);
  End(7);
  End(8);
  EXPECT_THAT(Read(), IsEmpty()) << "a time is missing";
  Time(7, 41);
  const auto joined = Read();
  ASSERT_THAT(joined, SizeIs(1));
  EXPECT_EQ(joined[0].number, 107);
  EXPECT_EQ(joined[0].rank, 5);
  EXPECT_FALSE(joined[0].distorted);
  ASSERT_THAT(joined[0].collectives, SizeIs(2));
  const ranks::Collective& second = joined[0].collectives[1];
  EXPECT_EQ(second.communicator, 0xABCu);
  EXPECT_EQ(second.kind, 11u);
  EXPECT_EQ(second.sequence, 41u);
  EXPECT_EQ(second.peer, -1);
  EXPECT_EQ(second.start_ns, 410);
  EXPECT_EQ(second.end_ns, 417);
  EXPECT_THAT(Read(), IsEmpty());
  EXPECT_EQ(collectives_.incomplete(), 0);
}

TEST_F(ProcessCollectivesTest, AReadingMayDeliverTheEndOfManyIterationsBeforeTheirRecords) {
  for (uint64_t i = 0; i < 500; ++i) End(i);
  EXPECT_THAT(collectives_.TakeJoined(false), IsEmpty());
  for (uint32_t i = 0; i < 500; ++i) {
    Call(i, {i});
    Time(i, i);
  }
  const auto joined = Read();
  ASSERT_THAT(joined, SizeIs(499)) << "the last one may call more";
  for (const ranks::RankIteration& iteration : joined)
    EXPECT_THAT(iteration.collectives, SizeIs(1));
  EXPECT_THAT(collectives_.TakeJoined(/*ended=*/true), SizeIs(1));
  EXPECT_EQ(collectives_.incomplete(), 0);
}

TEST_F(ProcessCollectivesTest, OneThatLacksATimeIsDistortedAndCounted) {
  Call(7, {40, 41});
  Time(7, 40);
  End(7);
  End(8);
  for (int i = 0; i < ProcessCollectives::kPatience; ++i) EXPECT_THAT(Read(), IsEmpty());
  const auto joined = Read();
  ASSERT_THAT(joined, SizeIs(2)) << "the iteration behind it comes in its turn";
  EXPECT_TRUE(joined[0].distorted);
  EXPECT_EQ(collectives_.incomplete(), 1);
  Time(7, 41);
  EXPECT_THAT(Read(), IsEmpty()) << "a time that comes too late is dropped";
}

TEST_F(ProcessCollectivesTest, IterationsThatAreNotTimedComeInTheirTurn) {
  Call(0, {0});
  End(0);
  Call(1, {1}, 1, /*timed=*/false);
  End(1);
  End(2);
  EXPECT_THAT(Read(), IsEmpty()) << "the first one lacks its time";
  Time(0, 0);
  const auto joined = Read();
  ASSERT_THAT(joined, SizeIs(2));
  EXPECT_THAT(joined[0].collectives, SizeIs(1));
  EXPECT_THAT(joined[1].collectives, IsEmpty());
  EXPECT_FALSE(joined[1].distorted);
  EXPECT_EQ(collectives_.incomplete(), 0);
  EXPECT_EQ(collectives_.operations(), 2);
}

TEST_F(ProcessCollectivesTest, FloodsAreBoundedAndCounted) {
  // Iterations that never end.
  for (uint64_t i = 0; i < 10'000; ++i) Time(i, 1);
  EXPECT_GT(collectives_.incomplete(), 5'000);
  for (uint32_t i = 0; i < 2 * ProcessCollectives::kMostOperations; ++i) Time(20'000, i);
  EXPECT_GT(collectives_.incomplete(), 5'901);
}

// Ranks number the collectives of their communicator alike, and not their iterations.
TEST_F(ProcessCollectivesTest, AnotherRankRanTheSameCollectivesInOneOfItsIterations) {
  ProcessCollectives other;
  EXPECT_TRUE(
      other.OnCommunicator({.communicator = 4, .rank = 0, .ranks = 2, .hash = 0xABC}, "dp"));
  EXPECT_TRUE(other.OnKind({.kind = 9, .peer = -1}, 11, "AllReduce", "ncclFloat32"));
  EXPECT_TRUE(other.OnKind({.kind = 8, .peer = -1}, 13, "AllGather", "ncclFloat32"));
  EXPECT_EQ(collectives_.SameIteration(other), std::nullopt);
  const auto call = [&](uint64_t iteration, uint16_t kind, uint32_t sequence) {
    abi::DataRecord record = {};
    record.arrivals = {.type = static_cast<uint16_t>(abi::DataType::kArrivals),
                       .communicator = 4,
                       .count = 1,
                       .iteration = iteration};
    record.arrivals.kind[0] = kind;
    record.arrivals.sequence[0] = sequence;
    EXPECT_TRUE(other.OnRecord(record));
  };
  Call(0, {198});  // iterations before the first boundary
  Call(0, {199});
  call(0, 9, 199);
  EXPECT_EQ(collectives_.SameIteration(other), std::nullopt);
  call(UINT64_MAX, 9, 201);  // a damaged record
  Call(20, {200, 201});
  Call(21, {202, 203});
  call(3, 8, 202);  // another function has numbers of its own
  EXPECT_EQ(collectives_.SameIteration(other), std::nullopt);
  call(4, 9, 202);
  call(4, 9, 203);
  EXPECT_EQ(collectives_.SameIteration(other), std::pair(uint64_t{21}, uint64_t{4}));
}

TEST_F(ProcessCollectivesTest, RecordsOfAnUnknownCommunicatorAreRejected) {
  abi::DataRecord record = {};
  record.arrivals = {
      .type = static_cast<uint16_t>(abi::DataType::kArrivals), .communicator = 2, .count = 1};
  EXPECT_FALSE(collectives_.OnRecord(record));
}

TEST_F(ProcessCollectivesTest, ARecordIsNamedAsNcclDoes) {
  ASSERT_TRUE(collectives_.OnKind({.kind = 3, .peer = -1, .elements = 1000}, 13, "AllGather",
                                  "ncclFloat8e4m3"));
  const abi::CollectiveRecord record = {
      .communicator = 1, .kind = 3, .gpu_start_ns = 5, .gpu_end_ns = 9, .sequence = 7};
  const auto named = NamedCollective(record, collectives_.names());
  ASSERT_TRUE(named);
  EXPECT_EQ(named->communicator, 0xABCu);
  EXPECT_EQ(named->function, "AllGather");
  EXPECT_EQ(named->bytes, 1000u);
  EXPECT_EQ(named->own, 1);
  EXPECT_EQ(named->end_ns, 9);
  EXPECT_FALSE(NamedCollective({.communicator = 2, .kind = 3}, collectives_.names()));
  EXPECT_FALSE(NamedCollective({.communicator = 1, .kind = 4}, collectives_.names()));
}

TEST_F(ProcessCollectivesTest, TheLastCallsOutliveTheDaemon) {
  Call(7, {40, 42});
  Call(7, {41});  // records come in any order
  Call(8, {0, 1}, /*kind=*/2);
  ProcessCollectives later;
  later.Load(collectives_.Save());
  ASSERT_THAT(later.calls(), SizeIs(1));
  const auto& [rank, calls] = later.calls().at(0xABC);
  EXPECT_EQ(rank, 1);
  EXPECT_EQ(calls.at({"AllReduce"}).number, 43);
  EXPECT_EQ(calls.at({"AllReduce"}).at_ns, 7001);
  EXPECT_EQ(calls.at({"Send", 0}).number, 2);
}

}  // namespace
}  // namespace seqpoint::jobs
