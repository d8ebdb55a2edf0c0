#include "daemon/traces/stored_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace seqpoint::traces {
namespace {

RecordedTrace Sample() {
  RecordedTrace recorded;
  trace::Trace& trace = recorded.trace;
  trace.source = "Kineto, a.json";
  trace.names = {"", "gemm", "caf\xe9", "ProfilerStep#1"};
  trace.threads = {"main", "autograd"};
  trace.gpus = {"H200"};
  trace.rank = 3;
  trace.world_size = 8;
  trace.streams = {{0, 7}, {1, -20}};
  trace.calls = {{100, 105, 9, 1, 0, trace::CallKind::kLaunch},
                 {90, 90, 0, 2, 1, trace::CallKind::kOther}};
  trace::Work work;
  work.start_ns = 1'700'000'000'000'000'110;
  work.end_ns = 1'700'000'000'000'000'200;
  work.correlation = UINT64_MAX;
  work.bytes = 1u << 31;
  work.name = 1;
  work.stream = 1;
  work.grid[0] = 70'000;
  work.block[2] = 64;
  work.kind = trace::WorkKind::kCopyD2H;
  work.pageable = true;
  trace.works = {work, {}};
  trace.spans = {{95, 300, 3, 0, trace::SpanKind::kAnnotation}};
  trace.waits = {{9, 4, trace::kNone, 1}};
  trace.flows = {{95, 1'700'000'000'000'000'000, 0, 1}, {90, 20, 1, 0}};
  trace.left_out.truncated = true;
  trace.left_out.damaged = 2;
  recorded.iteration_starts_ns = {95, 300};
  recorded.iterations = 1;
  recorded.first_iteration = 40;
  return recorded;
}

TEST(StoredTrace, ComesBackAsItWas) {
  const auto bytes = ToBytes(Sample());
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  const auto back = FromBytes(*bytes);
  ASSERT_TRUE(back.ok()) << back.status();
  const trace::Trace &was = Sample().trace, &is = back->trace;
  EXPECT_EQ(is.source, was.source);
  EXPECT_EQ(is.names, was.names);
  EXPECT_EQ(is.threads, was.threads);
  EXPECT_EQ(is.gpus, was.gpus);
  EXPECT_EQ(is.rank, 3);
  EXPECT_EQ(is.world_size, 8);
  EXPECT_EQ(is.streams[1].id, -20);
  EXPECT_EQ(is.calls[1].begin_ns, 90);
  EXPECT_EQ(is.calls[1].thread, 1u);
  EXPECT_EQ(is.calls[0].kind, trace::CallKind::kLaunch);
  EXPECT_EQ(is.works[0].end_ns, was.works[0].end_ns);
  EXPECT_EQ(is.works[0].correlation, UINT64_MAX);
  EXPECT_EQ(is.works[0].grid[0], 70'000u);
  EXPECT_EQ(is.works[0].block[2], 64);
  EXPECT_TRUE(is.works[0].pageable);
  EXPECT_EQ(is.waits[0].stream, trace::kNone);
  EXPECT_EQ(is.waits[0].source, 1u);
  EXPECT_EQ(is.spans[0].end_ns, 300);
  ASSERT_EQ(is.flows.size(), 2u);
  EXPECT_EQ(is.flows[0].backward_ns, was.flows[0].backward_ns);
  EXPECT_EQ(is.flows[0].backward_thread, 1u);
  EXPECT_EQ(is.flows[1].forward_ns, 90);
  EXPECT_EQ(is.flows[1].backward_ns, 20);
  EXPECT_TRUE(is.left_out.truncated);
  EXPECT_THAT(back->iteration_starts_ns, testing::ElementsAre(95, 300));
  EXPECT_EQ(back->iterations, 1u);
  EXPECT_EQ(back->first_iteration, 40);
  EXPECT_EQ(*ToBytes(*back), *bytes);
}

TEST(StoredTrace, MoreRowsThanOnePart) {
  RecordedTrace recorded = Sample();
  recorded.trace.calls.clear();
  for (int i = 0; i < 200'000; ++i) {
    recorded.trace.calls.push_back(
        {10LL * i, 10LL * i + 3, static_cast<uint64_t>(i), 1, 1, trace::CallKind::kLaunch});
  }
  const auto back = FromBytes(*ToBytes(recorded));
  ASSERT_TRUE(back.ok()) << back.status();
  ASSERT_EQ(back->trace.calls.size(), 200'000u);
  for (int i = 0; i < 200'000; i += 997) {
    EXPECT_EQ(back->trace.calls[static_cast<size_t>(i)].begin_ns, 10LL * i);
    EXPECT_EQ(back->trace.calls[static_cast<size_t>(i)].correlation, static_cast<uint64_t>(i));
  }
}

TEST(StoredTrace, DamagedBytesAreToldOrHarmless) {
  const std::string bytes = *ToBytes(Sample());
  std::mt19937 random(7);
  int refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string damaged = bytes;
    damaged[random() % damaged.size()] = static_cast<char>(random());
    if (random() % 4 == 0) damaged.resize(random() % damaged.size());
    const auto back = FromBytes(damaged);
    refused += back.ok() ? 0 : 1;
    if (!back.ok()) continue;
    for (const trace::Work& work : back->trace.works) {
      ASSERT_LT(work.stream, back->trace.streams.size());
      ASSERT_LT(work.name, back->trace.names.size());
      ASSERT_GE(work.end_ns, work.start_ns);
    }
    for (const trace::Call& call : back->trace.calls) {
      ASSERT_LT(call.thread, back->trace.threads.size());
    }
  }
  EXPECT_GT(refused, 1000);
}

TEST(StoredTrace, AnotherVersionIsNamed) {
  std::string bytes = *ToBytes(Sample());
  ASSERT_EQ(bytes.substr(0, 2), std::string("\x08\x01"));
  bytes[1] = 9;
  const auto back = FromBytes(bytes);
  EXPECT_EQ(back.status().message(),
            "the stored trace has version 9, this program knows 1; import the trace again");
}

}  // namespace
}  // namespace seqpoint::traces
