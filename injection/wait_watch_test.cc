#include "injection/wait_watch.h"

#include "gtest/gtest.h"

namespace seqpoint::inject {
namespace {

using abi::Op;

constexpr uint64_t kCompute = 0x5000, kCopies = 0x6000, kEvent = 0x7000;

TEST(WaitWatchTest, WhoWaitsForCopiesAloneWaitsForNoWork) {
  WaitWatch waits;
  waits.OnCall(Op::kCopyH2D, kCopies, 0);
  waits.OnCall(Op::kEventRecord, kCopies, kEvent);
  waits.OnCall(Op::kLaunch, kCompute, 0);
  EXPECT_FALSE(waits.Covers(Op::kStreamSync, kCopies, 0));
  EXPECT_FALSE(waits.Covers(Op::kEventSync, 0, kEvent));
  EXPECT_TRUE(waits.Covers(Op::kStreamSync, kCompute, 0));
  EXPECT_TRUE(waits.Covers(Op::kContextSync, 0, 0));
  EXPECT_TRUE(waits.Covers(Op::kCopyD2H, 0, 0));
  waits.OnCall(Op::kEventRecord, kCompute, kEvent);
  EXPECT_TRUE(waits.Covers(Op::kEventSync, 0, kEvent));
}

TEST(WaitWatchTest, BatchesMayComeOnTheStreamThatComputes) {
  WaitWatch waits;
  waits.OnCall(Op::kCopyH2D, kCompute, 0);
  waits.OnCall(Op::kLaunch, kCompute, 0);
  waits.OnCall(Op::kEventRecord, kCompute, kEvent);
  EXPECT_TRUE(waits.Covers(Op::kStreamSync, kCompute, 0));
  EXPECT_TRUE(waits.Covers(Op::kEventSync, 0, kEvent));
}

TEST(WaitWatchTest, KernelsThatPrepareABatchAreNotTheWork) {
  WaitWatch waits;
  for (int iteration = 0; iteration < 10; ++iteration) {
    waits.OnCall(Op::kCopyH2D, kCopies, 0);
    waits.OnCall(Op::kLaunch, kCopies, 0);
    for (int layer = 0; layer < 4; ++layer) waits.OnCall(Op::kLaunch, kCompute, 0);
  }
  EXPECT_FALSE(waits.Covers(Op::kStreamSync, kCopies, 0));
  EXPECT_TRUE(waits.Covers(Op::kStreamSync, kCompute, 0));
}

// The loss comes back on the stream of the batches, now and then.
TEST(WaitWatchTest, ResultsThatAreFetchedAreDone) {
  WaitWatch waits;
  waits.OnCall(Op::kCopyH2D, kCopies, 0);
  waits.OnCall(Op::kCopyD2H, kCopies, 0);
  waits.OnCall(Op::kEventRecord, kCopies, kEvent);
  EXPECT_TRUE(waits.Covers(Op::kStreamSync, kCopies, 0));
  EXPECT_TRUE(waits.Covers(Op::kEventSync, 0, kEvent));
  waits.OnCall(Op::kStreamSync, kCopies, 0);
  waits.OnCall(Op::kCopyH2D, kCopies, 0);
  EXPECT_FALSE(waits.Covers(Op::kStreamSync, kCopies, 0));
}

TEST(WaitWatchTest, NothingIsSaidOfEventsThatAreNotKnown) {
  WaitWatch waits;
  EXPECT_FALSE(waits.Covers(Op::kEventSync, 0, kEvent));
  for (uint64_t event = 16; event < 16 * 2000; event += 16) {
    waits.OnCall(Op::kEventRecord, kCompute, event);
  }
  EXPECT_FALSE(waits.Covers(Op::kEventSync, 0, 16));
  EXPECT_TRUE(waits.Covers(Op::kEventSync, 0, 16 * 1999));
}

TEST(WaitWatchTest, StreamsBeyondTheTableCount) {
  WaitWatch waits;
  for (uint64_t stream = 1; stream <= 2 * WaitWatch::kStreams; ++stream) {
    waits.OnCall(Op::kCopyH2D, stream, 0);
  }
  EXPECT_FALSE(waits.Covers(Op::kStreamSync, 1, 0));
  EXPECT_TRUE(waits.Covers(Op::kStreamSync, 2 * WaitWatch::kStreams, 0));
}

}  // namespace
}  // namespace seqpoint::inject
