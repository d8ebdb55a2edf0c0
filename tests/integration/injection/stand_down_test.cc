// Another profiler in the training process: what it records is complete, as if we were not there,
// and afterwards we go on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/integration/injection/inject_fixture.h"

namespace seqpoint {
namespace {

using abi::Feature;
using ::testing::HasSubstr;

// Iterations begin at the program's mark, which also tells the length.
abi::Rule MarkRule(uint32_t generation) {
  abi::Rule rule = {};
  rule.generation = generation;
  rule.watched_ops = Bit(abi::Op::kMark) | Bit(abi::Op::kStreamSync);
  rule.boundary.op = static_cast<uint8_t>(abi::Op::kMark);
  rule.length_count = 1;
  rule.length[0].pattern = rule.boundary;
  rule.length[0].field = static_cast<uint8_t>(abi::LengthField::kBytes);
  return rule;
}

class StandDownTest : public InjectTest {
 protected:
  void SendAfterCalls(const abi::Control& control) {
    daemon_.OnCalls(60, [control](PuppetProcess& p) { p.Send(control); });
  }
  // The other tool's line, with and without us.
  void RunBoth(std::vector<std::string> arguments) {
    daemon_.Start();
    profiled_ = Run(arguments);
    daemon_.Stop();
    ASSERT_EQ(daemon_.process_count(), 1u) << profiled_.output;
    arguments.push_back("sleep_us=0");
    const ProgramResult alone = Run(arguments, false);
    EXPECT_EQ(profiled_.exit_status, alone.exit_status) << profiled_.output;
    EXPECT_EQ(profiled_.Value("digest"), alone.Value("digest")) << profiled_.output;
    const std::string with = ToolLine(profiled_.output);
    const std::string without = ToolLine(alone.output);
    ASSERT_THAT(without, HasSubstr("tool_subscribe 0 "));
    ASSERT_THAT(without, HasSubstr("tool_kind10 "));
    EXPECT_EQ(with, without) << profiled_.output;
  }
  static std::string ToolLine(const std::string& output) {
    const size_t begin = output.find("tool_subscribe");
    return begin == std::string::npos ? "" : output.substr(begin, output.find('\n', begin) - begin);
  }
  // [first, last) of the pairs "left", "taken again".
  void ExpectOneStandDown(const std::string& holder) {
    ASSERT_EQ(process().stand_downs.size(), 2u);
    EXPECT_EQ(process().stand_downs[0].holder, holder);
    EXPECT_EQ(process().stand_downs[0].event.end_ns, 0u);
    EXPECT_EQ(process().stand_downs[1].event.begin_ns, process().stand_downs[0].event.begin_ns);
    EXPECT_GT(process().stand_downs[1].event.end_ns, process().stand_downs[1].event.begin_ns);
  }
  size_t StepsAfter(uint64_t time_ns) {
    return static_cast<size_t>(
        std::count_if(process().steps.begin(), process().steps.end(),
                      [&](const abi::StepEvent& step) { return step.api_ns > time_ns; }));
  }

  ProgramResult profiled_;
};

TEST_F(StandDownTest, WhileCallsAreLearned) {
  RunBoth({"iterations=60", "layers=3", "tool=20", "tool_end=39"});
  ExpectOneStandDown("torch.profiler");
  EXPECT_THAT(profiled_.output, HasSubstr("stand_down 0"));
  EXPECT_THAT(profiled_.output, HasSubstr("come_back 0"));
  // 7 calls an iteration, and the wait at the end of the tool.
  EXPECT_EQ(process().calls.size(), 40u * 7 + 1);
  EXPECT_THAT(process().Message(Feature::kCallbacks), HasSubstr("watching"));
  EXPECT_EQ(process().stats.rejected, 0u);
}

// Whatever is under way when the other tool starts.
struct UnderWay {
  const char* name;
  uint16_t config_id;
  abi::Level level;
  abi::Ranges ranges = abi::Ranges::kIteration;
  abi::CounterBackend backend = abi::CounterBackend::kRange;
};
class StandDownAtLevelTest : public StandDownTest,
                             public ::testing::WithParamInterface<UnderWay> {};

TEST_P(StandDownAtLevelTest, TheOtherToolsTraceIsComplete) {
  if (GetParam().config_id == 1 || GetParam().level == abi::Level::kTrace) SEQPOINT_NEEDS_TRACES();
  abi::Control control = MarkControl(CopyRule(1));
  control.level = static_cast<uint8_t>(GetParam().level);
  control.counter_backend = static_cast<uint8_t>(GetParam().backend);
  AddConfig(&control, 2, "gpu__time_duration.sum", GetParam().ranges);
  if (GetParam().config_id != 0) AddEntry(&control, 100, 16, GetParam().config_id, 1000);
  SendAfterCalls(control);
  RunBoth({"iterations=2600", "lengths=16", "sleep_us=500", "sync=3", "tool=300", "tool_end=399"});
  ExpectOneStandDown("torch.profiler");
  // Iterations and their measurements start again.
  const uint64_t back_ns = process().stand_downs[1].event.end_ns;
  EXPECT_GT(StepsAfter(back_ns), 150u);
  EXPECT_EQ(StepsAfter(process().stand_downs[0].event.begin_ns), StepsAfter(back_ns));
  if (GetParam().config_id == 2) {
    uint64_t last = 0;
    for (const CountersResult& result : process().counters) {
      if (result.event.status == 0) last = result.event.iteration;
    }
    EXPECT_GT(last, process().stand_downs[1].event.iteration + 100);
  }
  const bool traced = GetParam().config_id == 1 || GetParam().level == abi::Level::kTrace;
  const auto& records = process().records;
  const bool kernels_after =
      std::any_of(records.begin(), records.end(), [&](const abi::DataRecord& record) {
        return record.type == static_cast<uint16_t>(abi::DataType::kKernel) &&
               record.kernel.start_ns > back_ns;
      });
  EXPECT_EQ(kernels_after, traced);
  EXPECT_EQ(process().stats.invalid_timestamps, 0u);
}

INSTANTIATE_TEST_SUITE_P(
    All, StandDownAtLevelTest,
    ::testing::Values(UnderWay{"mark", 0, abi::Level::kMark},
                      UnderWay{"trace", 0, abi::Level::kTrace},
                      UnderWay{"trace_windows", 1, abi::Level::kMark},
                      UnderWay{"counters", 2, abi::Level::kMark},
                      UnderWay{"kernels", 2, abi::Level::kMark, abi::Ranges::kKernels},
                      UnderWay{"samples", 2, abi::Level::kMark, abi::Ranges::kIteration,
                               abi::CounterBackend::kPm}),
    [](const auto& info) { return std::string(info.param.name); });

TEST_F(StandDownTest, MarksOfTheProgramGoOn) {
  abi::Control control = MarkControl(MarkRule(1));
  SendAfterCalls(control);
  RunBoth({"iterations=400", "mark=1", "sleep_us=500", "tool=200", "tool_end=299"});
  ExpectOneStandDown("torch.profiler");
  // No iteration is missing, those of the other tool's time included.
  ASSERT_GT(process().boundaries.size(), 300u);
  for (size_t i = 1; i < process().boundaries.size(); ++i) {
    EXPECT_EQ(process().boundaries[i].iteration, process().boundaries[i - 1].iteration + 1);
  }
}

TEST_F(StandDownTest, AToolThatKeepsItsSubscriptionLeavesUsTheRecords) {
  SEQPOINT_NEEDS_TRACES();
  abi::Control control = MarkControl(MarkRule(1));
  AddEntry(&control, 100, 16, abi::kConfigTrace, 1000, 1);
  SendAfterCalls(control);
  RunBoth({"iterations=2500", "lengths=16", "mark=1", "sleep_us=500", "tool=200", "tool_end=299",
           "tool_keeps=1"});
  ExpectOneStandDown("torch.profiler");
  EXPECT_THAT(profiled_.output, HasSubstr("come_back 1"));
  EXPECT_THAT(process().Message(Feature::kCallbacks),
              testing::AllOf(HasSubstr("torch.profiler"), HasSubstr("still holds")));
  size_t kernels_after = 0;
  for (const abi::DataRecord& record : process().records) {
    kernels_after += record.type == static_cast<uint16_t>(abi::DataType::kKernel) &&
                     record.kernel.start_ns > process().stand_downs[1].event.end_ns;
  }
  EXPECT_GT(kernels_after, 8u * 40);  // 8 kernels an iteration, every other one is a window
}

TEST_F(StandDownTest, AgainAndAgain) {
  SEQPOINT_NEEDS_TRACES();
  for (const char* keeps : {"tool_keeps=0", "tool_keeps=1"}) {
    SCOPED_TRACE(keeps);
    const TempFolder directory;
    extra_ = {{"SEQPOINT_DIR", directory.path().string()}};
    PuppetDaemon daemon(directory.path().string());
    abi::Control control = MarkControl(MarkRule(1));
    AddEntry(&control, 100, 16, abi::kConfigTrace, 1000, 1);
    daemon.OnCalls(60, [control](PuppetProcess& p) { p.Send(control); });
    // Long enough between two stand-downs that iterations are measured.
    const std::vector<std::string> arguments = {"iterations=4200",  "lengths=16", "mark=1",
                                                "sleep_us=500",     "tool=100",   "tool_end=119",
                                                "tool_period=2000", keeps};
    daemon.Start();
    const ProgramResult profiled = Run(arguments);
    daemon.Stop();
    EXPECT_EQ(ToolLine(profiled.output), ToolLine(Run(arguments, false).output));
    ASSERT_EQ(daemon.process_count(), 1u);
    EXPECT_EQ(daemon.process(0).stand_downs.size(), 6u);
    EXPECT_GT(daemon.process(0).boundaries.size(), 4000u);
  }
}

TEST_F(StandDownTest, FromBeforeTheProgramUsesCuda) {
  RunBoth({"iterations=60", "layers=3", "tool=-1", "tool_end=19"});
  ExpectOneStandDown("torch.profiler");
  EXPECT_EQ(process().calls.size(), 40u * 7 + 1);
}

TEST_F(StandDownTest, ToTheEndOfTheProgram) {
  RunBoth({"iterations=40", "layers=3", "tool=20", "tool_end=1000"});
  ASSERT_EQ(process().stand_downs.size(), 1u);
  EXPECT_EQ(process().calls.size(), 20u * 7);
  EXPECT_TRUE(process().stats.closed);
}

TEST_F(StandDownTest, WithAForkInBetween) {
  extra_ = {{"SWGPU_SET", "cupti.fork_hang=1"}};
  RunBoth({"iterations=60", "layers=3", "tool=20", "tool_end=39", "fork=30"});
  ExpectOneStandDown("torch.profiler");
  EXPECT_EQ(profiled_.Value("worker"), "0");
  EXPECT_EQ(process().calls.size(), 40u * 7 + 1);
}

TEST_F(StandDownTest, WithoutCupti) {
  extra_ = {{"SEQPOINT_CUPTI_LIB", "/nonexistent/libcupti.so.13"}};
  RunAndCompare({"iterations=60", "tool=20", "tool_end=39", "mark=1"});
  EXPECT_EQ(process().calls.size(), 60u);  // the marks
}

TEST_F(StandDownTest, ManyThreadsAskAtOnce) {
  abi::Control control = MarkControl(CopyRule(1));
  AddConfig(&control, 2, "gpu__time_duration.sum");
  AddEntry(&control, 100, 16, 2, 1000);
  AddEntry(&control, 101, 32, abi::kConfigTrace, 1000);
  SendAfterCalls(control);
  RunAndCompare({"iterations=800", "lengths=16,32", "sleep_us=500", "storm=3", "capture=400"});
  ASSERT_GE(process().stand_downs.size(), 4u);
  EXPECT_NE(process().stand_downs.back().event.end_ns, 0u);
  EXPECT_GT(StepsAfter(process().stand_downs.back().event.end_ns), 5u);
  EXPECT_EQ(process().stats.rejected, 0u);
}

// Nobody tells us of the other tool, but it was there first.
TEST_F(StandDownTest, AToolThatWasThereFirst) {
  extra_ = {{"SWGPU_SET", "clock.mode=real"}};
  RunBoth({"iterations=1200", "layers=3", "nvtx=1", "sleep_us=2000", "tool=-1", "tool_end=100",
           "tool_tells=0"});
  EXPECT_TRUE(process().stand_downs.empty());
  ASSERT_GE(process().features.size(), 2u);
  bool named = false;
  for (const FeatureResult& feature : process().features) {
    named = named || feature.message.find("CUPTI is held by") != std::string::npos;
  }
  EXPECT_TRUE(named);
  EXPECT_THAT(process().Message(Feature::kCallbacks), HasSubstr("watching"));
  size_t ranges = 0;
  for (const abi::CallRecord& call : process().calls) {
    ranges += static_cast<abi::Op>(call.op) == abi::Op::kNvtxPush;
  }
  EXPECT_EQ(ranges, 1200u);
  EXPECT_GT(process().calls.size(), 2 * ranges + 100);
}

}  // namespace
}  // namespace seqpoint
