#include "injection/ring/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <thread>

namespace seqpoint::injection {
namespace {

class WriterTest : public ::testing::Test {
 protected:
  ~WriterTest() override { ring_.Destroy(); }

  abi::ChunkState& State(uint32_t index) {
    auto* base = reinterpret_cast<uint8_t*>(ring_.header());
    return reinterpret_cast<abi::ChunkState*>(base + ring_.header()->directory_offset)[index];
  }
  abi::LaneSlot& Slot(uint32_t index) {
    auto* base = reinterpret_cast<uint8_t*>(ring_.header());
    return reinterpret_cast<abi::LaneSlot*>(base + ring_.header()->lane_offset)[index];
  }
  static abi::DataRecord Record(abi::DataType type) {
    abi::DataRecord record = {};
    record.type = static_cast<uint16_t>(type);
    return record;
  }

  RingWriter ring_;
};

TEST_F(WriterTest, SealsAMemfdOfTheSizeItsHeaderSays) {
  ASSERT_TRUE(ring_.Create(RingOptions{}).ok());
  struct stat file = {};
  ASSERT_EQ(fstat(ring_.fd(), &file), 0);
  EXPECT_EQ(static_cast<uint64_t>(file.st_size), ring_.header()->total_bytes);
  EXPECT_LE(file.st_size, 16 << 20);
  EXPECT_EQ(fcntl(ring_.fd(), F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  EXPECT_NE(ftruncate(ring_.fd(), 4096), 0);
  EXPECT_EQ(ring_.header()->pid, static_cast<uint32_t>(getpid()));
  EXPECT_NE(ring_.header()->process_start_ticks, 0u);
}

TEST_F(WriterTest, TheSmallestRingHas64KiB) {
  ASSERT_TRUE(ring_.Create(kSmallRing).ok());
  EXPECT_EQ(ring_.bytes(), 64u * 1024);
}

TEST_F(WriterTest, RefusesOptionsThatMakeNoRing) {
  for (const RingOptions& options :
       {RingOptions{100, 4, 1024}, RingOptions{0, 4, 1024}, RingOptions{64, 0, 1024},
        RingOptions{64, 5000, 1024}, RingOptions{64, 4, 100}, RingOptions{64, 4096, 1 << 20}}) {
    const Status status = ring_.Create(options);
    EXPECT_EQ(status.error, EINVAL);
    EXPECT_NE(std::string(status.message), "");
    EXPECT_FALSE(ring_.active());
  }
}

TEST_F(WriterTest, LaysARunOutLikeTheExampleInTheDocument) {
  ASSERT_TRUE(ring_.Create(RingOptions{}).ok());
  const std::string text = "gemm_64x64_f32";
  const abi::NameEvent name = {1, static_cast<uint32_t>(text.size()), 42};
  ASSERT_TRUE(
      ring_.WriteEvent(abi::EventType::kName, &name, sizeof name, text.data(), text.size()));
  abi::DataRecord call = Record(abi::DataType::kCall);
  call.call.sequence = ring_.NextCallSequence();
  ThreadChunk chunk = {};
  ASSERT_TRUE(ring_.WriteData(call, &chunk));

  EXPECT_EQ(ring_.header()->lane_head, 1u);
  EXPECT_EQ(Slot(0).stamp, ring_.header()->lane_salt);
  EXPECT_EQ(Slot(0).number, 0u);
  EXPECT_EQ(Slot(0).slots, 1u);
  EXPECT_EQ(Slot(0).payload_bytes, 30u);
  EXPECT_EQ(memcmp(Slot(0).payload + sizeof name, text.data(), text.size()), 0);
  EXPECT_EQ(State(0).state, uint64_t{1} << 2 | abi::kOpen);
  EXPECT_EQ(State(0).published, 1u);
  EXPECT_EQ(call.call.sequence, 0u);
}

TEST_F(WriterTest, AFullChunkIsClosedAndAnotherOneOpened) {
  ASSERT_TRUE(ring_.Create(kSmallRing).ok());
  ThreadChunk chunk = {};
  for (int i = 0; i < 17; ++i) {
    ASSERT_TRUE(ring_.WriteData(Record(abi::DataType::kKernel), &chunk));
  }
  EXPECT_EQ(State(0).state, uint64_t{1} << 2 | abi::kClosed);
  EXPECT_EQ(State(0).published, 16u);
  EXPECT_EQ(State(1).state, uint64_t{2} << 2 | abi::kOpen);
  EXPECT_EQ(State(1).published, 1u);
}

TEST_F(WriterTest, AThreadThatEndsClosesItsChunk) {
  ASSERT_TRUE(ring_.Create(kSmallRing).ok());
  std::thread([&] { ring_.WriteData(Record(abi::DataType::kKernel)); }).join();
  EXPECT_EQ(State(0).state, uint64_t{1} << 2 | abi::kClosed);
  EXPECT_EQ(State(0).published, 1u);
}

TEST_F(WriterTest, AFullRingDropsCountsAndGoesOnWhenAChunkIsFree) {
  ASSERT_TRUE(ring_.Create(kSmallRing).ok());
  ThreadChunk chunk = {};
  const int fits = 24 * 16;
  for (int i = 0; i < fits; ++i) {
    ASSERT_TRUE(ring_.WriteData(Record(abi::DataType::kKernel), &chunk));
  }
  EXPECT_FALSE(ring_.WriteData(Record(abi::DataType::kKernel), &chunk));
  EXPECT_FALSE(ring_.WriteData(Record(abi::DataType::kCall), &chunk));
  EXPECT_EQ(ring_.header()->data_dropped, 2u);
  EXPECT_EQ(ring_.header()->call_dropped, 1u);
  State(23).state = uint64_t{24} << 2 | abi::kFree;
  int tries = 1;
  while (!ring_.WriteData(Record(abi::DataType::kKernel), &chunk)) ++tries;
  EXPECT_LE(tries, 24 / 8 + 1);
  EXPECT_EQ(State(23).state, uint64_t{25} << 2 | abi::kOpen);
}

TEST_F(WriterTest, AFullLaneDropsAndEachTryTakesANumber) {
  ASSERT_TRUE(ring_.Create(kSmallRing).ok());
  const abi::ClockStepEvent event = {};
  for (int i = 0; i < 70; ++i) {
    EXPECT_EQ(ring_.WriteEvent(abi::EventType::kClockStep, &event, sizeof event), i < 64);
  }
  EXPECT_EQ(ring_.header()->lane_dropped, 6u);
  EXPECT_EQ(ring_.header()->lane_number, 70u);
}

TEST_F(WriterTest, AnEventLargerThanAllowedIsDropped) {
  ASSERT_TRUE(ring_.Create(RingOptions{}).ok());
  const std::string text(abi::kMaxEventSlots * abi::kSlotBytes, 'x');
  EXPECT_FALSE(ring_.WriteEvent(abi::EventType::kName, "", 0, text.data(), text.size()));
  EXPECT_TRUE(ring_.WriteEvent(abi::EventType::kName, "", 0, text.data(), text.size() - 24));
  EXPECT_EQ(ring_.header()->lane_dropped, 1u);
}

TEST_F(WriterTest, TwoRingsInOneThreadKeepApart) {
  ASSERT_TRUE(ring_.Create(kSmallRing).ok());
  RingWriter other;
  ASSERT_TRUE(other.Create(kSmallRing).ok());
  ThreadChunk mine = {};
  ThreadChunk others = {};
  for (int i = 0; i < 5; ++i) {
    ring_.WriteData(Record(abi::DataType::kKernel), &mine);
    if (i < 3) other.WriteData(Record(abi::DataType::kKernel), &others);
  }
  EXPECT_EQ(mine.state->published, 5u);
  EXPECT_EQ(others.state->published, 3u);
  other.Destroy();
}

TEST_F(WriterTest, AfterCloseNothingIsWritten) {
  ASSERT_TRUE(ring_.Create(kSmallRing).ok());
  ring_.WriteData(Record(abi::DataType::kKernel));
  ring_.Close();
  EXPECT_EQ(ring_.header()->closed, 1u);
  EXPECT_EQ(State(0).state, uint64_t{1} << 2 | abi::kClosed);
  EXPECT_FALSE(ring_.WriteData(Record(abi::DataType::kKernel)));
  EXPECT_FALSE(ring_.WriteEvent(abi::EventType::kName, "abc", 3));
}

// Uses everything a callback might use, in a child that inherited the writer.
int UseInChild(RingWriter& ring, ControlReader& control) {
  abi::DataRecord record = {};
  record.type = static_cast<uint16_t>(abi::DataType::kKernel);
  static abi::Control copy;
  const bool did_something = ring.WriteData(record) ||
                             ring.WriteEvent(abi::EventType::kName, "abc", 3) ||
                             ring.NextCallSequence() != 0 || control.Changed() ||
                             control.Copy(&copy) || control.HeartbeatAgeNs() != UINT64_MAX;
  ring.Count(&abi::RingHeader::cupti_dropped, 1);
  ring.SetClockKind(abi::ClockKind::kReal);
  ring.CloseThreadChunk();
  ring.Close();
  return did_something ? 1 : 0;
}

TEST_F(WriterTest, AForkedChildDoesNotTouchTheRing) {
  ASSERT_TRUE(ring_.Create(kSmallRing).ok());
  ring_.WriteData(Record(abi::DataType::kKernel));  // the child inherits a chunk in hand
  ring_.NextCallSequence();
  ControlReader control(&ring_);
  enum Kind { kFork, kForkWithHandler, kRawClone };
  for (Kind kind : {kFork, kForkWithHandler, kRawClone}) {
    const pid_t child =
        kind == kRawClone
            ? static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr))
            : fork();
    if (child == 0) {
      if (kind == kForkWithHandler) ring_.DisableInChild();
      _exit(UseInChild(ring_, control));
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status)) << "killed by signal " << WTERMSIG(status);
    EXPECT_EQ(WEXITSTATUS(status), 0);
  }
  EXPECT_EQ(ring_.header()->next_chunk_sequence, 2u);
  EXPECT_EQ(State(0).published, 1u);
  EXPECT_EQ(ring_.header()->lane_number, 0u);
  EXPECT_EQ(ring_.header()->call_sequence, 1u);
  EXPECT_EQ(ring_.header()->cupti_dropped, 0u);
  EXPECT_EQ(ring_.header()->closed, 0u);
  EXPECT_TRUE(ring_.WriteData(Record(abi::DataType::kKernel)));
  EXPECT_EQ(State(0).published, 2u);
}

TEST_F(WriterTest, AForkedChildMayMakeARingOfItsOwn) {
  ASSERT_TRUE(ring_.Create(kSmallRing).ok());
  ring_.WriteData(Record(abi::DataType::kKernel));
  const pid_t child = fork();
  if (child == 0) {
    ring_.DisableInChild();
    const bool works =
        ring_.Create(kSmallRing).ok() && ring_.WriteData(Record(abi::DataType::kKernel));
    _exit(works && State(0).published == 1 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace seqpoint::injection
