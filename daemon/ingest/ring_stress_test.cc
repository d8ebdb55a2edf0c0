// Writers and the reader as threads over one and the same mapping, so that ThreadSanitizer sees
// every access of both sides.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "daemon/ingest/control_writer.h"
#include "daemon/ingest/ring_reader.h"
#include "tests/support/served_ring.h"

namespace seqpoint::ingest {
namespace {

constexpr int kWriters = 4;

class RingStressTest : public ::testing::Test {
 protected:
  ~RingStressTest() override { ring_.Destroy(); }

  void Create(const injection::RingOptions& options) {
    ASSERT_TRUE(ring_.Create(options).ok());
    auto* memory = reinterpret_cast<uint8_t*>(ring_.header());
    auto reader =
        RingReader::OpenMemory(absl::MakeSpan(memory, ring_.bytes()), {.hole_wait_ns = UINT64_MAX});
    ASSERT_TRUE(reader.ok()) << reader.status();
    reader_ = *std::move(reader);
  }
  void PollAndRelease() {
    reader_->Poll(sink_, 0);
    reader_->Release(reader_->cursor());
  }

  injection::RingWriter ring_;
  std::unique_ptr<RingReader> reader_;
  CollectingSink sink_;
};

TEST_F(RingStressTest, ManyWritersOneReader) {
  Create(injection::kSmallRing);
  constexpr uint64_t kPerThread = 30'000;
  std::atomic<uint64_t> calls_written = 0, kernels_written = 0, events_written = 0;
  std::atomic<int> running = kWriters;
  std::vector<std::thread> writers;
  for (uint32_t t = 0; t < kWriters; ++t) {
    writers.emplace_back([&, t] {
      uint64_t calls = 0, kernels = 0, events = 0;
      for (uint64_t i = 0; i < kPerThread; ++i) {
        calls += ring_.WriteData(MakeCall(ring_.NextCallSequence()));
        kernels += ring_.WriteData(MakeKernel(i, t));
        if (i % 8 == 0) events += WriteName(ring_, 1, std::string(i % 300, 'n'));
        if (i % 1000 == 0) ring_.CloseThreadChunk();
      }
      calls_written += calls;
      kernels_written += kernels;
      events_written += events;
      --running;
    });
  }
  while (running > 0) PollAndRelease();
  for (std::thread& writer : writers) writer.join();
  PollAndRelease();
  const RingStats stats = reader_->stats();
  EXPECT_TRUE(std::is_sorted(sink_.calls.begin(), sink_.calls.end()));
  EXPECT_EQ(sink_.kernels.size(), kernels_written);
  EXPECT_EQ(sink_.event_numbers.size(), events_written);
  for (const std::string& name : sink_.names) {
    ASSERT_EQ(name.find_first_not_of('n'), std::string::npos);
  }
  reader_->SetProcessGone();
  PollAndRelease();
  EXPECT_EQ(sink_.calls.size(), calls_written);
  EXPECT_EQ(stats.records_dropped + calls_written + kernels_written, 2 * kPerThread * kWriters);
  EXPECT_EQ(stats.events_dropped + events_written, kPerThread / 8 * kWriters);
  EXPECT_EQ(reader_->stats().lost, 0u);
  EXPECT_EQ(reader_->stats().rejected, 0u);
}

// One kind of record alone and no drops: no other acquire or release hides a missing one.
TEST_F(RingStressTest, DataAlone) {
  Create(injection::RingOptions{});
  constexpr uint64_t kRecords = 100'000;
  std::thread writer([&] {
    injection::ThreadChunk chunk = {};
    for (uint64_t i = 0; i < kRecords; ++i) ring_.WriteData(MakeKernel(i), &chunk);
  });
  while (sink_.kernels.size() < kRecords) PollAndRelease();
  writer.join();
  EXPECT_TRUE(std::is_sorted(sink_.kernels.begin(), sink_.kernels.end()));
}

TEST_F(RingStressTest, EventsAlone) {
  Create(injection::RingOptions{});
  constexpr uint64_t kEvents = 20'000;
  std::thread writer([&] {
    for (uint64_t i = 0; i < kEvents;) i += WriteClockStep(ring_, i);
  });
  while (sink_.clock_steps.size() < kEvents) PollAndRelease();
  writer.join();
  EXPECT_TRUE(std::is_sorted(sink_.clock_steps.begin(), sink_.clock_steps.end()));
}

TEST_F(RingStressTest, TheControlBlockIsNeverTorn) {
  Create(injection::kSmallRing);
  std::atomic<bool> stop = false;
  std::vector<std::thread> readers;
  std::atomic<int> copies = 0;
  for (int i = 0; i < 2; ++i) {
    readers.emplace_back([&] {
      injection::ControlReader control(&ring_);
      auto copy = std::make_unique<abi::Control>();
      while (!stop) {
        if (!control.Changed() || !control.Copy(copy.get())) continue;
        ++copies;
        for (const abi::PlanEntry& entry : copy->plan) {
          ASSERT_EQ(entry.quota, copy->plan_count);
          ASSERT_EQ(entry.entry_id, copy->plan_count);
        }
      }
    });
  }
  ControlWriter writer(reader_->control_block());
  auto control = std::make_unique<abi::Control>();
  for (uint32_t i = 0; i < 300 || copies < 20; ++i) {
    control->plan_count = i;
    for (abi::PlanEntry& entry : control->plan) entry.quota = i, entry.entry_id = i;
    writer.Write(*control);
    writer.Heartbeat(i);
    std::this_thread::sleep_for(std::chrono::microseconds(50));  // readers need a gap to copy
  }
  stop = true;
  for (std::thread& reader : readers) reader.join();
}

}  // namespace
}  // namespace seqpoint::ingest
