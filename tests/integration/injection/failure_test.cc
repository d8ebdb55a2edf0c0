// Failures around the injected library: training ends as it would without it, and the daemon gets
// one message that says what happened and what to do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "tests/integration/injection/inject_fixture.h"

namespace seqpoint {
namespace {

using abi::Feature;
using abi::FeatureState;
using ::testing::HasSubstr;

class FailureTest : public InjectTest {
 protected:
  abi::Control CounterControl() {
    abi::Control control = MarkControl(CopyRule(1));
    AddConfig(&control, 2, "gpu__time_duration.sum");
    AddEntry(&control, 100, 16, 2, 3);
    return control;
  }
  void SendAfterCalls(const abi::Control& control) {
    daemon_.OnCalls(60, [control](PuppetProcess& p) { p.Send(control); });
  }
};

TEST_F(FailureTest, WithoutADaemonTrainingIsTheSame) {
  extra_ = {{"SEQPOINT_DIR", "/nonexistent"}};
  const ProgramResult profiled = Run({"iterations=100", "sync=10"});
  const ProgramResult alone = Run({"iterations=100", "sync=10"}, false);
  EXPECT_EQ(profiled.exit_status, 0) << profiled.output;
  EXPECT_EQ(profiled.output, alone.output);
}

TEST_F(FailureTest, WithADaemonThatDoesNotAnswerTrainingIsTheSame) {
  const ProgramResult profiled = Run({"iterations=100", "sync=10"});
  const ProgramResult alone = Run({"iterations=100", "sync=10"}, false);
  EXPECT_EQ(profiled.exit_status, 0) << profiled.output;
  EXPECT_EQ(profiled.output, alone.output);
}

TEST_F(FailureTest, DisabledByTheUserItDoesNothing) {
  extra_ = {{"SEQPOINT_DISABLE", "1"}};
  daemon_.Start();
  const ProgramResult result = Run({"iterations=20"});
  daemon_.Stop();
  EXPECT_EQ(result.exit_status, 0);
  EXPECT_EQ(daemon_.process_count(), 0u);
}

TEST_F(FailureTest, CuptiHeldByAnotherTool) {
  extra_ = {{"SWGPU_SET", "cupti.held_by=Nsight Systems"}};
  RunAndCompare({"iterations=50", "nvtx=1"});
  ASSERT_EQ(daemon_.process_count(), 1u);
  // From 13.2 on only a subscription that takes the records away would name the tool.
  const char* version = getenv("SWGPU_CUPTI_VERSION");
  const bool named = version == nullptr || atoi(version) < 130200;
  EXPECT_THAT(process().Message(Feature::kCallbacks),
              testing::AllOf(HasSubstr(named ? "Nsight Systems" : "held by another tool"),
                             HasSubstr("stop that tool")));
  // NVTX needs no CUPTI: its ranges are still seen.
  EXPECT_EQ(process().calls.size(), 100u);
}

TEST_F(FailureTest, NoCuptiAtAll) {
  extra_ = {{"SEQPOINT_CUPTI_LIB", "/nonexistent/libcupti.so.13"}};
  RunAndCompare({"iterations=50"});
  ASSERT_EQ(daemon_.process_count(), 1u);
  EXPECT_THAT(process().Message(Feature::kCupti), HasSubstr("SEQPOINT_CUPTI_LIB"));
}

TEST_F(FailureTest, RealCuptiWithoutARealDriver) {
  const char* real = "/usr/local/cuda/lib64/libcupti.so.13";
  if (!std::filesystem::exists(real)) GTEST_SKIP() << real << " is not there: install CUDA 13";
  extra_ = {{"SEQPOINT_CUPTI_LIB", real}};
  RunAndCompare({"iterations=50"});
  ASSERT_EQ(daemon_.process_count(), 1u);
  EXPECT_THAT(process().Message(Feature::kCallbacks), HasSubstr("nvidia-smi"));
}

TEST_F(FailureTest, OldCuptiIsRefusedWithItsVersion) {
  extra_ = {{"SWGPU_SET", "cupti.version=18"}};
  RunAndCompare({"iterations=50"});
  ASSERT_EQ(daemon_.process_count(), 1u);
  EXPECT_THAT(process().Message(Feature::kCupti), HasSubstr("version 18"));
}

TEST_F(FailureTest, OlderRecordGenerationsAreRead) {
  // The events of one traced iteration under each generation of CUPTI's records: 12.0, 12.4, 12.8,
  // 12.9, 13.0 Update 1. Only sizes differ; what is read must not.
  struct Seen {
    uint64_t kernels = 0, threads = 0, busy_ns = 0, syncs = 0, calls = 0;
    bool operator==(const Seen&) const = default;
  };
  std::map<uint32_t, Seen> seen;
  for (const uint32_t version : {19u, 22u, 26u, 28u, 130001u}) {
    SCOPED_TRACE(version);
    const TempFolder directory;
    extra_ = {{"SWGPU_SET", "noise.kernel=0,cupti.version=" + std::to_string(version)},
              {"SEQPOINT_DIR", directory.path().string()}};
    abi::Control control = MarkControl(CopyRule(1));
    AddEntry(&control, 100, 16, abi::kConfigTrace, 1);
    PuppetDaemon daemon(directory.path().string());
    daemon.OnCalls(60, [control](PuppetProcess& p) { p.Send(control); });
    daemon.Start();
    const ProgramResult result =
        Run({"iterations=100", "lengths=16", "layers=6", "sync=1", "capture=3", "sleep_us=500"});
    daemon.Stop();
    EXPECT_EQ(result.exit_status, 0) << result.output;
    ASSERT_EQ(daemon.process_count(), 1u);
    const PuppetProcess& process = daemon.process(0);
    EXPECT_EQ(process.stats.invalid_timestamps, 0u);
    EXPECT_EQ(process.stats.unknown_records, 0u);
    Seen& sums = seen[version];
    std::set<uint64_t> copied, set;  // bytes
    std::set<uint16_t> kinds;        // of synchronisations
    int graphs = 0;
    for (const abi::DataRecord& record : process.records) {
      switch (static_cast<abi::DataType>(record.type)) {
        case abi::DataType::kKernel:
          ++sums.kernels;
          sums.threads += uint64_t{record.kernel.grid_x} * record.kernel.block_x;
          sums.busy_ns += record.kernel.end_ns - record.kernel.start_ns;
          break;
        case abi::DataType::kCopy:
          copied.insert(record.copy.bytes);
          break;
        case abi::DataType::kMemset:
          set.insert(record.copy.bytes);
          break;
        case abi::DataType::kSync:
          ++sums.syncs;
          kinds.insert(record.sync.kind);
          break;
        case abi::DataType::kApi:
          ++sums.calls;
          break;
        case abi::DataType::kGraph:
          ++graphs;
          break;
        default:
          break;
      }
    }
    EXPECT_EQ(sums.kernels, 8u);
    EXPECT_EQ(copied, (std::set<uint64_t>{4, 16 * kBytesPerStep}));
    EXPECT_EQ(set, (std::set<uint64_t>{4096}));
    EXPECT_EQ(kinds, (std::set<uint16_t>{3, 4}));  // a stream; the context, by ourselves
    EXPECT_EQ(graphs, 1);                          // learning listens to whole graphs
  }
  for (const auto& [version, sums] : seen) EXPECT_EQ(sums, seen[130001]) << version;
  EXPECT_GT(seen[130001].syncs, 0u);
  EXPECT_GT(seen[130001].calls, 0u);
}

TEST_F(FailureTest, NewerMajorVersionIsWatchedButNotRead) {
  extra_ = {{"SWGPU_SET", "cupti.version=140000"}};
  RunAndCompare({"iterations=50"});
  ASSERT_EQ(daemon_.process_count(), 1u);
  EXPECT_THAT(process().Message(Feature::kActivity), HasSubstr("140000"));
  EXPECT_GT(process().calls.size(), 400u);
  EXPECT_EQ(process().records.size(), 0u);
}

TEST_F(FailureTest, CountersNeedAPermission) {
  extra_ = {{"SWGPU_SET", "cupti.no_privileges=1"}};
  SendAfterCalls(CounterControl());
  RunAndCompare({"iterations=200", "sleep_us=500"});
  ASSERT_EQ(daemon_.process_count(), 1u);
  EXPECT_THAT(process().Message(Feature::kCounters),
              testing::AllOf(HasSubstr("NVreg_RestrictProfilingToAdminUsers=0"),
                             HasSubstr("CAP_SYS_ADMIN")));
  ASSERT_EQ(process().configs.size(), 1u);
  EXPECT_EQ(process().configs[0].event.status, 35u);
  EXPECT_GT(process().steps.size(), 100u);  // marks go on
}

TEST_F(FailureTest, CountersUsedByAnotherTool) {
  extra_ = {{"SWGPU_SET", "cupti.hardware_busy=1"}};
  SendAfterCalls(CounterControl());
  RunAndCompare({"iterations=200", "sleep_us=500"});
  ASSERT_EQ(daemon_.process_count(), 1u);
  EXPECT_THAT(process().Message(Feature::kCounters), HasSubstr("dcgmi"));
  for (const CountersResult& result : process().counters) {
    EXPECT_EQ(result.event.status, 26u);
    EXPECT_TRUE(result.values.empty());
  }
}

TEST_F(FailureTest, AMetricThatDoesNotExistAndOneThatNeedsPasses) {
  abi::Control control = MarkControl(CopyRule(1));
  AddConfig(&control, 2, "gpu__time_duration.sum\nno__such_metric.sum");
  AddConfig(&control, 3, "sm__throughput.avg.pct_of_peak_sustained_elapsed");
  AddConfig(&control, 4, "gpu__time_duration.sum");
  AddEntry(&control, 100, 16, 2, 1);
  AddEntry(&control, 101, 16, 3, 1);
  AddEntry(&control, 102, 16, 4, 1);
  SendAfterCalls(control);
  RunAndCompare({"iterations=200", "sleep_us=500"});
  ASSERT_EQ(daemon_.process_count(), 1u);
  ASSERT_EQ(process().configs.size(), 3u);
  EXPECT_NE(process().configs[0].event.status, 0u);
  EXPECT_THAT(process().configs[0].message, HasSubstr("\"no__such_metric.sum\""));
  EXPECT_EQ(process().configs[1].event.passes, 8);
  EXPECT_THAT(process().configs[1].message, HasSubstr("8 passes"));
  EXPECT_EQ(process().configs[2].event.status, 0u);
  ASSERT_EQ(process().counters.size(), 1u);
  EXPECT_EQ(process().counters[0].event.config_id, 4);
}

TEST_F(FailureTest, LostAndInvalidRecordsAreCounted) {
  SEQPOINT_NEEDS_TRACES();
  extra_ = {{"SWGPU_SET", "cupti.zero_kernel_share=0.2,cupti.drop_share=0.1"}};
  abi::Control control = MarkControl(CopyRule(1));
  control.level = static_cast<uint8_t>(abi::Level::kTrace);
  SendAfterCalls(control);
  RunAndCompare({"iterations=300", "sleep_us=300"});
  ASSERT_EQ(daemon_.process_count(), 1u);
  EXPECT_GT(process().stats.invalid_timestamps, 50u);
  EXPECT_GT(process().stats.cupti_dropped, 50u);
  for (const abi::DataRecord& record : process().records) {
    if (record.type == static_cast<uint16_t>(abi::DataType::kKernel)) {
      EXPECT_NE(record.kernel.start_ns, 0u);
    }
  }
}

TEST_F(FailureTest, FatalErrorOfCupti) {
  extra_ = {{"SWGPU_SET", "cupti.fatal_after=200"}};
  RunAndCompare({"iterations=200"});
  ASSERT_EQ(daemon_.process_count(), 1u);
  EXPECT_THAT(process().Message(Feature::kCupti), HasSubstr("fatal error"));
}

TEST_F(FailureTest, AFullRingDropsAndCounts) {
  extra_ = {{"SEQPOINT_RING_BYTES", "65536"}};
  daemon_.ReadOnlyAfterTheEnd();
  RunAndCompare({"iterations=400", "layers=3"});
  ASSERT_EQ(daemon_.process_count(), 1u);
  const size_t sent = 400 * (7 + 2) + 1;  // calls, and a record for each copy and memset
  EXPECT_GT(process().stats.records_dropped, 1000u);
  EXPECT_EQ(process().stats.records_received + process().stats.records_dropped, sent);
  EXPECT_EQ(process().calls.size() + process().calls_missing, 400u * 7 + 1);
  EXPECT_EQ(process().stats.lost, 0u);
}

TEST_F(FailureTest, KilledProcessLeavesEveryRecord) {
  const ProgramResult result =
      RunAndCompare({"iterations=200", "layers=3", "kill=99", "sleep_us=100"});
  EXPECT_EQ(result.signal, SIGKILL);
  ASSERT_EQ(daemon_.process_count(), 1u);
  EXPECT_EQ(process().calls.size(), 100u * 7);
  EXPECT_EQ(process().calls_missing, 0u);
  EXPECT_FALSE(process().stats.closed);
}

TEST_F(FailureTest, ExitWithoutHandlersLeavesEveryRecord) {
  const ProgramResult result =
      RunAndCompare({"iterations=200", "layers=3", "_exit=99", "sleep_us=100"});
  EXPECT_EQ(result.exit_status, 7);
  ASSERT_EQ(daemon_.process_count(), 1u);
  EXPECT_EQ(process().calls.size(), 100u * 7);
  EXPECT_FALSE(process().stats.closed);
}

// The ways to end in the middle of a counter range, and of a trace window.
struct Ending {
  const char* name;
  const char* argument;
  int exit_status, signal;
};
// The open collector: a range around the iteration, ranges of its kernels, PM sampling.
enum class Collector { kRange, kKernels, kSamples };
std::string NameOf(Collector collector) {
  return collector == Collector::kRange     ? "range_"
         : collector == Collector::kKernels ? "kernels_"
                                            : "samples_";
}
class EndingTest : public FailureTest,
                   public ::testing::WithParamInterface<std::tuple<Collector, Ending>> {};

TEST_P(EndingTest, InTheMiddleOfARange) {
  const auto& [collector, ending] = GetParam();
  if (collector == Collector::kSamples) SEQPOINT_NEEDS_TRACES();  // which wait for flushes
  abi::Control control = CounterControl();
  if (collector == Collector::kKernels) {
    control.config[0].ranges = static_cast<uint8_t>(abi::Ranges::kKernels);
  } else if (collector == Collector::kSamples) {
    control.counter_backend = static_cast<uint8_t>(abi::CounterBackend::kPm);
  }
  control.plan[0].quota = 1000;  // always a range, or a window on the other length
  AddEntry(&control, 101, 32, abi::kConfigTrace, 1000);
  daemon_.OnCalls(20, [control](PuppetProcess& p) { p.Send(control); });
  const ProgramResult result =
      RunAndCompare({"iterations=300", "lengths=16,32", "sleep_us=300", "sync=2", ending.argument});
  EXPECT_EQ(result.exit_status, ending.exit_status) << result.output;
  EXPECT_EQ(result.signal, ending.signal) << result.output;
  ASSERT_EQ(daemon_.process_count(), 1u);
  EXPECT_GT(process().counters.size() + process().windows.size(), 20u);
  EXPECT_EQ(process().stats.rejected, 0u);
  EXPECT_EQ(process().stats.lost, 0u);
  // Everything that the killed process published arrives, in order.
  uint64_t expected = 0;
  for (const abi::StepEvent& step : process().steps) EXPECT_EQ(step.iteration, expected++);
}

INSTANTIATE_TEST_SUITE_P(
    All, EndingTest,
    ::testing::Combine(::testing::Values(Collector::kRange, Collector::kKernels,
                                         Collector::kSamples),
                       ::testing::Values(Ending{"sigkill", "kill=200", -1, SIGKILL},
                                         Ending{"exit", "_exit=200", 7, 0},
                                         Ending{"abort", "abort=200", -1, SIGABRT},
                                         Ending{"uncaught_exception", "throw=200", -1, SIGABRT},
                                         Ending{"sigterm", "term=200", -1, SIGTERM},
                                         Ending{"fork", "fork=200", 0, 0},
                                         Ending{"context_reset", "reset=200", 0, 0},
                                         Ending{"return", "status=0", 0, 0})),
    [](const auto& info) {
      return NameOf(std::get<0>(info.param)) + std::get<1>(info.param).name;
    });

TEST_F(FailureTest, ExitInASignalHandlerEnds) {
  // The signal may hit while the library holds its lock on that very thread.
  daemon_.Start();
  for (int i = 0; i < 20; ++i) {
    const ProgramResult result = Run(
        {"iterations=1000000", "host_ns=0", "exit_on_signal_us=" + std::to_string(5000 + 777 * i)});
    EXPECT_EQ(result.exit_status, 9) << result.output;
  }
  daemon_.Stop();
}

// Any function of CUPTI that the library calls may fail, at once or after a while.
class CuptiFunctionTest : public FailureTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(CuptiFunctionTest, MayFail) {
  const std::string name = GetParam();
  const char* version = getenv("SWGPU_CUPTI_VERSION");
  if (name == "cuptiSubscribe_v2" && version != nullptr && atoi(version) >= 130200) {
    GTEST_SKIP() << "cuptiSubscribe_v2 is not called on CUPTI " << version;
  }
  for (const char* after : {"0", "2"}) {
    const std::string settings =
        "cupti.fail=" + name + ",cupti.fail_result=15,cupti.fail_after=" + after;
    SCOPED_TRACE(settings);
    const TempFolder directory;
    extra_ = {{"SWGPU_SET", settings}, {"SEQPOINT_DIR", directory.path().string()}};
    PuppetDaemon daemon(directory.path().string());
    abi::Control control = CounterControl();
    AddEntry(&control, 101, 32, abi::kConfigTrace, 3);
    daemon.When([](const PuppetProcess&) { return true; },
                [control](PuppetProcess& p) { p.Send(control); });
    daemon.Start();
    const ProgramResult profiled = Run({"iterations=200", "lengths=16,32", "sleep_us=300"});
    daemon.Stop();
    const ProgramResult alone = Run({"iterations=200", "lengths=16,32"}, false);
    EXPECT_EQ(profiled.exit_status, 0) << profiled.output;
    EXPECT_EQ(profiled.output, alone.output);
    ASSERT_EQ(daemon.process_count(), 1u);
    // The function or, after two good calls, possibly nothing: it is called less often.
    bool named = false;
    const std::string said = name.substr(0, name.find("_v2"));
    for (const FeatureResult& feature : daemon.process(0).features) {
      named = named || feature.message.find(said) != std::string::npos;
    }
    for (const ConfigResult& config : daemon.process(0).configs) {
      named = named || config.message.find("NOT_INITIALIZED") != std::string::npos;
    }
    const bool harmless =
        name == "cuptiGetTimestamp" || name == "cuptiSetThreadIdType" ||
        name == "cuptiUnsubscribe" || name == "cuptiActivityDisable" ||
        name == "cuptiActivityGetNextRecord" || name == "cuptiGetDeviceId" ||
        name == "cuptiActivityGetNumDroppedRecords" || name == "cuptiActivityEnableDriverApi" ||
        name == "cuptiRangeProfilerDisable" || name == "cuptiProfilerHostDeinitialize";
    if (after[0] == '0' && !harmless) {
      EXPECT_TRUE(named);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, CuptiFunctionTest,
    ::testing::Values(
        "cuptiGetTimestamp", "cuptiSubscribe_v2", "cuptiUnsubscribe", "cuptiEnableCallback",
        "cuptiSetThreadIdType", "cuptiActivityRegisterCallbacks", "cuptiActivityEnable",
        "cuptiActivityDisable", "cuptiActivityEnableDriverApi", "cuptiActivityFlushAll",
        "cuptiActivityGetNextRecord", "cuptiActivityGetNumDroppedRecords", "cuptiGetDeviceId",
        "cuptiProfilerInitialize", "cuptiProfilerDeviceSupported", "cuptiDeviceGetChipName",
        "cuptiProfilerGetCounterAvailability", "cuptiProfilerHostInitialize",
        "cuptiProfilerHostDeinitialize", "cuptiProfilerHostConfigAddMetrics",
        "cuptiProfilerHostGetConfigImageSize", "cuptiProfilerHostGetConfigImage",
        "cuptiProfilerHostGetNumOfPasses", "cuptiProfilerHostEvaluateToGpuValues",
        "cuptiRangeProfilerEnable", "cuptiRangeProfilerDisable",
        "cuptiRangeProfilerGetCounterDataSize", "cuptiRangeProfilerCounterDataImageInitialize",
        "cuptiRangeProfilerSetConfig", "cuptiRangeProfilerStart", "cuptiRangeProfilerStop",
        "cuptiRangeProfilerPushRange", "cuptiRangeProfilerPopRange", "cuptiRangeProfilerDecodeData",
        "cuptiRangeProfilerGetCounterDataInfo"),
    [](const auto& info) { return std::string(info.param); });

TEST_F(FailureTest, AFailedRangeIsTheLastOnlyAfterSeveral) {
  // One range that cannot be closed does not end the counters: the next begins anew.
  extra_ = {{"SWGPU_SET", "cupti.fail=cuptiRangeProfilerPopRange,cupti.fail_after=2"}};
  SendAfterCalls(CounterControl());
  RunAndCompare({"iterations=300", "lengths=16", "sleep_us=300"});
  ASSERT_EQ(daemon_.process_count(), 1u);
  int complete = 0, failed = 0;
  for (const CountersResult& result : process().counters) {
    (result.event.status == 0 ? complete : failed) += 1;
  }
  EXPECT_EQ(complete, 2);
  EXPECT_EQ(failed, 3);  // then counters rest
}

TEST_F(FailureTest, LostRangesAreNoValues) {
  extra_ = {{"SWGPU_SET", "cupti.drop_ranges=1"}};
  SendAfterCalls(CounterControl());
  RunAndCompare({"iterations=200", "sleep_us=500"});
  ASSERT_EQ(daemon_.process_count(), 1u);
  EXPECT_THAT(process().Message(Feature::kCounters), HasSubstr("lost the range"));
  ASSERT_FALSE(process().counters.empty());
  for (const CountersResult& result : process().counters) {
    EXPECT_EQ(result.event.status, static_cast<uint32_t>(abi::kCountersRangeDropped));
    EXPECT_TRUE(result.values.empty());
  }
}

// PM sampling, of a configuration whose entry is measured twice.
abi::Control SamplingControl(const std::string& metrics = "gpu__time_duration.sum") {
  abi::Control control = MarkControl(CopyRule(1));
  control.counter_backend = static_cast<uint8_t>(abi::CounterBackend::kPm);
  AddConfig(&control, 2, metrics);
  AddEntry(&control, 100, 16, 2, 2);
  return control;
}

TEST_F(FailureTest, PmSamplingNeedsAPermission) {
  extra_ = {{"SWGPU_SET", "cupti.no_privileges=1"}};
  SendAfterCalls(SamplingControl());
  RunAndCompare({"iterations=200", "sleep_us=500"});
  ASSERT_EQ(daemon_.process_count(), 1u);
  EXPECT_THAT(process().Message(Feature::kCounters),
              testing::AllOf(HasSubstr("cuptiPmSamplingGetCounterAvailability gave 35"),
                             HasSubstr("NVreg_RestrictProfilingToAdminUsers=0")));
  EXPECT_GT(process().steps.size(), 100u);  // marks go on
}

TEST_F(FailureTest, PmSamplingUsedByAnotherTool) {
  extra_ = {{"SWGPU_SET", "cupti.hardware_busy=1"}};
  SendAfterCalls(SamplingControl());
  RunAndCompare({"iterations=200", "lengths=16", "sleep_us=500"});
  ASSERT_EQ(daemon_.process_count(), 1u);
  EXPECT_THAT(process().Message(Feature::kCounters), HasSubstr("dcgmi"));
  ASSERT_FALSE(process().counters.empty());
  for (const CountersResult& result : process().counters) EXPECT_EQ(result.event.status, 26u);
}

TEST_F(FailureTest, PmSamplesThatAreLostAreNoValues) {
  for (const auto& [setting, message] :
       {std::pair{"cupti.pm_buffer_samples=5", "buffer was full before"},
        std::pair{"cupti.pm_lost_share=0.3", "lost samples"}}) {
    SCOPED_TRACE(setting);
    const TempFolder directory;
    extra_ = {{"SWGPU_SET", setting}, {"SEQPOINT_DIR", directory.path().string()}};
    PuppetDaemon daemon(directory.path().string());
    daemon.OnCalls(60, [](PuppetProcess& p) { p.Send(SamplingControl()); });
    daemon.Start();
    Run({"iterations=300", "lengths=16", "sleep_us=500", "host_ns=5000000"});
    daemon.Stop();
    ASSERT_EQ(daemon.process_count(), 1u);
    EXPECT_THAT(daemon.process(0).Message(Feature::kCounters), HasSubstr(message));
    ASSERT_FALSE(daemon.process(0).counters.empty());
    for (const CountersResult& result : daemon.process(0).counters) {
      EXPECT_EQ(result.event.status, static_cast<uint32_t>(abi::kCountersRangeDropped));
      EXPECT_TRUE(result.values.empty());
    }
  }
}

TEST_F(FailureTest, FewLostPmSamplesAreMadeUpForAndTold) {
  extra_ = {{"SWGPU_SET", "noise.counters=0,noise.kernel=0,cupti.pm_lost_share=0.03"}};
  SendAfterCalls(SamplingControl("dram__bytes_read.sum"));
  const ProgramResult result =
      RunAndCompare({"iterations=300", "lengths=16", "sleep_us=500", "layers=2000", "truth=1"});
  ASSERT_EQ(daemon_.process_count(), 1u);
  ASSERT_FALSE(process().sampled.empty());
  const double truth = std::stod(result.Value("truth16"));
  size_t i = 0;
  for (const CountersResult& counters : process().counters) {
    if (counters.event.status != 0) continue;
    ASSERT_LT(i, process().sampled.size());
    const abi::SampledEvent& sampled = process().sampled[i++];
    const auto duration_ns = static_cast<double>(sampled.duration_ns);
    EXPECT_LT(static_cast<double>(sampled.covered_ns), 0.99 * duration_ns);
    EXPECT_NEAR(counters.values[0], truth,
                truth * static_cast<double>(sampled.edge_ns) / duration_ns);
  }
}

TEST_F(FailureTest, MetricsThatPmSamplingDoesNotHave) {
  abi::Control control = SamplingControl("sm__inst_executed_pipe_tensor.sum");
  AddConfig(&control, 3, "lts__t_sectors_lookup_hit.sum");
  AddConfig(&control, 4, "nvlrx__bytes.sum\ndram__bytes.sum");  // together, unlike ranges
  SendAfterCalls(control);
  RunAndCompare({"iterations=200", "sleep_us=500"});
  ASSERT_EQ(daemon_.process_count(), 1u);
  ASSERT_EQ(process().configs.size(), 3u);
  EXPECT_THAT(process().configs[0].message, HasSubstr("need 2 passes on GH100"));
  EXPECT_THAT(process().configs[1].message, HasSubstr("\"lts__t_sectors_lookup_hit.sum\""));
  EXPECT_EQ(process().configs[2].event.status, 0u);
}

TEST_F(FailureTest, AChipWithoutPmSampling) {
  extra_ = {{"SWGPU_SET", "gpu.chip=GV100"}};
  SendAfterCalls(SamplingControl());
  RunAndCompare({"iterations=200", "sleep_us=500"});
  ASSERT_EQ(daemon_.process_count(), 1u);
  ASSERT_EQ(process().configs.size(), 1u);
  EXPECT_EQ(process().configs[0].event.status, 27u);
}

TEST_F(FailureTest, AChipThatSamplesByItsClock) {
  extra_ = {{"SWGPU_SET", "gpu.chip=GA100"}};
  SendAfterCalls(SamplingControl());
  RunAndCompare({"iterations=300", "lengths=16", "sleep_us=500"});
  ASSERT_EQ(daemon_.process_count(), 1u);
  ASSERT_EQ(process().counters.size(), 2u);
  for (const CountersResult& result : process().counters) EXPECT_EQ(result.event.status, 0u);
}

class PmFunctionTest : public FailureTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(PmFunctionTest, MayFail) {
  const std::string name = GetParam();
  for (const char* after : {"0", "1"}) {
    const std::string settings =
        "cupti.fail=" + name + ",cupti.fail_result=15,cupti.fail_after=" + after;
    SCOPED_TRACE(settings);
    const TempFolder directory;
    extra_ = {{"SWGPU_SET", settings}, {"SEQPOINT_DIR", directory.path().string()}};
    PuppetDaemon daemon(directory.path().string());
    daemon.OnCalls(60, [](PuppetProcess& p) { p.Send(SamplingControl()); });
    daemon.Start();
    const ProgramResult profiled = Run({"iterations=200", "lengths=16,32", "sleep_us=300"});
    daemon.Stop();
    const ProgramResult alone = Run({"iterations=200", "lengths=16,32"}, false);
    EXPECT_EQ(profiled.exit_status, 0) << profiled.output;
    EXPECT_EQ(profiled.output, alone.output);
    ASSERT_EQ(daemon.process_count(), 1u);
    if (after[0] != '0' || name == "cuptiPmSamplingDisable") continue;
    EXPECT_THAT(daemon.process(0).Message(Feature::kCounters), HasSubstr(name));
  }
}

INSTANTIATE_TEST_SUITE_P(All, PmFunctionTest,
                         ::testing::Values("cuptiPmSamplingGetCounterAvailability",
                                           "cuptiPmSamplingEnable", "cuptiPmSamplingDisable",
                                           "cuptiPmSamplingSetConfig", "cuptiPmSamplingStart",
                                           "cuptiPmSamplingStop", "cuptiPmSamplingDecodeData",
                                           "cuptiPmSamplingGetCounterDataSize",
                                           "cuptiPmSamplingCounterDataImageInitialize",
                                           "cuptiPmSamplingGetCounterDataInfo",
                                           "cuptiPmSamplingCounterDataGetSampleInfo"),
                         [](const auto& info) { return std::string(info.param); });

TEST_F(FailureTest, ASubscriberThatIsRefusedForNoReason) {
  extra_ = {{"SWGPU_SET", "cupti.subscribe_result=999"}};
  RunAndCompare({"iterations=50", "nvtx=1"});
  ASSERT_EQ(daemon_.process_count(), 1u);
  EXPECT_THAT(process().Message(Feature::kCallbacks), HasSubstr("nvidia-smi"));
  EXPECT_EQ(process().calls.size(), 100u);
}

TEST_F(FailureTest, MetricsOfTheDeviceAndOfTheContextDoNotMix) {
  abi::Control control = MarkControl(CopyRule(1));
  AddConfig(&control, 2, "sm__cycles_active.sum\nnvlrx__bytes.sum");
  SendAfterCalls(control);
  RunAndCompare({"iterations=200", "sleep_us=500"});
  ASSERT_EQ(daemon_.process_count(), 1u);
  ASSERT_EQ(process().configs.size(), 1u);
  EXPECT_EQ(process().configs[0].event.status, 27u);
  EXPECT_THAT(process().configs[0].message,
              HasSubstr("(NVLink, C2C, PCIe) and of the context cannot share"));
}

TEST_F(FailureTest, CorrelationIdsWrap) {
  extra_ = {{"SWGPU_SET", "cupti.first_correlation_id=4294966000"}};
  SendAfterCalls(MarkControl(CopyRule(1)));
  RunAndCompare({"iterations=400", "sleep_us=300"});
  ASSERT_EQ(daemon_.process_count(), 1u);
  std::map<uint32_t, uint64_t> gpu_start;
  bool wrapped = false;
  for (const abi::DataRecord& record : process().records) {
    if (record.type != static_cast<uint16_t>(abi::DataType::kCopy)) continue;
    gpu_start[record.copy.correlation_id] = record.copy.start_ns;
    wrapped = wrapped || record.copy.correlation_id < 100000;
  }
  EXPECT_TRUE(wrapped);
  EXPECT_GT(process().clocks.size(), 300u);
  uint64_t last = 0;
  for (const abi::ClockEvent& clock : process().clocks) {
    ASSERT_EQ(gpu_start.count(clock.correlation_id), 1u);
    EXPECT_GT(gpu_start[clock.correlation_id], last);
    last = gpu_start[clock.correlation_id];
  }
}

TEST_F(FailureTest, AnotherToolSetsTheClock) {
  extra_ = {{"SWGPU_SET", "clock.mode=real"}};
  abi::Control control = MarkControl(CopyRule(1));
  control.level = static_cast<uint8_t>(abi::Level::kTrace);
  SendAfterCalls(control);
  RunAndCompare({"iterations=1500", "sleep_us=1000", "timestamps=200"});
  ASSERT_EQ(daemon_.process_count(), 1u);
  EXPECT_GT(process().stats.invalid_timestamps, 1000u);
  EXPECT_THAT(process().Message(Feature::kActivity),
              ::testing::AnyOf(HasSubstr("without times"), HasSubstr("times of another clock")));
  // Our own times go on.
  EXPECT_EQ(process().stats.clock_kind, abi::ClockKind::kReal);
  ASSERT_GT(process().boundaries.size(), 1000u);
  for (size_t i = 1; i < process().boundaries.size(); ++i) {
    const uint64_t before_ns = process().boundaries[i - 1].api_ns;
    EXPECT_GT(process().boundaries[i].api_ns, before_ns);
    EXPECT_LT(process().boundaries[i].api_ns, before_ns + 10'000'000'000);
  }
}

TEST_F(FailureTest, UnfinishedRecordsAtTheEndAreLeftOut) {
  abi::Control control = MarkControl(CopyRule(1));
  control.level = static_cast<uint8_t>(abi::Level::kTrace);
  SendAfterCalls(control);
  RunAndCompare({"iterations=200", "lengths=1600", "final_sync=0", "sleep_us=100"});
  ASSERT_EQ(daemon_.process_count(), 1u);
  EXPECT_TRUE(process().stats.closed);
  EXPECT_EQ(process().stats.rejected, 0u);
  for (const abi::DataRecord& record : process().records) {
    EXPECT_LE(record.kernel.start_ns, record.kernel.end_ns);
  }
}

TEST_F(FailureTest, MoreThreadsThanBuffersDropAndCount) {
  const char* version = getenv("SWGPU_CUPTI_VERSION");
  if (version != nullptr && atoi(version) < 130000) {
    GTEST_SKIP() << "in CUPTI " << version << " buffers are those of contexts";
  }
  SEQPOINT_NEEDS_TRACES();
  abi::Control control = MarkControl(CopyRule(1));
  control.level = static_cast<uint8_t>(abi::Level::kTrace);
  control.flush_interval_ms = 10'000;  // threads keep their buffers
  SendAfterCalls(control);
  daemon_.Start();
  const ProgramResult result = Run({"iterations=100", "threads=24", "sleep_us=1000"});
  daemon_.Stop();
  EXPECT_EQ(result.exit_status, 0) << result.output;
  ASSERT_EQ(daemon_.process_count(), 1u);
  EXPECT_GT(process().stats.cupti_dropped, 0u);
  EXPECT_GT(process().CountRecords(abi::DataType::kKernel), 100u);
}

TEST_F(FailureTest, ExitStatusPassesThroughAndTheRingIsClosed) {
  const ProgramResult result = RunAndCompare({"iterations=20", "status=5"});
  EXPECT_EQ(result.exit_status, 5);
  EXPECT_TRUE(process().stats.closed);
}

TEST_F(FailureTest, ADestroyedContextEndsTheMeasurement) {
  SendAfterCalls(CounterControl());
  RunAndCompare({"iterations=200", "lengths=16", "sleep_us=500", "destroy=1"});
  ASSERT_EQ(daemon_.process_count(), 1u);
  EXPECT_EQ(process().counters.size(), 3u);
  EXPECT_TRUE(process().stats.closed);
}

TEST_F(FailureTest, AForkedWorkerNeitherHangsNorWrites) {
  // CUPTI itself hangs in a forked child.
  extra_ = {{"SWGPU_SET", "cupti.fork_hang=1"}};
  const ProgramResult result = RunAndCompare({"iterations=100", "layers=3", "fork=50"});
  EXPECT_EQ(result.Value("worker"), "0");
  EXPECT_EQ(process().calls.size(), 100u * 7 + 1);
  EXPECT_EQ(process().calls_missing, 0u);
  EXPECT_EQ(process().stats.rejected, 0u);
  EXPECT_EQ(process().CountRecords(abi::DataType::kCopy), 100u);
}

TEST_F(FailureTest, SeveralThreadsKeepOneOrder) {
  daemon_.Start();
  const ProgramResult result = Run({"iterations=500", "threads=3", "sync=5"});
  daemon_.Stop();
  EXPECT_EQ(result.exit_status, 0) << result.output;
  ASSERT_EQ(daemon_.process_count(), 1u);
  EXPECT_EQ(process().calls_missing, 0u);
  std::map<uint32_t, size_t> per_thread;
  for (size_t i = 0; i < process().calls.size(); ++i) {
    EXPECT_EQ(process().calls[i].sequence, i);
    ++per_thread[process().calls[i].thread_id];
  }
  EXPECT_EQ(per_thread.size(), 4u);
}

TEST_F(FailureTest, MeasuresWhileOtherThreadsLaunch) {
  SEQPOINT_NEEDS_TRACES();
  abi::Control control = CounterControl();
  AddEntry(&control, 101, 32, abi::kConfigTrace, 3);
  SendAfterCalls(control);
  daemon_.Start();
  const ProgramResult result =
      Run({"iterations=400", "lengths=16,32", "threads=2", "sleep_us=500"});
  daemon_.Stop();
  EXPECT_EQ(result.exit_status, 0) << result.output;
  ASSERT_EQ(daemon_.process_count(), 1u);
  EXPECT_EQ(process().counters.size(), 3u);
  EXPECT_GT(process().CountRecords(abi::DataType::kKernel), 24u);
}

class CapturedWorkTest : public FailureTest, public ::testing::WithParamInterface<const char*> {};
TEST_P(CapturedWorkTest, IsNoCall) {
  SEQPOINT_NEEDS_TRACES();
  RunAndCompare({"iterations=20", "layers=3", "capture=10", GetParam()});
  ASSERT_EQ(daemon_.process_count(), 1u);
  size_t graphs = 0, launches = 0;
  for (const abi::CallRecord& call : process().calls) {
    const abi::Op op = static_cast<abi::Op>(call.op);
    launches += op == abi::Op::kLaunch;
    if (op != abi::Op::kGraphLaunch) continue;
    ++graphs;
    EXPECT_EQ(process().names[call.name_id], "graph#1");
  }
  if (graphs == 0) GTEST_SKIP() << "the software GPU captures no streams";
  EXPECT_EQ(launches, 20u * 5);
  EXPECT_EQ(process().CountRecords(abi::DataType::kGraph), 1u);
}
INSTANTIATE_TEST_SUITE_P(All, CapturedWorkTest, ::testing::Values("helped=0", "helped=1"),
                         [](const auto& info) {
                           return std::string(info.index == 0 ? "OfTheThread" : "OfAnotherThread");
                         });

TEST_F(FailureTest, ADaemonThatHangsStopsTheLearning) {
  daemon_.OnCalls(10, [this](PuppetProcess&) { daemon_.StopHeartbeats(); });
  daemon_.Start();
  EXPECT_EQ(Run({"iterations=2500", "sleep_us=1000"}).exit_status, 0);
  daemon_.Stop();
  ASSERT_EQ(daemon_.process_count(), 1u);
  ASSERT_EQ(process().rules.size(), 2u);
  EXPECT_EQ(static_cast<abi::Level>(process().rules[1].level), abi::Level::kMark);
  EXPECT_EQ(process().calls.size(), process().rules[1].call_sequence);
}

TEST_F(FailureTest, NvtxBelongsToAnotherTool) {
  extra_ = {{"NVTX_INJECTION64_PATH", "/nonexistent/other_tool.so"}};
  RunAndCompare({"iterations=20", "nvtx=1"});
  ASSERT_EQ(daemon_.process_count(), 1u);
  EXPECT_THAT(process().Message(Feature::kNvtx), HasSubstr("/nonexistent/other_tool.so"));
}

TEST_F(FailureTest, AnotherToolTakesTheBuffers) {
  SendAfterCalls(MarkControl(CopyRule(1)));
  daemon_.Start();
  EXPECT_EQ(Run({"iterations=5000", "sleep_us=1000", "steal=200"}).exit_status, 0);
  daemon_.Stop();
  ASSERT_EQ(daemon_.process_count(), 1u);
  EXPECT_THAT(process().Message(Feature::kActivity), HasSubstr("torch.profiler"));
}

TEST_F(FailureTest, ASecondCopyOfTheLibraryStandsDown) {
  const std::string copy = directory_.path().string() + "/libseqpoint_inject.copy.so";
  std::filesystem::copy_file(SEQPOINT_INJECT_LIBRARY, copy);
  RunAndCompare({"iterations=20", "layers=3", "start_library=" + copy});
  ASSERT_EQ(daemon_.process_count(), 1u);
  EXPECT_EQ(process().calls.size(), 20u * 7 + 1);
  EXPECT_THAT(process().Message(Feature::kCallbacks), HasSubstr("watching"));
}

TEST_F(FailureTest, TheSameFileTwiceIsOneLibrary) {
  // Preloaded, named for the driver, and opened once more under another name.
  const std::string link = directory_.path().string() + "/libseqpoint_inject.so";
  std::filesystem::create_symlink(SEQPOINT_INJECT_LIBRARY, link);
  extra_ = {{"CUDA_INJECTION64_PATH", SEQPOINT_INJECT_LIBRARY}};
  for (const std::string& path : {std::string(SEQPOINT_INJECT_LIBRARY), link}) {
    const TempFolder directory;
    extra_["SEQPOINT_DIR"] = directory.path().string();
    PuppetDaemon daemon(directory.path().string());
    daemon.Start();
    const ProgramResult result = Run({"iterations=20", "layers=3", "start_library=" + path});
    daemon.Stop();
    EXPECT_EQ(result.exit_status, 0) << result.output;
    ASSERT_EQ(daemon.process_count(), 1u);
    EXPECT_EQ(daemon.process(0).calls.size(), 20u * 7 + 1);
    EXPECT_EQ(daemon.process(0).calls_missing, 0u);
  }
}

TEST_F(FailureTest, EitherCopyCanHaveTheProcess) {
  const std::string copy = directory_.path().string() + "/libseqpoint_inject.copy.so";
  std::filesystem::copy_file(SEQPOINT_INJECT_LIBRARY, copy);
  extra_ = {{"CUDA_INJECTION64_PATH", copy}};
  RunAndCompare({"iterations=20", "layers=3"});
  ASSERT_EQ(daemon_.process_count(), 1u);
  EXPECT_EQ(process().calls.size(), 20u * 7 + 1);
}

}  // namespace
}  // namespace seqpoint
