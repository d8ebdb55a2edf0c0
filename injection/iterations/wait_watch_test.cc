#include "injection/iterations/wait_watch.h"

#include "gtest/gtest.h"

namespace seqpoint::inject {
namespace {

using abi::Op;

constexpr uint64_t kCompute = 0x5000, kCopies = 0x6000, kEvent = 0x7000;

void Iterate(WaitWatch& waits) {
  waits.OnBoundary();
  waits.OnCall(Op::kCopyH2D, kCopies, 0);
  waits.OnCall(Op::kLaunch, kCopies, 0);  // prepares the batch
  for (int layer = 0; layer < 4; ++layer) waits.OnCall(Op::kLaunch, kCompute, 0);
}

TEST(WaitWatchTest, WhoWaitsForAnotherStreamWaitsForNoWork) {
  WaitWatch waits;
  Iterate(waits);
  EXPECT_FALSE(waits.Covers(Op::kStreamSync, kCopies, 0));
  EXPECT_FALSE(waits.Covers(Op::kCopyD2H, kCopies, 0));
  EXPECT_TRUE(waits.Covers(Op::kStreamSync, kCompute, 0));
  EXPECT_TRUE(waits.Covers(Op::kCopyD2H, kCompute, 0));
  EXPECT_TRUE(waits.Covers(Op::kContextSync, 0, 0));
}

TEST(WaitWatchTest, AnEventStandsForItsStreamAndItsIteration) {
  WaitWatch waits;
  Iterate(waits);
  EXPECT_FALSE(waits.Covers(Op::kEventSync, 0, kEvent)) << "never recorded";
  waits.OnCall(Op::kEventRecord, kCopies, kEvent);
  EXPECT_FALSE(waits.Covers(Op::kEventSync, 0, kEvent));
  waits.OnCall(Op::kEventRecord, kCompute, kEvent);
  EXPECT_TRUE(waits.Covers(Op::kEventSync, 0, kEvent));
  waits.OnCall(Op::kLaunch, kCompute, 0);
  EXPECT_FALSE(waits.Covers(Op::kEventSync, 0, kEvent)) << "more was launched";
  waits.OnCall(Op::kEventRecord, kCompute, kEvent);
  waits.OnBoundary();
  EXPECT_FALSE(waits.Covers(Op::kEventSync, 0, kEvent)) << "of the iteration before";
  waits.OnCall(Op::kEventRecord, kCompute, kEvent);
  EXPECT_TRUE(waits.Covers(Op::kEventSync, 0, kEvent));
}

TEST(WaitWatchTest, TheStepTellsWhichStreamComputes) {
  WaitWatch waits;
  for (int i = 0; i < 100; ++i) waits.OnCall(Op::kLaunch, kCopies, 0);
  Iterate(waits);
  EXPECT_FALSE(waits.Covers(Op::kStreamSync, kCompute, 0));
  waits.OnStep(kCompute);
  EXPECT_TRUE(waits.Covers(Op::kStreamSync, kCompute, 0));
  EXPECT_FALSE(waits.Covers(Op::kStreamSync, kCopies, 0));
}

TEST(WaitWatchTest, AGraphIsMoreThanAFewKernels) {
  WaitWatch waits;
  waits.OnCall(Op::kGraphLaunch, kCompute, 0);
  for (int i = 0; i < 10; ++i) waits.OnCall(Op::kLaunch, kCopies, 0);
  EXPECT_TRUE(waits.Covers(Op::kStreamSync, kCompute, 0));
  EXPECT_FALSE(waits.Covers(Op::kStreamSync, kCopies, 0));
}

TEST(WaitWatchTest, WhatFindsNoPlaceCoversNothing) {
  WaitWatch waits;
  EXPECT_FALSE(waits.Covers(Op::kStreamSync, kCompute, 0)) << "nothing was launched";
  waits.OnStep(kCompute);
  for (uint64_t event = 16; event < 16 * 2000; event += 16) {
    waits.OnCall(Op::kEventRecord, kCompute, event);
  }
  EXPECT_FALSE(waits.Covers(Op::kEventSync, 0, 16));
  EXPECT_TRUE(waits.Covers(Op::kEventSync, 0, 16 * 1999));
  for (uint64_t stream = 1; stream <= 2 * WaitWatch::kStreams; ++stream) {
    waits.OnCall(Op::kLaunch, stream, 0);
  }
  EXPECT_FALSE(waits.Covers(Op::kStreamSync, 2 * WaitWatch::kStreams, 0));
}

}  // namespace
}  // namespace seqpoint::inject
