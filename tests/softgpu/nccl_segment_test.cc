// The shared memory of a communicator, with threads as ranks, so that sanitizers see all of them.

#include "tests/softgpu/nccl_segment.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

namespace seqpoint::softgpu {
namespace {

std::string NewName() {
  static int names = 0;
  return "/swgpu-nccl-test-" + std::to_string(getpid()) + "-" + std::to_string(++names);
}

bool Exists(const std::string& name) {
  const int fd = shm_open(name.c_str(), O_RDWR, 0);
  if (fd >= 0) close(fd);
  return fd >= 0;
}

// Runs `body(segment, rank)` on a thread for each rank.
template <typename Body>
void OnRanks(int ranks, const Body& body) {
  const std::string name = NewName();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      std::string error;
      auto segment = NcclSegment::Join(name, ranks, rank, &error);
      ASSERT_NE(segment, nullptr) << error;
      body(segment.get(), rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(Exists(name)) << "the last rank to join unlinks the name";
}

TEST(NcclSegment, EveryRankSeesWhatEveryRankPosted) {
  constexpr int kRanks = 6;
  OnRanks(kRanks, [](NcclSegment* segment, int rank) {
    for (uint64_t i = 0; i < 500; ++i) {
      const uint32_t round = segment->Enter({i * 100 + static_cast<uint64_t>(rank), i, 7});
      ASSERT_TRUE(segment->Await(round));
      for (int r = 0; r < kRanks; ++r) {
        ASSERT_EQ(segment->At(round, r).time_ns, i * 100 + static_cast<uint64_t>(r));
        ASSERT_EQ(segment->At(round, r).a, i);
      }
    }
  });
}

TEST(NcclSegment, BothSidesOfATransferLearnTheOthersTime) {
  constexpr int kRanks = 4;
  OnRanks(kRanks, [](NcclSegment* segment, int rank) {
    const int next = (rank + 1) % kRanks;
    const int previous = (rank + kRanks - 1) % kRanks;
    for (uint64_t i = 0; i < 500; ++i) {
      segment->Offer(next, true, i, 1000 * i + static_cast<uint64_t>(rank));
      segment->Offer(previous, false, i, 2000 * i + static_cast<uint64_t>(rank));
      uint64_t time_ns = 0;
      ASSERT_TRUE(segment->AwaitPeer(next, true, i, &time_ns));
      ASSERT_EQ(time_ns, 2000 * i + static_cast<uint64_t>(next));
      ASSERT_TRUE(segment->AwaitPeer(previous, false, i, &time_ns));
      ASSERT_EQ(time_ns, 1000 * i + static_cast<uint64_t>(previous));
    }
  });
}

// One side has all its transfers under way at once, the other one after another.
TEST(NcclSegment, AGroupMeetsSingleCalls) {
  OnRanks(2, [](NcclSegment* segment, int rank) {
    constexpr uint64_t kEach = NcclSegment::kMaxPending;
    for (uint64_t begin = 0; begin < 20 * kEach; begin += kEach) {
      for (uint64_t i = begin; rank == 0 && i < begin + kEach; ++i) segment->Offer(1, true, i, i);
      for (uint64_t i = begin; i < begin + kEach; ++i) {
        if (rank == 1) segment->Offer(0, false, i, i + 1);
        uint64_t time_ns = 0;
        ASSERT_TRUE(segment->AwaitPeer(1 - rank, rank == 0, i, &time_ns));
        ASSERT_EQ(time_ns, rank == 0 ? i + 1 : i);
      }
    }
  });
}

TEST(NcclSegment, AnAbortEndsTheWaitOfItsRankOnly) {
  OnRanks(2, [](NcclSegment* segment, int rank) {
    if (rank == 1) return;  // never enters
    std::thread other([segment] {
      while (segment->waiting_since_ns() == 0) usleep(1000);
      segment->Abort();
    });
    const uint32_t round = segment->Enter({1, 0, 0});
    EXPECT_FALSE(segment->Await(round));
    other.join();
  });
}

TEST(NcclSegment, ARankJoinsOnceAndAllExpectTheSameNumber) {
  const std::string name = NewName();
  std::string error;
  auto first = NcclSegment::Join(name, 3, 1, &error);
  ASSERT_NE(first, nullptr) << error;
  EXPECT_TRUE(Exists(name));
  EXPECT_EQ(NcclSegment::Join(name, 3, 1, &error), nullptr);
  EXPECT_EQ(error, "rank 1 joined twice");
  EXPECT_EQ(NcclSegment::Join(name, 2, 0, &error), nullptr);
  EXPECT_EQ(error, "rank 0 expects 2 ranks, another one 3");
  shm_unlink(name.c_str());
}

}  // namespace
}  // namespace seqpoint::softgpu
