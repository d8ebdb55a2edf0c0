#include "daemon/jobs/trace_windows.h"

#include "gtest/gtest.h"

namespace seqpoint::jobs {
namespace {

abi::DataRecord Kernel(uint64_t start_ns) {
  abi::DataRecord record = {};
  record.kernel = {.type = static_cast<uint16_t>(abi::DataType::kKernel),
                   .start_ns = start_ns,
                   .end_ns = start_ns + 10};
  return record;
}

TEST(TraceWindows, WorkBelongsToTheWindowInWhichItBegan) {
  TraceWindows windows;
  windows.Open(7);
  for (const uint64_t start_ns : {90, 100, 150, 200, 210}) windows.Add(Kernel(start_ns));
  windows.Close(7, 100, 200);
  EXPECT_FALSE(windows.Take(/*ended=*/false)) << "records may still come";
  windows.OnRead();
  windows.OnRead();
  ASSERT_TRUE(windows.due());
  const auto work = windows.Take(false);
  ASSERT_TRUE(work);
  EXPECT_EQ(work->number, 7u);
  EXPECT_EQ(work->records.size(), 3u);
  EXPECT_EQ(work->unstored.size(), 3 * sizeof(abi::DataRecord));
  EXPECT_FALSE(windows.IsOpen(7));
  EXPECT_FALSE(windows.Take(false));
}

TEST(TraceWindows, OfAProcessThatEndedNoRecordsAreWaitedFor) {
  TraceWindows windows;
  windows.Open(7);
  windows.Add(Kernel(100));
  windows.Close(7, 100, 200);
  EXPECT_TRUE(windows.Take(/*ended=*/true));
}

TEST(TraceWindows, WhatWasStoredComesBackAndIsNotStoredAgain) {
  TraceWindowsState state;
  std::string stored;
  {
    TraceWindows windows;
    windows.Open(7);
    windows.Add(Kernel(100));
    auto unstored = windows.TakeUnstored(8);
    ASSERT_EQ(unstored.size(), 1u);
    stored = unstored.at(7);
    EXPECT_TRUE(windows.TakeUnstored(8).empty());
    windows.Save(&state);
  }
  TraceWindows windows;
  windows.Load(state);
  windows.Restore(stored);
  windows.Add(Kernel(110));
  windows.Close(7, 100, 200);
  const auto work = windows.Take(/*ended=*/true);
  ASSERT_TRUE(work);
  EXPECT_EQ(work->records.size(), 2u);
  EXPECT_EQ(work->unstored.size(), sizeof(abi::DataRecord));
}

TEST(TraceWindows, WhileEverythingIsTracedAllWorkIsStoredWithTheOpenIteration) {
  TraceWindows windows;
  windows.Add(Kernel(50));
  EXPECT_TRUE(windows.TakeUnstored(3).empty()) << "a stray record";
  windows.SetTracing(true);
  windows.Add(Kernel(100));
  auto unstored = windows.TakeUnstored(3);
  ASSERT_TRUE(unstored.contains(3));
  EXPECT_EQ(unstored.at(3).size(), 2 * sizeof(abi::DataRecord));
  windows.SetTracing(false);
  windows.Add(Kernel(110));
  EXPECT_EQ(windows.TakeUnstored(4).size(), 1u) << "until the commit it was";
  windows.Add(Kernel(120));
  EXPECT_TRUE(windows.TakeUnstored(4).empty());
}

TEST(TraceWindows, ALostEndIsForgotten) {
  TraceWindows windows;
  windows.Open(7);
  windows.Open(2000);
  windows.ForgetBefore(1000);
  EXPECT_FALSE(windows.IsOpen(7));
  EXPECT_TRUE(windows.IsOpen(2000));
}

}  // namespace
}  // namespace seqpoint::jobs
