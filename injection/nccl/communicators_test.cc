#include "injection/nccl/communicators.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "tests/support/test_ring.h"

namespace seqpoint::inject {
namespace {

constexpr CommunicatorId kWorld = {"world", 0xABC, 1, 8, 2};

Operation AllReduce(uint64_t sequence, uint16_t channels = 2) {
  return {.function = "AllReduce",
          .datatype = "ncclFloat32",
          .algorithm = "RING",
          .protocol = "LL",
          .elements = 1000,
          .sequence = sequence,
          .channels = channels};
}

class CommunicatorsTest : public ::testing::Test {
 protected:
  CommunicatorsTest() { masks_.SetWish(true, 2, 1); }
  std::vector<abi::CommunicatorEvent> Announced() {
    return ring_.Events<abi::CommunicatorEvent>(abi::EventType::kCommunicator);
  }
  size_t CountArrivals() {
    size_t count = 0;
    for (const abi::DataRecord& record : ring_.Collectives()) {
      if (record.type == static_cast<uint16_t>(abi::DataType::kArrivals)) {
        count += record.arrivals.count;
      }
    }
    return count;
  }

  NcclHandle Open(const CommunicatorId& id, int version) {
    return table_.Open(id, version, &mask_);
  }
  void End(const NcclHandle& communicator) {
    communicators_->Flush(communicator);
    table_.Close(communicator);
  }

  TestRing ring_;
  int mask_ = 0;
  CommunicatorTable table_;
  Features features_{&ring_.writer};
  Cupti cupti_ = {};
  Clock clock_{&cupti_, &ring_.writer};
  ActivationMasks masks_;
  std::unique_ptr<Communicators> communicators_ = std::make_unique<Communicators>(
      Communicators::Parts{&table_, &clock_, &masks_, &ring_.writer, &features_});
};

TEST_F(CommunicatorsTest, ACommunicatorIsToldWithItsFirstOperation) {
  const NcclHandle world = Open(kWorld, 6);
  EXPECT_TRUE(Announced().empty());
  for (uint64_t i = 0; i < 6; ++i) communicators_->OnOperation(world, AllReduce(i));
  ASSERT_EQ(Announced().size(), 1u);
  EXPECT_EQ(Announced()[0].hash, 0xABCu);
  EXPECT_EQ(Announced()[0].rank, 1);
  EXPECT_EQ(Announced()[0].ranks, 8);
  EXPECT_EQ(Announced()[0].nodes, 2);
  EXPECT_EQ(CountArrivals(), 4u) << "two are in the open record";
  End(world);
  EXPECT_EQ(CountArrivals(), 6u);
  communicators_->OnOperation(world, AllReduce(6));
  EXPECT_EQ(CountArrivals(), 6u) << "events that come after the end do nothing";
}

TEST_F(CommunicatorsTest, OldVersionsTellTheCommunicatorWithTheOperation) {
  const NcclHandle world = Open({}, 2);
  Operation operation = AllReduce(0);
  operation.communicator = {"late", 77, 3, 0, 0};
  communicators_->OnOperation(world, operation);
  ASSERT_EQ(Announced().size(), 1u);
  EXPECT_EQ(Announced()[0].hash, 77u);
  EXPECT_EQ(Announced()[0].rank, 3);
}

TEST_F(CommunicatorsTest, OpenRecordsAreWrittenWhenTheyAreOldAndAtTheEnd) {
  const NcclHandle world = Open(kWorld, 6);
  communicators_->OnOperation(world, AllReduce(0));
  communicators_->WriteOld();
  EXPECT_EQ(CountArrivals(), 0u);
  communicators_->WriteOld();
  EXPECT_EQ(CountArrivals(), 1u);
  communicators_->OnOperation(world, AllReduce(1));
  communicators_->WriteAll();
  EXPECT_EQ(CountArrivals(), 2u);
}

TEST_F(CommunicatorsTest, ANewIterationBeginsANewRecord) {
  const NcclHandle world = Open(kWorld, 6);
  communicators_->OnOperation(world, AllReduce(0));
  masks_.OnBoundary(2);
  communicators_->OnOperation(world, AllReduce(1));
  EXPECT_EQ(CountArrivals(), 1u);
}

TEST_F(CommunicatorsTest, BeyondTheRoomNothingIsRecordedWhichIsSaid) {
  std::vector<NcclHandle> all;
  for (int i = 0; i < CommunicatorTable::kAtATime; ++i) all.push_back(Open(kWorld, 6));
  const NcclHandle one_more = Open(kWorld, 6);
  EXPECT_NE(one_more.Pack(), nullptr) << "NCCL ends no communicator without a context";
  for (uint64_t i = 0; i < 5; ++i) communicators_->OnOperation(one_more, AllReduce(i));
  End(one_more);
  EXPECT_EQ(CountArrivals(), 0u);
  EXPECT_EQ(ring_.Events<abi::FeatureEvent>(abi::EventType::kFeature).size(), 1u);
  communicators_->OnOperation(all[17], AllReduce(0));
  End(all[17]);
  const NcclHandle later = Open(kWorld, 6);
  EXPECT_EQ(later.slot, 17);
  communicators_->OnOperation(later, AllReduce(0));
  communicators_->OnOperation(all[17], AllReduce(1));
  ASSERT_EQ(Announced().size(), 2u);
  EXPECT_EQ(Announced()[1].communicator, 257u) << "numbers are never used again";
  communicators_->WriteAll();
  EXPECT_EQ(CountArrivals(), 2u);
}

TEST_F(CommunicatorsTest, ChannelsTellFromTheFirstStartToTheLastEnd) {
  const NcclHandle world = Open(kWorld, 6);
  EXPECT_EQ(communicators_->OnOperation(world, AllReduce(4)), nullptr) << "channels are off";
  masks_.OnBoundary(1);
  const NcclHandle operation = NcclHandle::Unpack(communicators_->OnOperation(world, AllReduce(5)));
  ChannelTimes& channels = communicators_->channels();
  const NcclHandle first = NcclHandle::Unpack(channels.OnStart(operation, 120));
  const NcclHandle second = NcclHandle::Unpack(channels.OnStart(operation, 100));
  channels.OnStop(second, 300);
  EXPECT_TRUE(ring_.Collectives().size() <= 1u) << "one channel still runs";
  channels.OnStop(first, 290);
  channels.OnStop(first, 999);  // as a stop that comes once more
  EXPECT_EQ(channels.OnStart(operation, 1), nullptr);
  const abi::CollectiveRecord record = ring_.Collectives().back().collective;
  EXPECT_EQ(record.type, static_cast<uint16_t>(abi::DataType::kCollective));
  EXPECT_EQ(record.gpu_start_ns, 100u);
  EXPECT_EQ(record.gpu_end_ns, 300u);
  EXPECT_EQ(record.sequence, 5u);
  EXPECT_EQ(record.iteration, 1u);
  EXPECT_EQ(record.channels, 2u);
}

TEST_F(CommunicatorsTest, AnOperationOfTheHostsHasItsTimes) {
  const NcclHandle group = Open(kWorld, 0);
  const NcclHandle first =
      NcclHandle::Unpack(communicators_->OnHostOperation(group, AllReduce(7, 0)));
  const NcclHandle second =
      NcclHandle::Unpack(communicators_->OnHostOperation(group, AllReduce(8, 0)));
  const uint64_t end_ns = clock_.NowNs() + 1000;
  communicators_->channels().OnHostEnd(second, end_ns);
  communicators_->channels().OnHostEnd(second, end_ns + 1);
  communicators_->channels().OnHostEnd(first, 1);
  EXPECT_EQ(ring_.writer.header()->invalid_timestamps, 1u) << "the clock was set";
  const std::vector<abi::DataRecord> records = ring_.Collectives();
  ASSERT_EQ(records.size(), 1u);
  const abi::CollectiveRecord& record = records[0].collective;
  EXPECT_EQ(record.channels, 0);
  EXPECT_EQ(record.sequence, 8u);
  EXPECT_EQ(record.gpu_start_ns, record.host_ns);
  EXPECT_EQ(record.gpu_end_ns, end_ns);
  EXPECT_EQ(Announced()[0].version, 0u);
}

// A plugin of the user's may have NCCL tell them.
TEST_F(CommunicatorsTest, NothingIsRecordedWhileTheLevelWantsNothing) {
  const NcclHandle world = Open(kWorld, 6);
  masks_.SetWish(false, 0, 0);
  communicators_->OnOperation(world, AllReduce(0));
  EXPECT_EQ(communicators_->OnHostOperation(world, AllReduce(0)), nullptr);
  communicators_->WriteAll();
  EXPECT_EQ(CountArrivals(), 0u);
  EXPECT_TRUE(Announced().empty());
}

TEST_F(CommunicatorsTest, TimesThatMakeNoSenseAreCounted) {
  masks_.OnBoundary(1);
  const NcclHandle world = Open(kWorld, 6);
  ChannelTimes& channels = communicators_->channels();
  const auto run = [&](uint64_t start_ns, uint64_t end_ns) {
    void* operation = communicators_->OnOperation(world, AllReduce(0, 1));
    channels.OnStop(NcclHandle::Unpack(channels.OnStart(NcclHandle::Unpack(operation), start_ns)),
                    end_ns);
  };
  run(0, 10);
  run(20, 10);
  EXPECT_EQ(ring_.writer.header()->invalid_timestamps, 2u);
  channels.OnStop({NcclHandle::Kind::kChannel, 0, 4711}, 5);
  EXPECT_EQ(channels.OnStart({NcclHandle::Kind::kOperation, 0, 4711}, 5), nullptr);
}

TEST_F(CommunicatorsTest, OperationsThatNeverEndAreCountedWhenTheirPlaceIsNeeded) {
  masks_.OnBoundary(1);
  const NcclHandle world = Open(kWorld, 6);
  for (uint32_t i = 0; i < ChannelTimes::kPending + 3; ++i) {
    communicators_->OnOperation(world, AllReduce(i));
    if (i % 64 == 0) ring_.Collectives();
  }
  EXPECT_EQ(ring_.writer.header()->data_dropped, 3u);
}

// Under ThreadSanitizer: NCCL's threads, the helper thread and the end of a communicator.
TEST_F(CommunicatorsTest, ThreadsMayDoEverythingAtOnce) {
  constexpr int kThreads = 3, kRounds = 20, kOperations = 40;
  masks_.OnBoundary(1);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([this] {
      for (int round = 0; round < kRounds; ++round) {
        const NcclHandle world = Open(kWorld, 6);
        for (uint64_t i = 0; i < kOperations; ++i) {
          void* operation = communicators_->OnOperation(world, AllReduce(i, 1));
          ChannelTimes& channels = communicators_->channels();
          void* channel = channels.OnStart(NcclHandle::Unpack(operation), 5);
          channels.OnStop(NcclHandle::Unpack(channel), 6);
        }
        End(world);
      }
      ring_.writer.CloseThreadChunk();
    });
  }
  threads.emplace_back([this] {
    for (uint64_t i = 0; i < 200; ++i) {
      communicators_->WriteOld();
      masks_.OnBoundary(1 + 2 * i);
    }
    ring_.writer.CloseThreadChunk();
  });
  for (std::thread& thread : threads) thread.join();
  const uint64_t dropped = ring_.writer.header()->data_dropped;
  EXPECT_GT(CountArrivals() + dropped, 0u);
}

}  // namespace
}  // namespace seqpoint::inject
