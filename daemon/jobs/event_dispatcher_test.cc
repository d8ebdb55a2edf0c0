#include "daemon/jobs/event_dispatcher.h"

#include <cstring>
#include <limits>

#include "gtest/gtest.h"

namespace seqpoint::jobs {
namespace {

class FakeJob : public JobEvents {
 public:
  uint32_t RuleGeneration() const override { return 1; }
  bool IsShared(const Process&, uint64_t) const override { return false; }
  void OnName(Process&, const abi::NameEvent&, std::string text) override { said += text; }
  void OnCounters(Process&, const abi::CountersEvent&, uint64_t number, bool complete,
                  std::vector<double>) override {
    counted.emplace_back(number, complete);
  }
  void OnRank(Process&, const abi::RankEvent& event) override { rank = event.rank; }
  void OnCommunicator(Process&, const abi::CommunicatorEvent& event) override { rank = event.rank; }
  uint32_t KindId(const std::string& text, uint64_t) override {
    said += text;
    return 1;
  }
  void OnChip(Process& process) override { said += process.state.chip(); }
  void OnStoodDown(const abi::StandDownEvent&, const std::string& holder, uint64_t from,
                   uint64_t number) override {
    said += holder;
    missed = number - from;
  }
  bool OnConfig(uint32_t, bool collected, const std::string& why) override {
    said += collected ? "collected" : why;
    return true;
  }

  std::string said;
  std::vector<std::pair<uint64_t, bool>> counted;
  int32_t rank = -1;
  uint64_t missed = 0;
};

class EventDispatcherTest : public testing::Test {
 protected:
  template <typename Event>
  bool Send(abi::EventType type, const Event& event, const std::string& tail = "") {
    std::vector<uint8_t> bytes(sizeof(event) + tail.size());
    std::memcpy(bytes.data(), &event, sizeof(event));
    std::memcpy(bytes.data() + sizeof(event), tail.data(), tail.size());
    return DispatchEvent(type, bytes, process_, job_, changes_);
  }

  Process process_{ProcessRow{.process_id = 7}};
  FakeJob job_;
  ChangeTracker changes_;
};

TEST_F(EventDispatcherTest, AnyPayloadOfAnyTypeIsTakenOrRejected) {
  for (int type = 0; type < 256; ++type) {
    for (const size_t size : {0, 1, 7, 8, 16, 64, 200}) {
      const std::vector<uint8_t> bytes(size, 0xff);
      DispatchEvent(static_cast<abi::EventType>(type), bytes, process_, job_, changes_);
    }
  }
  EXPECT_FALSE(Send(static_cast<abi::EventType>(255), uint64_t{0}));
  EXPECT_FALSE(Send(abi::EventType::kWindow, uint8_t{0}));
}

TEST_F(EventDispatcherTest, NumbersAreTheProcessOwn) {
  process_.state.set_number_offset(100);
  const double value = 1;
  EXPECT_TRUE(Send(abi::EventType::kCounters,
                   abi::CountersEvent{.iteration = 5, .config_id = 9, .count = 1},
                   std::string(reinterpret_cast<const char*>(&value), sizeof(value))));
  ASSERT_EQ(job_.counted.size(), 1u);
  EXPECT_EQ(job_.counted[0], std::pair(uint64_t{105}, true));
  EXPECT_EQ(process_.state.stops(), 1);

  const double none = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(Send(abi::EventType::kCounters,
                   abi::CountersEvent{.iteration = 6, .config_id = 9, .count = 1},
                   std::string(reinterpret_cast<const char*>(&none), sizeof(none))));
  EXPECT_EQ(job_.counted[1], std::pair(uint64_t{106}, false));
  EXPECT_FALSE(Send(abi::EventType::kCounters, abi::CountersEvent{.count = 1})) << "no values";
}

TEST_F(EventDispatcherTest, ATracedIterationIsAWindowUntilItIsGivenUp) {
  process_.learning.reset();
  EXPECT_TRUE(Send(abi::EventType::kDecision,
                   abi::DecisionEvent{.iteration = 5, .config_id = abi::kConfigTrace}));
  EXPECT_TRUE(process_.traces.IsOpen(5));
  EXPECT_EQ(process_.state.measurements_started(), 1u);
  EXPECT_TRUE(
      Send(abi::EventType::kWindow,
           abi::WindowEvent{.iteration = 5, .stopped_ns = 30, .flags = abi::kWindowGivenUp}));
  EXPECT_FALSE(process_.traces.IsOpen(5));
  EXPECT_EQ(process_.state.stopped_duration_ns(), 30);
  EXPECT_EQ(process_.state.given_up_windows(), 1);
}

TEST_F(EventDispatcherTest, TextIsMadePrintable) {
  const std::string name = "a\x01\xff z";
  EXPECT_TRUE(Send(abi::EventType::kName,
                   abi::NameEvent{.name_id = 3, .length = static_cast<uint32_t>(name.size())},
                   name));
  EXPECT_EQ(job_.said, "a?? z");
  EXPECT_EQ(process_.names.Find(3)->text, "a?? z");
  EXPECT_FALSE(Send(abi::EventType::kName, abi::NameEvent{.name_id = 0}));
}

TEST_F(EventDispatcherTest, StandingDownBeginsAndEnds) {
  const int64_t generation = changes_.generation();
  EXPECT_TRUE(Send(abi::EventType::kStandDown,
                   abi::StandDownEvent{.begin_ns = 10, .iteration = 4, .length = 4}, "nsys"));
  EXPECT_EQ(process_.state.stands_down_for(), "nsys");
  EXPECT_TRUE(Send(abi::EventType::kStandDown,
                   abi::StandDownEvent{.begin_ns = 10, .end_ns = 90, .iteration = 6, .length = 4},
                   "nsys"));
  EXPECT_EQ(process_.state.stands_down_for(), "");
  EXPECT_EQ(process_.state.stood_down_duration_ns(), 80);
  EXPECT_EQ(job_.missed, 2u);
  EXPECT_EQ(changes_.generation(), generation + 2);
}

TEST_F(EventDispatcherTest, WhatCannotBeIsRejected) {
  EXPECT_FALSE(Send(abi::EventType::kRank, abi::RankEvent{.rank = 4, .world_size = 4}));
  EXPECT_FALSE(Send(abi::EventType::kRank, abi::RankEvent{.rank = -1, .world_size = 4}));
  EXPECT_TRUE(Send(abi::EventType::kRank, abi::RankEvent{.rank = 3, .world_size = 4}));
  EXPECT_EQ(job_.rank, 3);
  EXPECT_FALSE(
      Send(abi::EventType::kSampled, abi::SampledEvent{.duration_ns = 10, .covered_ns = 11}));
  EXPECT_FALSE(Send(abi::EventType::kFeature, abi::FeatureEvent{.feature = 999}));
}

TEST_F(EventDispatcherTest, ASendAndItsReceiveAreOneKindInTheJob) {
  const auto kind = [&](uint32_t number, int32_t peer, const std::string& text) {
    return Send(abi::EventType::kCollectiveKind,
                abi::CollectiveKindEvent{
                    .kind = number, .peer = peer, .length = static_cast<uint32_t>(text.size())},
                text);
  };
  EXPECT_TRUE(kind(1, -1, "AllReduce\nncclFloat32\nRING\nLL"));
  EXPECT_EQ(job_.said, "AllReduce ncclFloat32");
  for (const char* function : {"Send", "Recv"}) {
    job_.said.clear();
    EXPECT_TRUE(kind(2, 3, absl::StrCat(function, "\nncclFloat16\n\n")));
    EXPECT_EQ(job_.said, "ncclFloat16");
  }
  EXPECT_FALSE(kind(0, -1, "AllReduce\nncclFloat32\nRING\nLL"));
  EXPECT_FALSE(kind(3, -1, "AllReduce"));
  EXPECT_FALSE(kind(3, -2, "AllReduce\nncclFloat32\nRING\nLL"));

  const auto communicator = [&](uint32_t number, int32_t rank, int32_t ranks) {
    return Send(
        abi::EventType::kCommunicator,
        abi::CommunicatorEvent{.communicator = number, .rank = rank, .ranks = ranks, .hash = 9});
  };
  EXPECT_TRUE(communicator(1, 3, 4));
  EXPECT_EQ(job_.rank, 3);
  EXPECT_FALSE(communicator(2, 4, 4));
  EXPECT_FALSE(communicator(0, 0, 4));
  EXPECT_FALSE(communicator(2, 0, -1));
  EXPECT_FALSE(communicator(2, 0, 2'000'000));
}

}  // namespace
}  // namespace seqpoint::jobs
