#include "daemon/ingest/ring_reader.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <random>
#include <thread>

#include "daemon/ingest/control_writer.h"
#include "tests/support/served_ring.h"

namespace seqpoint::ingest {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint64_t kWaitNs = RingReaderOptions{}.hole_wait_ns;

std::vector<uint64_t> Range(uint64_t first, uint64_t end) {
  std::vector<uint64_t> range(end - first);
  std::iota(range.begin(), range.end(), first);
  return range;
}

class RingReaderTest : public ::testing::Test {
 protected:
  ~RingReaderTest() override { ring_.Destroy(); }

  void Create(const injection::RingOptions& options) {
    ASSERT_TRUE(ring_.Create(options).ok());
    Reopen();
  }
  // Like a daemon that starts: a new mapping, from the cursor that was committed last.
  void Reopen() {
    auto reader = RingReader::Open(ring_.fd(), RingReaderOptions{});
    ASSERT_TRUE(reader.ok()) << reader.status();
    reader_ = *std::move(reader);
    if (!committed_.empty()) {
      auto cursor = Cursor::Parse(committed_);
      ASSERT_TRUE(cursor.ok()) << cursor.status();
      ASSERT_TRUE(reader_->Resume(*cursor).ok());
    }
  }
  PollResult Poll() { return reader_->Poll(sink_, now_ns_); }
  void Commit() {
    const Cursor cursor = reader_->cursor();
    committed_ = cursor.Serialize();
    reader_->Release(cursor);
  }

  injection::RingWriter ring_;
  std::unique_ptr<RingReader> reader_;
  CollectingSink sink_;
  std::string committed_;
  uint64_t now_ns_ = 1'000'000'000;
};

TEST_F(RingReaderTest, DeliversDataAndEventsOnce) {
  Create({});
  injection::ThreadChunk chunk = {};
  WriteName(ring_, 1, "gemm");
  for (uint64_t i = 0; i < 3; ++i) ring_.WriteData(MakeKernel(i), &chunk);
  WriteClockStep(ring_, 77);
  const PollResult first = Poll();
  EXPECT_EQ(first.events, 2u);
  EXPECT_EQ(first.records, 3u);
  EXPECT_FALSE(first.waiting);
  EXPECT_THAT(sink_.names, ElementsAre("gemm"));
  EXPECT_THAT(sink_.clock_steps, ElementsAre(77));
  EXPECT_THAT(sink_.kernels, ElementsAre(0, 1, 2));
  EXPECT_EQ(Poll().records, 0u);
  EXPECT_EQ(reader_->stats().events_received, 2u);
  EXPECT_EQ(reader_->stats().records_received, 3u);
}

TEST_F(RingReaderTest, ASmallRingServesForeverWhenItIsReleased) {
  Create(injection::kSmallRing);
  injection::ThreadChunk chunk = {};
  uint64_t sent = 0;
  uint64_t events = 0;
  for (int lap = 0; lap < 1000; ++lap) {
    for (int i = 0; i < 100; ++i) ASSERT_TRUE(ring_.WriteData(MakeKernel(sent++), &chunk));
    // Of growing size, so that records wrap around the end of the lane in every way.
    for (int i = 0; i < 5; ++i) {
      ASSERT_TRUE(WriteName(ring_, 1, std::string((events++ * 7) % 500, 'n')));
    }
    Poll();
    Commit();
  }
  EXPECT_EQ(sink_.kernels, Range(0, sent));
  ASSERT_EQ(sink_.names.size(), events);
  for (uint64_t i = 0; i < events; ++i) {
    ASSERT_EQ(sink_.names[i], std::string((i * 7) % 500, 'n'));
  }
  EXPECT_EQ(sink_.event_numbers, Range(0, events));
}

TEST_F(RingReaderTest, NothingIsFreeBeforeItIsCommitted) {
  Create(injection::kSmallRing);
  injection::ThreadChunk chunk = {};
  uint64_t sent = 0;
  while (ring_.WriteData(MakeKernel(sent), &chunk)) ++sent;
  while (WriteClockStep(ring_, 0)) {
  }
  Poll();
  EXPECT_EQ(sink_.kernels.size(), sent);
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(ring_.WriteData(MakeKernel(sent), &chunk));
  EXPECT_FALSE(WriteClockStep(ring_, 0));
  Commit();
  EXPECT_TRUE(WriteClockStep(ring_, 0));
  bool written = false;
  for (int i = 0; i < 100 && !written; ++i) written = ring_.WriteData(MakeKernel(sent), &chunk);
  EXPECT_TRUE(written);
}

TEST_F(RingReaderTest, DroppedAndReceivedIsSentExactly) {
  Create(injection::kSmallRing);
  injection::ThreadChunk chunks[3] = {};
  uint64_t sent = 0;
  uint64_t events = 0;
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    for (uint32_t n = random() % 400; n > 0; --n, ++sent) {
      ring_.WriteData(MakeKernel(sent), &chunks[random() % 3]);
    }
    for (uint32_t n = random() % 100; n > 0; --n, ++events) WriteClockStep(ring_, events);
    Poll();
    if (round % 2 == 0) Commit();
  }
  Poll();
  const RingStats stats = reader_->stats();
  EXPECT_GT(stats.records_dropped, 0u);
  EXPECT_GT(stats.events_dropped, 0u);
  EXPECT_EQ(stats.records_dropped + stats.records_received, sent);
  EXPECT_EQ(stats.events_dropped + stats.events_received, events);
  EXPECT_EQ(stats.records_received, sink_.kernels.size());
  EXPECT_EQ(stats.events_received, sink_.event_numbers.size());
  EXPECT_EQ(stats.lost, 0u);
  EXPECT_EQ(stats.rejected, 0u);
}

TEST_F(RingReaderTest, AReaderThatWasAwayFindsTheOldestRecordsAndTheDrops) {
  Create(injection::kSmallRing);
  injection::ThreadChunk chunk = {};
  uint64_t kept = 0;
  for (int i = 0; i < 100'000; ++i) kept += ring_.WriteData(MakeKernel(i), &chunk);
  Poll();
  Commit();
  EXPECT_EQ(sink_.kernels, Range(0, kept));
  EXPECT_EQ(reader_->stats().records_dropped, 100'000 - kept);
  while (!ring_.WriteData(MakeKernel(100'000), &chunk)) {
  }
  Poll();
  EXPECT_EQ(sink_.kernels.back(), 100'000u);
}

TEST_F(RingReaderTest, CallsOfSeveralThreadsComeInCallOrder) {
  Create({});
  injection::ThreadChunk chunks[3] = {};
  // The third thread takes its numbers first and writes last.
  const uint64_t early[2] = {ring_.NextCallSequence(), ring_.NextCallSequence()};
  for (int i = 0; i < 10; ++i) {
    ring_.WriteData(MakeCall(ring_.NextCallSequence()), &chunks[i % 2]);
  }
  EXPECT_EQ(Poll().records, 0u);
  ring_.WriteData(MakeCall(early[0]), &chunks[2]);
  ring_.WriteData(MakeCall(early[1]), &chunks[2]);
  EXPECT_FALSE(Poll().waiting);
  EXPECT_EQ(sink_.calls, Range(0, 12));
  EXPECT_THAT(sink_.missing, IsEmpty());
}

TEST_F(RingReaderTest, ACallThatNeverComesHoldsTheOthersUpForABoundedTime) {
  Create({});
  injection::ThreadChunk chunk = {};
  injection::ThreadChunk other = {};
  const uint64_t never = ring_.NextCallSequence();
  ring_.WriteData(MakeCall(ring_.NextCallSequence()), &chunk);
  ring_.WriteData(MakeKernel(5), &other);
  EXPECT_TRUE(Poll().waiting);
  EXPECT_THAT(sink_.kernels, ElementsAre(5));  // other threads' records are not held up
  now_ns_ += kWaitNs - 1;
  EXPECT_TRUE(Poll().waiting);
  EXPECT_THAT(sink_.calls, IsEmpty());
  now_ns_ += 1;
  EXPECT_FALSE(Poll().waiting);
  EXPECT_THAT(sink_.calls, ElementsAre(1));
  EXPECT_THAT(sink_.missing, ElementsAre(std::pair(0, 1)));
  EXPECT_EQ(reader_->stats().lost, 1u);

  ring_.WriteData(MakeCall(never), &other);  // too late, and not out of order
  Poll();
  EXPECT_THAT(sink_.calls, ElementsAre(1));
  EXPECT_EQ(reader_->stats().lost, 1u);
}

TEST_F(RingReaderTest, DropsProveHolesWithoutWaiting) {
  Create(injection::kSmallRing);
  injection::ThreadChunk chunk = {};
  uint64_t tried = 0;
  uint64_t kept = 0;
  for (; ring_.WriteData(MakeCall(ring_.NextCallSequence()), &chunk); ++tried) ++kept;
  ++tried;
  for (int i = 0; i < 50; ++i, ++tried) {
    EXPECT_FALSE(ring_.WriteData(MakeCall(ring_.NextCallSequence()), &chunk));
  }
  Poll();
  Commit();
  while (!ring_.WriteData(MakeCall(ring_.NextCallSequence()), &chunk)) ++tried;
  EXPECT_FALSE(Poll().waiting);
  EXPECT_EQ(sink_.calls.back(), tried);
  EXPECT_THAT(sink_.missing, ElementsAre(std::pair(kept, tried - kept)));
  EXPECT_EQ(reader_->stats().lost, 0u);
}

TEST_F(RingReaderTest, DropsDoNotProveAHoleWhileACallIsOnItsWay) {
  Create(injection::kSmallRing);
  injection::ThreadChunk chunk = {};
  injection::ThreadChunk slow_chunk = {};
  ring_.WriteData(MakeKernel(0), &slow_chunk);
  const uint64_t slow = ring_.NextCallSequence();
  while (ring_.WriteData(MakeCall(ring_.NextCallSequence()), &chunk)) {
  }
  EXPECT_TRUE(Poll().waiting);
  EXPECT_THAT(sink_.calls, IsEmpty());
  ring_.WriteData(MakeCall(slow), &slow_chunk);
  EXPECT_FALSE(Poll().waiting);
  EXPECT_THAT(sink_.missing, IsEmpty());
  EXPECT_EQ(sink_.calls.front(), slow);
}

TEST_F(RingReaderTest, RecordsWaitForAnEventThatIsBeingWritten) {
  Create({});
  injection::ThreadChunk chunk = {};
  // A thread between its reservation and its stamp.
  ring_.header()->lane_number += 1;
  ring_.header()->lane_head += 2;
  WriteName(ring_, 1, "behind");
  ring_.WriteData(MakeKernel(1), &chunk);
  EXPECT_TRUE(Poll().waiting);
  EXPECT_THAT(sink_.kernels, IsEmpty());
  now_ns_ += kWaitNs;
  Poll();
  EXPECT_THAT(sink_.kernels, ElementsAre(1));
  EXPECT_THAT(sink_.names, IsEmpty());
  reader_->SetProcessGone();
  Poll();
  EXPECT_THAT(sink_.names, ElementsAre("behind"));
  EXPECT_EQ(reader_->stats().lost, 1u);
  EXPECT_EQ(reader_->stats().rejected, 0u);
}

TEST_F(RingReaderTest, ABacklogIsReadAndFreedPieceByPiece) {
  Create(injection::kSmallRing);
  injection::ThreadChunk chunks[2] = {};
  uint64_t tried = 0;
  for (bool kept = true; kept; ++tried) {
    kept = ring_.WriteData(MakeCall(ring_.NextCallSequence()), &chunks[tried % 3 == 0]);
  }
  const uint64_t kept = tried - 1;
  PollResult result = reader_->Poll(sink_, now_ns_, 30);
  EXPECT_EQ(result.records, 30u);
  EXPECT_TRUE(result.more);
  EXPECT_FALSE(result.waiting);  // what was not looked at is no hole
  Commit();
  bool written = false;  // the first chunk is free before the last is read
  for (; !written; ++tried) {
    ASSERT_LT(tried, kept + 100);
    written = ring_.WriteData(MakeCall(ring_.NextCallSequence()), &chunks[0]);
  }
  // A daemon that lives for one such piece only gets on, too.
  for (int lives = 0; result.more; ++lives) {
    ASSERT_LT(lives, 100);
    Reopen();
    result = reader_->Poll(sink_, now_ns_, 30);
    EXPECT_LE(result.records, 30u);
    Commit();
  }
  std::vector<uint64_t> expected = Range(0, kept);
  expected.push_back(tried - 1);
  EXPECT_EQ(sink_.calls, expected);
  EXPECT_THAT(sink_.missing, ElementsAre(std::pair(kept, tried - 1 - kept)));
  EXPECT_EQ(reader_->stats().lost, 0u);
}

TEST_F(RingReaderTest, AHoleIsGivenUpBeforeItFillsTheRing) {
  Create(injection::kSmallRing);
  injection::ThreadChunk chunk = {};
  ring_.NextCallSequence();  // its thread is stopped
  const uint32_t chunks = injection::kSmallRing.chunk_count;
  const uint64_t half = chunks / 2 * (injection::kSmallRing.chunk_bytes / abi::kSlotBytes);
  for (uint64_t i = 0; i < half; ++i) ring_.WriteData(MakeCall(ring_.NextCallSequence()), &chunk);
  Poll();
  now_ns_ += kWaitNs / 10;
  EXPECT_TRUE(Poll().waiting);  // half of the ring is free still
  EXPECT_TRUE(ring_.WriteData(MakeCall(ring_.NextCallSequence()), &chunk));
  EXPECT_FALSE(Poll().waiting);
  EXPECT_EQ(sink_.calls, Range(1, half + 2));
  EXPECT_EQ(reader_->stats().lost, 1u);
}

TEST_F(RingReaderTest, AFullRingStillWaitsForACallThatIsOnItsWay) {
  Create(injection::kSmallRing);
  injection::ThreadChunk chunk = {};
  injection::ThreadChunk slow_chunk = {};
  ring_.WriteData(MakeKernel(0), &slow_chunk);
  const uint64_t slow = ring_.NextCallSequence();
  while (ring_.WriteData(MakeCall(ring_.NextCallSequence()), &chunk)) {
  }
  EXPECT_TRUE(Poll().waiting);
  now_ns_ += kWaitNs / 10 - 1;
  EXPECT_TRUE(Poll().waiting);
  ring_.WriteData(MakeCall(slow), &slow_chunk);
  EXPECT_FALSE(Poll().waiting);
  EXPECT_EQ(sink_.calls.front(), slow);
  EXPECT_EQ(reader_->stats().lost, 0u);
}

TEST_F(RingReaderTest, TheEndOfAProcessClosesAllAccounts) {
  Create({});
  injection::ThreadChunk chunk = {};
  ring_.WriteData(MakeCall(ring_.NextCallSequence()), &chunk);
  ring_.NextCallSequence();
  ring_.WriteData(MakeCall(ring_.NextCallSequence()), &chunk);
  ring_.NextCallSequence();  // killed between number and record
  ring_.header()->lane_number += 1;
  reader_->SetProcessGone();
  EXPECT_FALSE(Poll().waiting);
  EXPECT_THAT(sink_.calls, ElementsAre(0, 2));
  EXPECT_THAT(sink_.missing, ElementsAre(std::pair(1, 1), std::pair(3, 1)));
  EXPECT_EQ(reader_->stats().lost, 3u);
  Poll();
  EXPECT_EQ(reader_->stats().lost, 3u);
}

TEST_F(RingReaderTest, ADaemonWithoutAStoreReadsWhatTheRingStillHolds) {
  Create(injection::kSmallRing);
  injection::ThreadChunk chunk = {};
  for (uint64_t i = 0; i < 40; ++i) ring_.WriteData(MakeKernel(i), &chunk);
  for (uint64_t i = 0; i < 30; ++i) WriteClockStep(ring_, i);
  Poll();
  Commit();
  for (uint64_t i = 30; i < 40; ++i) WriteClockStep(ring_, i);
  sink_ = {};
  committed_.clear();
  Reopen();
  Poll();
  // Two chunks of 16 were freed; the third was not full.
  EXPECT_EQ(sink_.kernels, Range(32, 40));
  EXPECT_EQ(sink_.clock_steps, Range(30, 40));
  EXPECT_EQ(reader_->stats().lost, 30u);
}

TEST_F(RingReaderTest, ACursorThatFinishedEverythingFreesItAtOnce) {
  Create(injection::kSmallRing);
  injection::ThreadChunk chunk = {};
  uint64_t sent = 0;
  while (ring_.WriteData(MakeKernel(sent), &chunk)) ++sent;
  Poll();
  committed_ = reader_->cursor().Serialize();  // killed between commit and release
  Reopen();
  bool written = false;
  for (int i = 0; i < 100 && !written; ++i) written = ring_.WriteData(MakeKernel(sent), &chunk);
  EXPECT_TRUE(written);
  Poll();
  EXPECT_EQ(sink_.kernels, Range(0, sent + 1));
}

TEST_F(RingReaderTest, RefusesTheCursorOfAnotherRing) {
  Create(injection::kSmallRing);
  Cursor cursor = reader_->cursor();
  cursor.ring_id[0] ^= 1;
  EXPECT_EQ(reader_->Resume(cursor).code(), absl::StatusCode::kInvalidArgument);
}

TEST(CursorTest, RefusesWhatItDidNotWrite) {
  Cursor cursor;
  cursor.ring_id = "0123456789abcdef";
  cursor.lane_position = 7;
  cursor.chunks = {{3, 10}, {9, 1}};
  const std::string bytes = cursor.Serialize();
  const auto parsed = Cursor::Parse(bytes);
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->Serialize(), bytes);
  EXPECT_FALSE(Cursor::Parse("").ok());
  EXPECT_FALSE(Cursor::Parse(bytes.substr(1)).ok());
  std::string newer = bytes;
  newer[0] = 2;
  EXPECT_THAT(std::string(Cursor::Parse(newer).status().message()), HasSubstr("version 2"));
  std::swap(cursor.chunks[0], cursor.chunks[1]);
  EXPECT_FALSE(Cursor::Parse(cursor.Serialize()).ok());
}

// Threads write, delay and die; the daemon polls, commits, releases and is killed, each at random.
// What was committed must be what was written: all of it, once, calls in order.
TEST_F(RingReaderTest, NothingLostNothingTwiceOverRandomKills) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    ring_.Destroy();
    committed_.clear();
    Create(injection::kSmallRing);
    CollectingSink stored;
    sink_ = {};
    constexpr int kThreads = 4;
    injection::ThreadChunk chunks[kThreads] = {};
    std::optional<uint64_t> pending[kThreads];  // number taken, record not written yet
    std::vector<uint64_t> calls, kernels, events;
    uint64_t numbers = 0;
    const auto store = [&] {
      stored = sink_;
      committed_ = reader_->cursor().Serialize();
    };
    for (int step = 0; step < 1500; ++step) {
      const uint32_t thread = random() % kThreads;
      switch (random() % 12) {
        case 0:
        case 1:
        case 2:
        case 3:
          for (uint32_t n = random() % 12; n > 0; --n) {
            const uint64_t sequence =
                pending[thread].has_value() ? *pending[thread] : ring_.NextCallSequence();
            pending[thread].reset();
            if (ring_.WriteData(MakeCall(sequence), &chunks[thread])) calls.push_back(sequence);
          }
          break;
        case 4:
          if (!pending[thread].has_value()) pending[thread] = ring_.NextCallSequence();
          break;
        case 5:
          if (ring_.WriteData(MakeKernel(numbers), &chunks[thread])) kernels.push_back(numbers);
          ++numbers;
          break;
        case 6:
          if (WriteClockStep(ring_, numbers)) events.push_back(numbers);
          ++numbers;
          break;
        case 7:
          ring_.CloseChunk(&chunks[thread]);
          break;
        case 8:
          Poll();
          break;
        case 9:
          reader_->Poll(sink_, now_ns_, random() % 40);
          break;
        case 10:
          store();
          if (random() % 2 == 0) reader_->Release(reader_->cursor());
          break;
        case 11:
          if (random() % 2 == 0) {
            Reopen();
            sink_ = stored;
          }
          break;
      }
    }
    reader_->SetProcessGone();
    while (reader_->Poll(sink_, now_ns_, 1 + random() % 40).more) {
    }
    std::sort(calls.begin(), calls.end());
    std::sort(sink_.kernels.begin(), sink_.kernels.end());
    ASSERT_EQ(sink_.calls, calls);
    ASSERT_EQ(sink_.kernels, kernels);
    ASSERT_EQ(sink_.clock_steps, events);
    uint64_t missing = 0;
    for (const auto& hole : sink_.missing) missing += hole.second;
    ASSERT_EQ(missing + calls.size(), ring_.header()->call_sequence);
    ASSERT_EQ(reader_->stats().rejected, 0u);
  }
}

TEST_F(RingReaderTest, TheControlBlockReachesTheProcess) {
  Create(injection::kSmallRing);
  injection::ControlReader control(&ring_);
  EXPECT_FALSE(control.Changed());
  EXPECT_EQ(control.HeartbeatAgeNs(), UINT64_MAX);
  auto sent = std::make_unique<abi::Control>();
  auto got = std::make_unique<abi::Control>();
  sent->plan_count = 1;
  sent->plan[0].quota = 9;
  {
    ControlWriter writer(reader_->control_block());
    writer.Write(*sent);
    writer.Heartbeat(1);
  }
  ASSERT_TRUE(control.Changed());
  ASSERT_TRUE(control.Copy(got.get()));
  EXPECT_EQ(got->plan[0].quota, 9u);
  EXPECT_FALSE(control.Changed());
  EXPECT_GT(control.HeartbeatAgeNs(), 0u);
  EXPECT_LT(control.HeartbeatAgeNs(), UINT64_MAX);

  // A daemon killed while it wrote: readers keep what they have, the next daemon repairs it.
  reader_->control_block()->sequence |= 1;
  EXPECT_FALSE(control.Copy(got.get()));
  Reopen();
  ControlWriter writer(reader_->control_block());
  sent->plan[0].quota = 4;
  writer.Write(*sent);
  ASSERT_TRUE(control.Changed());
  ASSERT_TRUE(control.Copy(got.get()));
  EXPECT_EQ(got->plan[0].quota, 4u);
}

// What Open must refuse.
class RingOpenTest : public RingReaderTest {
 protected:
  void ExpectRefused(const std::string& message) {
    const auto reader = RingReader::Open(ring_.fd(), RingReaderOptions{});
    EXPECT_EQ(reader.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(reader.status().message()), HasSubstr(message));
  }
};

TEST_F(RingOpenTest, AnotherVersion) {
  Create(injection::kSmallRing);
  ring_.header()->abi_version = 7;
  ExpectRefused(absl::StrCat("the library writes version 7, this daemon reads ", abi::kAbiVersion));
}

TEST_F(RingOpenTest, AHeaderThatDoesNotFit) {
  Create(injection::kSmallRing);
  const abi::RingHeader good = *ring_.header();
  const auto expect = [&](auto spoil, const std::string& message) {
    *ring_.header() = good;
    spoil(*ring_.header());
    ExpectRefused(message);
  };
  expect([](auto& h) { h.magic = 0; }, "does not begin with a ring");
  expect([](auto& h) { h.total_bytes += 1; }, "65537 bytes in all");
  expect([](auto& h) { h.header_bytes = 8; }, "header of 8 bytes");
  expect([](auto& h) { h.lane_slots = 63; }, "63 lane slots");
  expect([](auto& h) { h.lane_slots = 0; }, "0 lane slots");
  expect([](auto& h) { h.lane_slots = 1u << 31; }, "does not fit");
  expect([](auto& h) { h.chunk_count = 0; }, "0 chunks");
  expect([](auto& h) { h.chunk_count = 100'000; }, "100000 chunks");
  expect([](auto& h) { h.chunk_bytes = 1u << 31; }, "does not fit");
  expect([](auto& h) { h.chunk_bytes = 100; }, "chunks of 100 bytes");
  expect([](auto& h) { h.control_offset = 0; }, "part 0");
  expect([](auto& h) { h.lane_offset = h.control_offset; }, "part 1");
  expect([](auto& h) { h.directory_offset += 8; }, "part 2");
  expect([](auto& h) { h.chunks_offset = ~uint64_t{4095}; }, "part 3");
}

TEST_F(RingOpenTest, DescriptorsThatAreNoSealedMemfd) {
  const auto refused = [](int fd) {
    const auto reader = RingReader::Open(fd, RingReaderOptions{});
    return std::string(reader.status().message());
  };
  EXPECT_THAT(refused(-1), HasSubstr("not a memfd"));
  const int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  EXPECT_THAT(refused(file), HasSubstr("not a memfd"));
  close(file);
  const int memfd = memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(memfd, 64), 0);
  EXPECT_THAT(refused(memfd), HasSubstr("it needs 7"));
  ASSERT_EQ(fcntl(memfd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
  EXPECT_THAT(refused(memfd), HasSubstr("the memfd has 64 bytes"));
  close(memfd);
  const int large = memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(large, (64 << 20) + 1), 0);
  ASSERT_EQ(fcntl(large, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
  EXPECT_THAT(refused(large), HasSubstr("67108865 bytes"));
  close(large);
  const int read_only = memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(read_only, 1 << 20), 0);
  ASSERT_EQ(fcntl(read_only, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL),
            0);
  EXPECT_THAT(refused(read_only), HasSubstr("mmap"));
  close(read_only);
}

// Bytes that make no sense: rejected, counted, and nobody else's records suffer.
class HostileRingTest : public RingReaderTest {
 protected:
  abi::ChunkState& State(uint32_t index) {
    auto* base = reinterpret_cast<uint8_t*>(ring_.header());
    return reinterpret_cast<abi::ChunkState*>(base + ring_.header()->directory_offset)[index];
  }
  abi::LaneSlot& Slot(uint32_t index) {
    auto* base = reinterpret_cast<uint8_t*>(ring_.header());
    return reinterpret_cast<abi::LaneSlot*>(base + ring_.header()->lane_offset)[index];
  }
};

TEST_F(HostileRingTest, UnknownRecordTypesAreRejectedOneByOne) {
  Create({});
  injection::ThreadChunk chunk = {};
  abi::DataRecord strange = MakeKernel(1);
  strange.type = 99;
  ring_.WriteData(MakeKernel(0), &chunk);
  ring_.WriteData(strange, &chunk);
  strange = MakeCall(0);
  strange.call.op = 200;
  ring_.WriteData(strange, &chunk);
  ring_.WriteData(MakeKernel(3), &chunk);
  Poll();
  EXPECT_THAT(sink_.kernels, ElementsAre(0, 3));
  EXPECT_EQ(reader_->stats().rejected, 2u);
}

TEST_F(HostileRingTest, RecordsOfCollectivesThatMakeNoSenseAreRejected) {
  Create({});
  injection::ThreadChunk chunk = {};
  abi::DataRecord good = {};
  good.arrivals = {.type = static_cast<uint16_t>(abi::DataType::kArrivals),
                   .communicator = 1,
                   .count = 3,
                   .base_ns = 1000,
                   .delay_ns = {0, 5, 5}};
  abi::DataRecord times = {};
  times.collective = {.type = static_cast<uint16_t>(abi::DataType::kCollective),
                      .communicator = 1,
                      .channels = 2,
                      .gpu_start_ns = 10,
                      .gpu_end_ns = 20};
  uint64_t bad = 0;
  const auto write_bad = [&](abi::DataRecord record, const auto& spoil) {
    spoil(record);
    ring_.WriteData(record, &chunk);
    ++bad;
  };
  ring_.WriteData(good, &chunk);
  write_bad(good, [](abi::DataRecord& r) { r.arrivals.communicator = 0; });
  write_bad(good, [](abi::DataRecord& r) { r.arrivals.count = 0; });
  write_bad(good, [](abi::DataRecord& r) { r.arrivals.count = 5; });
  write_bad(good, [](abi::DataRecord& r) { r.arrivals.timed = 4; });
  write_bad(good, [](abi::DataRecord& r) { r.arrivals.delay_ns[2] = 4; });
  write_bad(good, [](abi::DataRecord& r) { r.arrivals.base_ns = UINT64_MAX - 4; });
  ring_.WriteData(times, &chunk);
  write_bad(times, [](abi::DataRecord& r) { r.collective.communicator = 0; });
  write_bad(times, [](abi::DataRecord& r) { r.collective.communicator = 0; });
  write_bad(times, [](abi::DataRecord& r) { r.collective.gpu_start_ns = 21; });
  ring_.WriteData(MakeKernel(7), &chunk);
  EXPECT_EQ(Poll().records, 3u);
  EXPECT_EQ(reader_->stats().rejected, bad);
  ASSERT_EQ(sink_.collectives.size(), 2u);
  EXPECT_EQ(memcmp(&sink_.collectives[0], &good, sizeof good), 0);
  EXPECT_EQ(memcmp(&sink_.collectives[1], &times, sizeof times), 0);
  EXPECT_THAT(sink_.kernels, ElementsAre(7)) << "they are not in OnData";
}

TEST_F(HostileRingTest, ChunksThatBreakTheirRulesAreLeftAlone) {
  const auto expect_rejected = [&](auto spoil) {
    ring_.Destroy();
    sink_ = {};
    Create(injection::kSmallRing);
    injection::ThreadChunk bad = {};
    injection::ThreadChunk good = {};
    ring_.WriteData(MakeKernel(1), &bad);
    ring_.WriteData(MakeKernel(2), &bad);
    ring_.WriteData(MakeKernel(3), &good);
    Poll();
    spoil(State(0));
    ring_.WriteData(MakeKernel(4), &good);
    Poll();
    Poll();
    EXPECT_THAT(sink_.kernels, ElementsAre(1, 2, 3, 4));
    EXPECT_EQ(reader_->stats().rejected, 1u);
  };
  expect_rejected([](auto& chunk) { chunk.published = 1; });
  expect_rejected([](auto& chunk) { chunk.published = 17; });
  expect_rejected([](auto& chunk) { chunk.published = UINT32_MAX; });
  expect_rejected([](auto& chunk) { chunk.state = uint64_t{9} << 2 | abi::kOpen; });
  expect_rejected([](auto& chunk) { chunk.state = uint64_t{1} << 2 | abi::kFree; });
  expect_rejected([](auto& chunk) { chunk.state = uint64_t{1} << 2 | abi::kClaimed; });
  expect_rejected([this](auto& chunk) { State(2).state = uint64_t{2} << 2 | abi::kOpen; });
  expect_rejected([this](auto& chunk) { State(2).state = abi::kOpen; });
}

TEST_F(HostileRingTest, EventsThatBreakTheirRulesAreRejected) {
  const auto expect_rejected = [&](auto spoil) {
    ring_.Destroy();
    sink_ = {};
    Create(injection::kSmallRing);
    WriteClockStep(ring_, 1);
    WriteClockStep(ring_, 2);
    WriteClockStep(ring_, 3);
    spoil(Slot(1));
    Poll();
    EXPECT_THAT(sink_.clock_steps, ElementsAre(1, 3));
    EXPECT_EQ(reader_->stats().rejected, 1u);
  };
  expect_rejected([](auto& slot) { slot.slots = 0; });
  expect_rejected([](auto& slot) { slot.slots = 2; });
  expect_rejected([](auto& slot) { slot.slots = 97; });
  expect_rejected([](auto& slot) { slot.payload_bytes = 41; });
  expect_rejected([](auto& slot) { slot.payload_bytes = 0xFFFFFFF0; });
  expect_rejected([](auto& slot) { slot.payload_bytes = 23; });
  expect_rejected([](auto& slot) { slot.type = 0; });
  expect_rejected([](auto& slot) { slot.type = 999; });
  expect_rejected([](auto& slot) { slot.type = static_cast<uint16_t>(abi::EventType::kSync); });
}

TEST_F(HostileRingTest, TextsThatAreLongerThanTheirEventAreRejected) {
  Create(injection::kSmallRing);
  const abi::NameEvent name = {1, 100, 0};
  ring_.WriteEvent(abi::EventType::kName, &name, sizeof name, "short", 5);
  const abi::CountersEvent counters = {.count = 2};
  ring_.WriteEvent(abi::EventType::kCounters, &counters, sizeof counters, "12345678", 8);
  const abi::KernelCountersEvent kernel = {.count = 1};
  ring_.WriteEvent(abi::EventType::kKernelCounters, &kernel, sizeof kernel, "1234567812345678", 16);
  const abi::FeatureEvent feature = {.length = UINT32_MAX};
  ring_.WriteEvent(abi::EventType::kFeature, &feature, sizeof feature);
  Poll();
  EXPECT_THAT(sink_.event_numbers, IsEmpty());
  EXPECT_EQ(reader_->stats().rejected, 4u);
  EXPECT_EQ(reader_->stats().lost, 0u);
}

TEST_F(HostileRingTest, AMicroBatchOfAnotherSizeIsRejected) {
  Create(injection::kSmallRing);
  const abi::MicroBatchEvent event = {.iteration = 1};
  ring_.WriteEvent(abi::EventType::kMicroBatch, &event, sizeof event);
  ring_.WriteEvent(abi::EventType::kMicroBatch, &event, sizeof event - 4);
  ring_.WriteEvent(abi::EventType::kMicroBatch, &event, sizeof event, "longer", 6);
  Poll();
  EXPECT_THAT(sink_.event_numbers, ElementsAre(0));
  EXPECT_EQ(reader_->stats().rejected, 2u);
}

TEST_F(HostileRingTest, ALaneHeadFromNowhereIsRejected) {
  Create(injection::kSmallRing);
  for (uint64_t head : {uint64_t{1} << 40, ~uint64_t{0}, uint64_t{0}}) {
    WriteClockStep(ring_, 1);
    ring_.header()->lane_head = head;
    Poll();
    EXPECT_EQ(reader_->cursor().lane_position, head);
  }
  EXPECT_GE(reader_->stats().rejected, 2u);
}

// The process overwrites everything, all the time, while the daemon reads.
TEST_F(HostileRingTest, MemoryThatChangesUnderTheReaderDoesNoHarm) {
  Create(injection::kSmallRing);
  std::atomic<bool> stop = false;
  std::thread attacker([&] {
    std::mt19937_64 random(3);
    auto* words = reinterpret_cast<uint64_t*>(ring_.header());
    const size_t first = offsetof(abi::RingHeader, next_chunk_sequence) / 8;
    const size_t count = ring_.bytes() / 8;
    while (!stop.load(std::memory_order_relaxed)) {
      const size_t at = first + random() % (count - first);
      // Small values now and then: they get past more checks.
      std::atomic_ref<uint64_t>(words[at]).store(random() >> (random() % 64),
                                                 std::memory_order_relaxed);
    }
  });
  for (int i = 0; i < 3000; ++i) {
    if (i % 20 == 0) Reopen();
    if (i % 50 == 49) reader_->SetProcessGone();
    now_ns_ += 10'000'000;
    Poll();
    sink_ = {};
    Commit();
  }
  stop = true;
  attacker.join();
}

TEST_F(RingReaderTest, CountersThatCannotBeDoNotBeginAtZeroAgain) {
  Create(injection::kSmallRing);
  abi::RingHeader* header = ring_.header();
  header->lane_dropped = header->data_dropped = header->cupti_dropped = UINT64_MAX;
  header->invalid_timestamps = header->unknown_records = UINT64_MAX;
  Poll();
  const RingStats stats = reader_->stats();
  EXPECT_GE(stats.events_dropped + stats.records_dropped, stats.records_dropped);
  EXPECT_GE(stats.rejected + stats.unknown_records, stats.unknown_records);
  EXPECT_GE(stats.cupti_dropped, uint64_t{1} << 62);
  EXPECT_GE(stats.invalid_timestamps, uint64_t{1} << 62);
}

}  // namespace
}  // namespace seqpoint::ingest
