// The library on the CUPTI of each release, with what that one does differently or wrong, and after
// another profiler of the process has left CUPTI another than it was.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/integration/injection/inject_fixture.h"

namespace seqpoint {
namespace {

using abi::DataType;
using abi::Feature;
using ::testing::HasSubstr;

class ReleaseTest : public InjectTest {
 protected:
  // Whatever the rest is run on: without it the newest one that PyTorch brings.
  ReleaseTest() { extra_["SWGPU_CUPTI_VERSION"] = "130001"; }
  void SendAfterCalls(const abi::Control& control) {
    daemon_.OnCalls(60, [control](PuppetProcess& p) { p.Send(control); });
  }
  // Iterations of the trainer, each of them traced.
  abi::Control TraceControl() {
    abi::Control control = MarkControl(CopyRule(1));
    AddEntry(&control, 100, 16, abi::kConfigTrace, 1000, 1);
    control.plan[0].low[0] = INT64_MIN;
    control.plan[0].high[0] = INT64_MAX;
    return control;
  }
  // The trainer under the puppet, for tests whose program has no digest of its own.
  ProgramResult RunWatched(const std::vector<std::string>& arguments) {
    daemon_.Start();
    ProgramResult result = Run(arguments);
    daemon_.Stop();
    EXPECT_EQ(result.exit_status, 0) << result.output;
    EXPECT_EQ(result.signal, 0);
    EXPECT_EQ(daemon_.process_count(), 1u);
    return result;
  }
  template <typename Matches>
  size_t CountKernels(const Matches& matches) {
    size_t count = 0;
    for (const abi::DataRecord& record : process().records) {
      count += record.type == static_cast<uint16_t>(DataType::kKernel) && matches(record.kernel);
    }
    return count;
  }
  size_t GoodWindows() {
    size_t count = 0;
    for (const abi::WindowEvent& window : process().windows) {
      count += window.iteration != 0 && (window.flags & abi::kWindowGivenUp) == 0 &&
               window.level == static_cast<uint8_t>(abi::Level::kTrace);
    }
    return count;
  }
  // Each of the trainer's iterations launches eight kernels.
  void ExpectKernelsInGoodWindows() {
    for (const abi::WindowEvent& window : process().windows) {
      if (window.level != static_cast<uint8_t>(abi::Level::kTrace) ||
          (window.flags & abi::kWindowGivenUp) != 0) {
        continue;
      }
      EXPECT_GE(CountKernels([&](const auto& kernel) {
                  return kernel.start_ns >= window.begin_ns && kernel.end_ns <= window.end_ns;
                }),
                8u)
          << window.iteration;
    }
  }
  bool AnyMessage(const std::string& part) {
    return std::any_of(
        process().features.begin(), process().features.end(),
        [&](const FeatureResult& f) { return f.message.find(part) != std::string::npos; });
  }
  uint64_t BackNs() {
    return process().stand_downs.empty() ? 0 : process().stand_downs.back().event.end_ns;
  }
};

// The clock of torch.profiler counts ticks, and stays CUPTI's to the end of the process.
TEST_F(ReleaseTest, TimesAreTheSameAfterAProfilerThatCountsTicks) {
  extra_["SWGPU_SET"] =
      "clock.mode=real,noise.kernel=0,noise.slow_share=0,noise.drift=0,"
      "cupti.version=130100";
  SendAfterCalls(TraceControl());
  RunAndCompare({"iterations=2500", "lengths=16", "sleep_us=500", "tool=150", "tool_end=169",
                 "tool_ticks=1"});
  ASSERT_EQ(process().stand_downs.size(), 2u);
  std::map<bool, std::set<uint64_t>> durations;  // after the other profiler
  for (const abi::DataRecord& record : process().records) {
    if (record.type != static_cast<uint16_t>(DataType::kKernel)) continue;
    if (process().names[record.kernel.name_id] != "forward_layer") continue;
    durations[record.kernel.start_ns > BackNs()].insert(record.kernel.end_ns -
                                                        record.kernel.start_ns);
  }
  ASSERT_EQ(durations.size(), 2u);
  EXPECT_EQ(durations[true], durations[false]);
  EXPECT_EQ(process().stats.clock_kind, abi::ClockKind::kReal);
  EXPECT_EQ(process().stats.invalid_timestamps, 0u);
}

// CUPTI 13.0 gives kernels no times from then on: none is better than an iteration without kernels.
TEST_F(ReleaseTest, NothingIsTracedWhereKernelsHaveNoTimesAnyMore) {
  extra_["SWGPU_SET"] = "clock.mode=real,cupti.version=130001";
  SendAfterCalls(TraceControl());
  RunAndCompare({"iterations=2500", "lengths=16", "sleep_us=500", "tool=150", "tool_end=169",
                 "tool_ticks=1"});
  ASSERT_EQ(process().stand_downs.size(), 2u);
  EXPECT_GT(CountKernels([&](const auto& kernel) { return kernel.start_ns < BackNs(); }), 100u);
  EXPECT_EQ(process().stats.invalid_timestamps, 0u);
  for (const abi::WindowEvent& window : process().windows) {
    if (window.level == static_cast<uint8_t>(abi::Level::kTrace)) {
      EXPECT_LT(window.begin_ns, BackNs());
    }
  }
  EXPECT_TRUE(AnyMessage("gives kernels no times from then on"));
  // Iterations are timed by their copies as before.
  size_t copies = 0;
  for (const abi::DataRecord& record : process().records) {
    copies +=
        record.type == static_cast<uint16_t>(DataType::kCopy) && record.copy.start_ns > BackNs();
  }
  EXPECT_GT(copies, 100u);
}

// CUPTI records no graph as a whole that was instantiated while it was not asked to, and not its
// kernels either while it is.
TEST_F(ReleaseTest, GraphsThatAreMadeLateAreTraced) {
  // The iterations of the other length make the graphs.
  abi::Control control = MarkControl(CopyRule(1));
  AddEntry(&control, 100, 16, abi::kConfigTrace, 1000);
  SendAfterCalls(control);
  RunAndCompare(
      {"iterations=400", "lengths=32,16", "layers=2", "sleep_us=500", "replay=1", "recapture=20"});
  size_t windows = 0, with_graph = 0;
  for (const abi::WindowEvent& window : process().windows) {
    if (window.level != static_cast<uint8_t>(abi::Level::kTrace)) continue;
    if ((window.flags & abi::kWindowGivenUp) != 0) continue;
    ++windows;
    with_graph += std::any_of(
        process().records.begin(), process().records.end(), [&](const abi::DataRecord& record) {
          if (record.type == static_cast<uint16_t>(DataType::kGraph)) {
            return record.graph.start_ns > window.begin_ns && record.graph.end_ns < window.end_ns;
          }
          return record.type == static_cast<uint16_t>(DataType::kKernel) &&
                 record.kernel.graph_id != 0 && record.kernel.start_ns > window.begin_ns &&
                 record.kernel.end_ns < window.end_ns;
        });
  }
  EXPECT_GT(windows, 100u);
  EXPECT_EQ(with_graph, windows);
}

// Graphs are listened to at all times. Where there are none, and nothing else is recorded, nobody
// has taken our buffers.
TEST_F(ReleaseTest, AProgramWithoutRecordsIsNotTakenForOneWhoseRecordsAreLost) {
  abi::Control control = MarkControl(CopyRule(1));
  control.rule.clock = control.rule.step;  // a launch, which leaves no record
  AddEntry(&control, 100, 32, abi::kConfigTrace, 1000);
  daemon_.OnCalls(60, [control](PuppetProcess& p) { p.Send(control); });
  RunWatched({"iterations=900", "lengths=16", "sleep_us=5000"});
  EXPECT_GT(process().clocks.size(), 500u);
  EXPECT_FALSE(AnyMessage("took CUPTI's buffers"));
}

// Graphs of the time when CUPTI was another's have no record as a whole; their kernels have.
TEST_F(ReleaseTest, GraphsThatWereMadeWhileCuptiWasAnothersAreTraced) {
  extra_["SWGPU_SET"] = "cupti.version=130101";
  SendAfterCalls(TraceControl());
  RunAndCompare({"iterations=1800", "lengths=16", "layers=2", "sleep_us=1000", "replay=1",
                 "recapture=165", "tool=150", "tool_end=179"});
  ASSERT_EQ(process().stand_downs.size(), 2u);
  const size_t nodes = CountKernels([&](const auto& kernel) {
    return kernel.graph_id != 0 && kernel.start_ns > BackNs() && kernel.correlation_id != 0;
  });
  const size_t losses = CountKernels([&](const auto& kernel) {
    return process().names[kernel.name_id] == "loss" && kernel.start_ns > BackNs();
  });
  EXPECT_GT(losses, 50u);
  EXPECT_GE(nodes + 2, losses);  // one kernel of a graph in each iteration
}

// Before 13.1 Update 1 the ids of graph launches are wrong after another session: none is passed
// on.
class GraphIdsTest : public ReleaseTest, public ::testing::WithParamInterface<const char*> {};
TEST_P(GraphIdsTest, WrongOnesAreNotPassedOn) {
  extra_["SWGPU_CUPTI_VERSION"] = GetParam();
  SendAfterCalls(TraceControl());
  RunWatched({"iterations=1800", "lengths=16", "layers=2", "sleep_us=1000", "replay=1", "tool=150",
              "tool_end=179"});
  ASSERT_EQ(process().stand_downs.size(), 2u);
  const uint64_t back_ns = process().stand_downs[1].event.end_ns;
  std::map<uint32_t, uint64_t> called_ns;  // of graph launches
  for (const abi::DataRecord& record : process().records) {
    if (record.type == static_cast<uint16_t>(DataType::kApi) &&
        record.api.op == static_cast<uint8_t>(abi::Op::kGraphLaunch)) {
      called_ns[record.api.correlation_id] = record.api.start_ns;
    }
  }
  size_t without = 0, with = 0;
  std::map<uint32_t, uint64_t> started_ns;
  for (const abi::DataRecord& record : process().records) {
    if (record.type != static_cast<uint16_t>(DataType::kKernel) || record.kernel.graph_id == 0 ||
        record.kernel.start_ns < back_ns) {
      continue;
    }
    if (record.kernel.correlation_id == 0) {
      ++without;
      continue;
    }
    ++with;
    const uint64_t call_ns = called_ns[record.kernel.correlation_id];
    EXPECT_GT(record.kernel.start_ns, call_ns);
    EXPECT_LT(record.kernel.start_ns - call_ns, 150'000u);  // and not an iteration later
  }
  EXPECT_GT(with + without, 50u);
  EXPECT_EQ(std::string(GetParam()) == "130100" ? with : without, 0u);
}
INSTANTIATE_TEST_SUITE_P(All, GraphIdsTest, ::testing::Values("130100", "130101"),
                         [](const auto& info) { return std::string(info.param); });

// From 13.2 on the second API's subscription takes the first API's records away.
class ActivityApiTest : public ReleaseTest, public ::testing::WithParamInterface<const char*> {};
TEST_P(ActivityApiTest, RecordsCome) {
  extra_["SWGPU_CUPTI_VERSION"] = GetParam();
  RunWatched({"iterations=50", "sleep_us=500"});
  EXPECT_GE(process().CountRecords(DataType::kCopy), 50u);
  EXPECT_EQ(process().Message(Feature::kActivity), "GPU work can be recorded");
}
INSTANTIATE_TEST_SUITE_P(All, ActivityApiTest, ::testing::Values("130001", "130200", "130401"),
                         [](const auto& info) { return std::string(info.param); });

// Another profiler ends CUPTI: at its own end, or at some later call of the program.
class FinalizeTest : public ReleaseTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(FinalizeTest, EverythingIsTakenAnew) {
  extra_["SWGPU_SET"] = "cupti.version=130100";
  abi::Control control = MarkControl(CopyRule(1));
  AddConfig(&control, 2, "gpu__time_duration.sum");
  AddEntry(&control, 100, 16, abi::kConfigTrace, 1000);
  AddEntry(&control, 101, 32, 2, 1000);
  SendAfterCalls(control);
  RunAndCompare({"iterations=1500", "lengths=16,32", "sleep_us=3000", "tool=150", "tool_end=159",
                 "tool_keeps=1", GetParam()});
  ASSERT_GE(process().stand_downs.size(), 2u);
  ASSERT_FALSE(process().boundaries.empty());
  EXPECT_GT(std::count_if(process().boundaries.begin(), process().boundaries.end(),
                          [&](const auto& boundary) { return boundary.api_ns > BackNs(); }),
            50);
  // Traced windows have their kernels, and abandoned windows do not count.
  ExpectKernelsInGoodWindows();
  EXPECT_GT(CountKernels([&](const auto& kernel) { return kernel.start_ns > BackNs(); }), 50u);
  uint64_t measured = 0;
  for (const CountersResult& result : process().counters) {
    if (result.event.status == 0) measured = result.event.iteration;
  }
  EXPECT_GT(measured, process().stand_downs.back().event.iteration + 20);
}
INSTANTIATE_TEST_SUITE_P(All, FinalizeTest,
                         ::testing::Values("tool_finalizes=159", "tool_finalizes=160",
                                           "ends_cupti=200"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '=', '_');
                           return name;
                         });

// 13.0 before Update 1 may deadlock when kernels are not recorded any more.
TEST_F(ReleaseTest, NoKernelIsRecordedWhereThatMayDeadlock) {
  extra_["SWGPU_SET"] = "cupti.version=130000";
  SendAfterCalls(TraceControl());
  RunAndCompare({"iterations=300", "lengths=16", "sleep_us=500"});
  EXPECT_EQ(CountKernels([](const auto&) { return true; }), 0u);
  EXPECT_EQ(GoodWindows(), 0u);
  EXPECT_GT(process().CountRecords(DataType::kCopy), 200u);
  EXPECT_THAT(process().Message(Feature::kActivity),
              testing::AllOf(HasSubstr("130000"), HasSubstr("may deadlock"), HasSubstr("install")));
}

// A call of CUPTI that does not return is named: one of a thread that trains, and one of the helper
// thread.
struct Hang {
  const char* function;
  const char* who;
  bool traced;
};
class HangTest : public ReleaseTest, public ::testing::WithParamInterface<Hang> {};
TEST_P(HangTest, IsNamed) {
  const std::string function = GetParam().function;
  extra_["SWGPU_SET"] = "cupti.hang_ms=2500,cupti.fail_after=3,cupti.hang=" + function;
  SendAfterCalls(GetParam().traced ? TraceControl() : MarkControl(CopyRule(1)));
  RunWatched({"iterations=700", "lengths=16", "sleep_us=5000"});
  EXPECT_TRUE(AnyMessage(function + " of CUPTI version 130001 has not returned for 2 s; " +
                         GetParam().who));
  EXPECT_TRUE(AnyMessage(function + " returned after 2."));
}
INSTANTIATE_TEST_SUITE_P(
    All, HangTest,
    ::testing::Values(Hang{"cuptiActivityDisable", "the thread that trains waits for it", true},
                      Hang{"cuptiActivityFlushAll", "training goes on", false}),
    [](const auto& info) { return std::string(info.param.function); });

// A single one that was slow, as on a machine that was stopped, costs no record.
TEST_F(ReleaseTest, OneSlowFlushLosesNothing) {
  extra_["SWGPU_SET"] = "cupti.hang=cuptiActivityFlushAll,cupti.hang_ms=300,cupti.fail_after=20";
  SendAfterCalls(MarkControl(CopyRule(1)));
  RunWatched({"iterations=1500", "lengths=16", "sleep_us=3000"});
  EXPECT_EQ(process().CountRecords(DataType::kCopy), 1500u);
}

// Flushes become slow over hours. They are done less often then.
TEST_F(ReleaseTest, SlowFlushesAreDoneLessOften) {
  extra_["SWGPU_SET"] = "clock.mode=real,cupti.flush_growth_us=30000";
  SendAfterCalls(MarkControl(CopyRule(1)));
  RunAndCompare({"iterations=300", "lengths=16", "sleep_us=10000"});
  EXPECT_TRUE(AnyMessage("a flush of CUPTI's records takes"));
  EXPECT_EQ(process().stats.invalid_timestamps, 0u);
}

// CUPTI's buffers on the GPU run out after millions of kernels, and kernels have no times then.
TEST_F(ReleaseTest, IterationsWhoseKernelsHaveNoTimesAreNotTraced) {
  extra_["SWGPU_SET"] = "clock.mode=real,cupti.kernel_record_limit=700";
  SendAfterCalls(TraceControl());
  RunAndCompare({"iterations=800", "lengths=16", "sleep_us=3000"});
  EXPECT_GT(GoodWindows(), 20u);
  ExpectKernelsInGoodWindows();
  EXPECT_TRUE(AnyMessage("buffers on the GPU have run out"));
}

// A thread captures graphs while the one that trains is traced and counted, and while a profiler
// comes and goes.
TEST_F(ReleaseTest, NoCaptureIsBrokenByStandingDown) {
  extra_["SWGPU_SET"] = "cupti.version=130101";
  SendAfterCalls(TraceControl());
  const ProgramResult result =
      RunWatched({"iterations=1000", "lengths=16", "sleep_us=500", "capture_thread=1", "storm=2"});
  EXPECT_EQ(result.Value("broken"), "0") << result.output;
  EXPECT_GT(process().stand_downs.size(), 10u);
}

TEST_F(ReleaseTest, NoCaptureOfAnotherThreadIsBroken) {
  abi::Control control = MarkControl(CopyRule(1));
  AddConfig(&control, 2, "gpu__time_duration.sum");
  AddEntry(&control, 100, 16, abi::kConfigTrace, 1000);
  AddEntry(&control, 101, 32, 2, 1000);
  SendAfterCalls(control);
  const ProgramResult result =
      RunWatched({"iterations=1500", "lengths=16,32", "sleep_us=500", "capture_thread=1"});
  EXPECT_EQ(result.Value("broken"), "0") << result.output;
  EXPECT_GT(GoodWindows(), 20u);
  EXPECT_GT(process().counters.size(), 20u);
}

// A tool was there first, and ended: what it left is no other than behind a later one.
TEST_F(ReleaseTest, WhatAToolThatWasFirstLeavesIsKnown) {
  extra_["SWGPU_SET"] = "clock.mode=real,cupti.version=130101";
  SendAfterCalls(TraceControl());
  RunWatched({"iterations=2000", "lengths=16", "layers=2", "sleep_us=2000", "replay=1", "tool=-1",
              "tool_end=100", "tool_tells=0"});
  EXPECT_GT(GoodWindows(), 50u);
  const auto of_graph = [](const auto& kernel) { return kernel.graph_id != 0; };
  EXPECT_GE(CountKernels(of_graph) + 2, GoodWindows());
}

TEST_F(ReleaseTest, AToolThatWasFirstAndCountsTicksLeavesNoTraces) {
  extra_["SWGPU_SET"] = "clock.mode=real";
  SendAfterCalls(TraceControl());
  RunWatched({"iterations=2000", "lengths=16", "sleep_us=2000", "tool=-1", "tool_end=100",
              "tool_tells=0", "tool_ticks=1"});
  EXPECT_EQ(GoodWindows(), 0u);
  EXPECT_TRUE(AnyMessage("gives kernels no times from then on"));
  EXPECT_FALSE(AnyMessage("have run out"));
}

// It ends CUPTI and begins at once, and nobody could notice: its records are its own.
TEST_F(ReleaseTest, AToolThatEndsCuptiAndRecordsIsLeftAlone) {
  extra_["SWGPU_SET"] = "clock.mode=real,cupti.version=130101";
  SendAfterCalls(MarkControl(CopyRule(1)));
  const std::vector<std::string> arguments = {
      "iterations=1000", "lengths=16",   "sleep_us=3000", "tool=200",
      "tool_end=900",    "tool_tells=0", "tool_hidden=1", "tool_ends_first=1"};
  const std::string with = RunWatched(arguments).Value("tool_kind10");
  EXPECT_EQ(with, Run(arguments, false).Value("tool_kind10"));
  EXPECT_FALSE(AnyMessage("has stopped recording"));
}

// No kind is on while the level is *paused*, which ends a session of CUPTI's.
class PauseTest : public ReleaseTest {
 protected:
  void PauseAndTrace(const std::vector<std::string>& more, const abi::Rule& rule = CopyRule(1)) {
    abi::Control paused = MarkControl(rule);
    paused.level = static_cast<uint8_t>(abi::Level::kPaused);
    SendAfterCalls(MarkControl(rule));
    daemon_.When([](const PuppetProcess& p) { return p.boundaries.size() > 100; },
                 [paused](PuppetProcess& p) { p.Send(paused); });
    abi::Control traced = TraceControl();
    traced.rule = rule;
    daemon_.When(
        [](const PuppetProcess& p) {
          return p.rules.back().level == static_cast<uint8_t>(abi::Level::kPaused);
        },
        [traced](PuppetProcess& p) { p.Send(traced); });
    std::vector<std::string> arguments = {"iterations=2500", "lengths=16", "sleep_us=1000",
                                          "layers=2", "replay=1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    RunWatched(arguments);
    EXPECT_GT(GoodWindows(), 50u);
    EXPECT_GT(CountKernels([](const auto& kernel) { return kernel.graph_id != 0; }), 50u);
  }
};

TEST_F(PauseTest, IdsOfGraphLaunchesAreUnknownAfterwards) {
  PauseAndTrace({});
  EXPECT_EQ(CountKernels([](const auto& kernel) {
              return kernel.graph_id != 0 && kernel.correlation_id != 0;
            }),
            0u);
}

// CUPTI crashes at the launch of a graph of that time where whole graphs are recorded again.
TEST_F(PauseTest, GraphsThatWereMadeInItAreTracedByTheirKernels) {
  extra_["SWGPU_CUPTI_VERSION"] = "130401";  // whose ids of graph launches are right
  PauseAndTrace({"recapture=5"});
  EXPECT_FALSE(AnyMessage("are timed by CUDA graphs"));
}

TEST_F(PauseTest, IterationsThatGraphsTimeHaveNoTimesAndThatIsSaid) {
  abi::Rule rule = CopyRule(1);
  rule.clock = {.op = static_cast<uint8_t>(abi::Op::kGraphLaunch)};
  PauseAndTrace({}, rule);
  EXPECT_TRUE(AnyMessage("are timed by CUDA graphs"));
}

TEST_F(ReleaseTest, NothingIsTracedWhereAKindIsRefused) {
  extra_["SWGPU_SET"] = "cupti.fail=cuptiActivityEnable,cupti.fail_after=3";  // those of learning
  SendAfterCalls(TraceControl());
  RunWatched({"iterations=300", "lengths=16", "sleep_us=500"});
  EXPECT_EQ(GoodWindows(), 0u);
  EXPECT_TRUE(AnyMessage("cuptiActivityEnable(kind 10) gave"));
}

// CUPTI's own clock on WSL is not another tool's.
TEST_F(ReleaseTest, TheClockOfWslIsCuptisOwn) {
  extra_["SWGPU_SET"] = "clock.mode=real,cupti.raw_clock=1";
  SendAfterCalls(TraceControl());
  RunWatched({"iterations=300", "lengths=16", "sleep_us=500"});
  EXPECT_GT(GoodWindows(), 50u);
  EXPECT_EQ(process().stats.invalid_timestamps, 0u);
}

// The other tool begins while a stream is captured and an iteration is traced: its session is its
// own.
TEST_F(ReleaseTest, ATracedIterationEndsWithAStandDown) {
  extra_["SWGPU_SET"] = "clock.mode=real,cupti.version=130101";
  SendAfterCalls(TraceControl());
  const std::vector<std::string> arguments = {"iterations=400",   "lengths=16", "sleep_us=500",
                                              "capture_thread=1", "tool=200",   "tool_end=300"};
  const std::string with = RunWatched(arguments).Value("tool_kind10");
  EXPECT_EQ(with, Run(arguments, false).Value("tool_kind10"));
}

// Another GPU of the process is busy at both ends of a traced iteration, and is not waited for.
TEST_F(ReleaseTest, KernelsOfAnotherGpuThatHaveNoEndAreLeftOut) {
  extra_["SWGPU_SET"] = "clock.mode=real,gpu.count=2";
  abi::Control control = MarkControl(CopyRule(1));
  AddEntry(&control, 100, 16, abi::kConfigTrace, 1000);
  SendAfterCalls(control);
  SendAfterCalls(control);
  RunWatched({"iterations=300", "lengths=16", "sleep_us=1000", "second_gpu=1"});
  EXPECT_GT(GoodWindows(), 20u);
  EXPECT_GT(process().stats.invalid_timestamps, 0u);
  size_t of_second = 0;
  for (const abi::DataRecord& record : process().records) {
    if (record.type != static_cast<uint16_t>(DataType::kKernel)) continue;
    EXPECT_GT(record.kernel.end_ns, record.kernel.start_ns);
    of_second += record.kernel.device == 1;
  }
  EXPECT_GT(of_second, 20u);
}

// With more threads than buffers some threads get none; no buffer is given to two threads.
TEST_F(ReleaseTest, ThreadsBeyondTheBuffersShareNone) {
  abi::Control control = MarkControl(CopyRule(1));
  control.level = static_cast<uint8_t>(abi::Level::kTrace);
  control.flush_interval_ms = 10'000;  // threads keep their buffers
  SendAfterCalls(control);
  RunWatched({"iterations=300", "launch_threads=540", "sleep_us=5000"});
  EXPECT_GT(process().stats.cupti_dropped, 0u);
}

// The thread that marks iterations has no context, and waits for the program's all the same.
TEST_F(ReleaseTest, KernelsInFlightAreWaitedForByAThreadWithoutAContext) {
  abi::Control control = MarkControl(CopyRule(1));
  control.rule.watched_ops = Bit(abi::Op::kMark) | Bit(abi::Op::kStreamSync);
  control.rule.boundary = {};
  control.rule.boundary.op = static_cast<uint8_t>(abi::Op::kMark);
  control.rule.clock = control.rule.step = {};
  control.rule.length[0].pattern = control.rule.boundary;
  AddEntry(&control, 100, 1600, abi::kConfigTrace, 1000, 1);
  SendAfterCalls(control);
  RunAndCompare({"iterations=200", "lengths=1600", "mark=1", "mark_thread=1", "host_ns=1000"});
  EXPECT_GT(GoodWindows(), 50u);
  EXPECT_EQ(process().stats.invalid_timestamps, 0u);
}

// Callback ids are switched while other threads are inside of a call that waits.
TEST_F(ReleaseTest, AWaitWhoseBeginNobodySawIsNone) {
  extra_["SWGPU_SET"] = "clock.mode=real";
  abi::Control learn = {}, mark = MarkControl(CopyRule(1));
  learn.level = static_cast<uint8_t>(abi::Level::kLearn);
  learn.flush_interval_ms = 20;
  mark.rule.watched_ops = Bit(abi::Op::kCopyH2D) | Bit(abi::Op::kLaunch);
  int sent = 0;
  daemon_.Always([&](PuppetProcess& p) {
    if (++sent % 5 == 0) p.Send(sent % 10 == 0 ? learn : mark);
  });
  RunWatched({"iterations=1500", "lengths=16", "threads=4", "sleep_us=1000", "host_ns=1000"});
  size_t waits = 0;
  for (const abi::CallRecord& call : process().calls) {
    if (static_cast<abi::Op>(call.op) != abi::Op::kStreamSync) continue;
    ++waits;
    EXPECT_LT(call.bytes, 60'000'000'000u);  // nanoseconds that it took
  }
  EXPECT_GT(waits, 100u);
}

// CUPTI before 13.4 Update 1 records kernels under names of a module that was unloaded.
class KernelNamesTest : public ReleaseTest, public ::testing::WithParamInterface<const char*> {};
TEST_P(KernelNamesTest, AreThoseOfTheLaunches) {
  extra_["SWGPU_CUPTI_VERSION"] = GetParam();
  SendAfterCalls(TraceControl());
  RunWatched({"iterations=300", "lengths=16", "sleep_us=500", "reload=150", "layers=3"});
  std::map<std::string, size_t> kernels;
  for (const abi::DataRecord& record : process().records) {
    if (record.type != static_cast<uint16_t>(DataType::kKernel)) continue;
    ++kernels[process().names[record.kernel.name_id]];
  }
  EXPECT_GT(kernels["another_layer"], 100u);
  EXPECT_LE(kernels["forward_layer"], 3u * 151);
  EXPECT_NEAR(static_cast<double>(kernels["another_layer"]),
              3.0 * static_cast<double>(kernels["another_loss"]), 6);
}
INSTANTIATE_TEST_SUITE_P(All, KernelNamesTest, ::testing::Values("130001", "130401"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace seqpoint
