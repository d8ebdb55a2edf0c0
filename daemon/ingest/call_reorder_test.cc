#include "daemon/ingest/call_reorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace seqpoint::ingest {
namespace {

using ::testing::ElementsAre;

// Streams of sequence numbers, and what a reader would do with them.
class Streams {
 public:
  explicit Streams(std::vector<std::vector<uint64_t>> streams)
      : streams_(std::move(streams)), position_(streams_.size()) {}

  void Run(CallReorder& reorder) {
    reorder.Clear();
    for (uint32_t i = 0; i < streams_.size(); ++i) Read(reorder, i);
    for (auto step = reorder.Next(); step.kind != CallReorder::Kind::kWait; step = reorder.Next()) {
      if (step.kind == CallReorder::Kind::kTake) {
        Read(reorder, step.stream);
      } else {
        holes.emplace_back(step.sequence, step.count);
      }
    }
  }
  void Publish(uint32_t stream, uint64_t sequence) { streams_[stream].push_back(sequence); }

  std::vector<uint64_t> taken;
  std::vector<std::pair<uint64_t, uint64_t>> holes;

 private:
  void Read(CallReorder& reorder, uint32_t stream) {
    for (size_t& i = position_[stream]; i < streams_[stream].size(); ++i) {
      const uint64_t sequence = streams_[stream][i];
      if (reorder.TakeLate(sequence)) continue;
      if (!reorder.TakeNext(sequence)) return reorder.Offer(sequence, stream);
      taken.push_back(sequence);
    }
  }

  std::vector<std::vector<uint64_t>> streams_;
  std::vector<size_t> position_;
};

TEST(CallReorderTest, MergesThreads) {
  CallReorder reorder;
  Streams streams({{2, 3, 7}, {0, 4, 5}, {1, 6}});
  streams.Run(reorder);
  EXPECT_THAT(streams.taken, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_TRUE(reorder.empty());
  EXPECT_EQ(reorder.missing(), 0u);
}

TEST(CallReorderTest, WaitsAtAHoleAndConsumesNothingBehindIt) {
  CallReorder reorder;
  Streams streams({{0, 3}, {2}});
  streams.Run(reorder);
  EXPECT_THAT(streams.taken, ElementsAre(0));
  EXPECT_FALSE(reorder.empty());
  EXPECT_EQ(reorder.next(), 1u);
  streams.Publish(1, 1);  // not in its stream's order, so behind 2: still a hole
  streams.Run(reorder);
  EXPECT_EQ(reorder.next(), 1u);
}

TEST(CallReorderTest, AFilledHoleIsNoHole) {
  CallReorder reorder;
  Streams streams({{0, 2}, {}});
  streams.Run(reorder);
  streams.Publish(1, 1);
  streams.Run(reorder);
  EXPECT_THAT(streams.taken, ElementsAre(0, 1, 2));
  EXPECT_TRUE(streams.holes.empty());
}

TEST(CallReorderTest, PassesHolesBelowTheLimitOnly) {
  CallReorder reorder;
  Streams streams({{0, 3, 9}});
  reorder.GiveUpBelow(5);
  streams.Run(reorder);
  EXPECT_THAT(streams.taken, ElementsAre(0, 3));
  EXPECT_THAT(streams.holes, ElementsAre(std::pair(1, 2), std::pair(4, 1)));
  EXPECT_EQ(reorder.missing(), 3u);
  EXPECT_EQ(reorder.next(), 5u);
}

TEST(CallReorderTest, ALateOrRepeatedCallIsLeftOutAndCounted) {
  CallReorder reorder;
  Streams streams({{0, 2}, {}});
  reorder.GiveUpBelow(2);
  streams.Run(reorder);
  streams.Publish(1, 1);
  streams.Publish(1, 3);
  streams.Run(reorder);
  EXPECT_THAT(streams.taken, ElementsAre(0, 2, 3));
  EXPECT_EQ(reorder.late(), 1u);
}

TEST(CallReorderTest, AnySplitOverThreadsGivesTheSameOrder) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    std::vector<std::vector<uint64_t>> split(1 + random() % 6);
    std::vector<uint64_t> kept;
    uint64_t dropped = 0;
    for (uint64_t sequence = 0; sequence < 500; ++sequence) {
      if (random() % 10 == 0) {
        ++dropped;
      } else {
        split[random() % split.size()].push_back(sequence);
        kept.push_back(sequence);
      }
    }
    CallReorder reorder;
    reorder.GiveUpBelow(500);
    Streams streams(split);
    streams.Run(reorder);
    EXPECT_EQ(streams.taken, kept);
    EXPECT_EQ(reorder.missing() + reorder.Skip(500).count, dropped);
  }
}

}  // namespace
}  // namespace seqpoint::ingest
