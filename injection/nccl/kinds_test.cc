#include "injection/nccl/kinds.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "tests/support/test_ring.h"

namespace seqpoint::inject {
namespace {

Operation AllReduce(uint64_t elements) {
  return {.function = "AllReduce",
          .datatype = "ncclFloat32",
          .algorithm = "RING",
          .protocol = "LL",
          .elements = elements};
}

Operation Send(int peer, uint64_t elements) {
  return {.function = "Send", .datatype = "ncclInt8", .elements = elements, .peer = peer};
}

class CollectiveKindsTest : public ::testing::Test {
 protected:
  TestRing ring_;
  Features features_{&ring_.writer};
  std::unique_ptr<CollectiveKinds> kinds_ =
      std::make_unique<CollectiveKinds>(&ring_.writer, &features_);
};

TEST_F(CollectiveKindsTest, EachKindHasOneIdAndIsToldOnce) {
  EXPECT_EQ(kinds_->IdOf(AllReduce(10)), 1);
  EXPECT_EQ(kinds_->IdOf(AllReduce(11)), 2);
  EXPECT_EQ(kinds_->IdOf(AllReduce(10)), 1);
  Operation tree = AllReduce(10);
  tree.algorithm = "TREE";
  EXPECT_EQ(kinds_->IdOf(tree), 3);
  const auto events = ring_.Events<abi::CollectiveKindEvent>(abi::EventType::kCollectiveKind);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[1].kind, 2u);
  EXPECT_EQ(events[1].elements, 11u);
  EXPECT_EQ(events[1].peer, -1);
  EXPECT_EQ(events[1].length, sizeof("AllReduce\nncclFloat32\nRING\nLL") - 1);
}

TEST_F(CollectiveKindsTest, SizesOfTransfersCountByPowersOfTwo) {
  const uint16_t id = kinds_->IdOf(Send(1, 1000));
  EXPECT_EQ(kinds_->IdOf(Send(1, 600)), id);
  EXPECT_NE(kinds_->IdOf(Send(1, 1024)), id);
  EXPECT_NE(kinds_->IdOf(Send(2, 1000)), id);
  EXPECT_EQ(kinds_->IdOf(Send(1, 0)), 4);
  EXPECT_EQ(ring_.Events<abi::CollectiveKindEvent>(abi::EventType::kCollectiveKind)[0].elements,
            512u);
}

TEST_F(CollectiveKindsTest, AFullTableIsSaid) {
  for (int peer = 0; peer < static_cast<int>(CollectiveKinds::kCapacity / 2); ++peer) {
    ASSERT_NE(kinds_->IdOf(Send(peer, 1)), 0);
    if (peer % 16 == 0) ring_.Events<abi::CollectiveKindEvent>(abi::EventType::kCollectiveKind);
  }
  EXPECT_EQ(kinds_->IdOf(Send(1 << 20, 1)), 0);
  EXPECT_NE(kinds_->IdOf(Send(5, 1)), 0);
  EXPECT_NE(kinds_->IdOf(AllReduce(1)), 0) << "collectives have the other half";
  EXPECT_EQ(ring_.Events<abi::FeatureEvent>(abi::EventType::kFeature).size(), 1u);
}

TEST_F(CollectiveKindsTest, AKindThatTheLaneDroppedIsToldLater) {
  uint64_t n = 0;
  while (ring_.writer.header()->lane_dropped == 0) kinds_->IdOf(AllReduce(++n));
  const size_t told =
      ring_.Events<abi::CollectiveKindEvent>(abi::EventType::kCollectiveKind).size();
  EXPECT_EQ(kinds_->IdOf(AllReduce(n)), n);
  EXPECT_EQ(ring_.Events<abi::CollectiveKindEvent>(abi::EventType::kCollectiveKind).size(),
            told + 1);
}

TEST_F(CollectiveKindsTest, ThreadsAgreeOnIds) {
  constexpr int kThreads = 4, kKinds = 200;
  std::vector<std::vector<uint16_t>> ids(kThreads);
  std::vector<std::thread> threads;
  for (auto& own : ids) {
    threads.emplace_back([&] {
      for (int i = 0; i < kKinds; ++i) own.push_back(kinds_->IdOf(AllReduce(1 + i)));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& own : ids) EXPECT_EQ(own, ids[0]);
  EXPECT_EQ(std::set<uint16_t>(ids[0].begin(), ids[0].end()).size(), size_t{kKinds});
}

}  // namespace
}  // namespace seqpoint::inject
