// The range profiler and the host API: passes, ranges, exact values, errors.

#include <cupti_profiler_host.h>
#include <cupti_profiler_target.h>
#include <cupti_range_profiler.h>
#include <cupti_target.h>

#include <cmath>

#include "tests/softgpu/test_support.h"

namespace seqpoint::softgpu {
namespace {

using Names = std::vector<const char*>;

template <typename Params>
Params Sized(size_t bytes) {
  Params params{};
  params.structSize = bytes;
  return params;
}
#define PARAMS(type) Sized<type>(type##_STRUCT_SIZE)

// Everything that one metric set needs, from names to values.
class Session {
 public:
  void Initialize() {
    auto init = PARAMS(CUpti_Profiler_Initialize_Params);
    CUPTI_OK(cuptiProfilerInitialize(&init));
    auto host = PARAMS(CUpti_Profiler_Host_Initialize_Params);
    host.profilerType = CUPTI_PROFILER_TYPE_RANGE_PROFILER;
    host.pChipName = "GH100";
    CUPTI_OK(cuptiProfilerHostInitialize(&host));
    host_ = host.pHostObject;
    auto enable = PARAMS(CUpti_RangeProfiler_Enable_Params);
    CUPTI_OK(cuptiRangeProfilerEnable(&enable));
    object_ = enable.pRangeProfilerObject;
  }

  CUptiResult Configure(const Names& names, CUpti_ProfilerRange range,
                        CUpti_ProfilerReplayMode replay, size_t max_ranges = 8,
                        size_t max_ranges_per_pass = 8, uint16_t levels = 1) {
    names_ = names;
    auto add = PARAMS(CUpti_Profiler_Host_ConfigAddMetrics_Params);
    add.pHostObject = host_;
    add.ppMetricNames = names_.data();
    add.numMetrics = names_.size();
    EXPECT_EQ(cuptiProfilerHostConfigAddMetrics(&add), CUPTI_SUCCESS);
    auto size = PARAMS(CUpti_Profiler_Host_GetConfigImageSize_Params);
    size.pHostObject = host_;
    EXPECT_EQ(cuptiProfilerHostGetConfigImageSize(&size), CUPTI_SUCCESS);
    config_.resize(size.configImageSize);
    auto image = PARAMS(CUpti_Profiler_Host_GetConfigImage_Params);
    image.pHostObject = host_;
    image.configImageSize = config_.size();
    image.pConfigImage = config_.data();
    EXPECT_EQ(cuptiProfilerHostGetConfigImage(&image), CUPTI_SUCCESS);
    auto data_size = PARAMS(CUpti_RangeProfiler_GetCounterDataSize_Params);
    data_size.pRangeProfilerObject = object_;
    data_size.pMetricNames = names_.data();
    data_size.numMetrics = names_.size();
    data_size.maxNumOfRanges = max_ranges;
    data_size.maxNumRangeTreeNodes = static_cast<uint32_t>(max_ranges);
    EXPECT_EQ(cuptiRangeProfilerGetCounterDataSize(&data_size), CUPTI_SUCCESS);
    data_.resize(data_size.counterDataSize);
    auto init = PARAMS(CUpti_RangeProfiler_CounterDataImage_Initialize_Params);
    init.pRangeProfilerObject = object_;
    init.counterDataSize = data_.size();
    init.pCounterData = data_.data();
    EXPECT_EQ(cuptiRangeProfilerCounterDataImageInitialize(&init), CUPTI_SUCCESS);
    auto set = PARAMS(CUpti_RangeProfiler_SetConfig_Params);
    set.pRangeProfilerObject = object_;
    set.configSize = config_.size();
    set.pConfig = config_.data();
    set.counterDataImageSize = data_.size();
    set.pCounterDataImage = data_.data();
    set.range = range;
    set.replayMode = replay;
    set.maxRangesPerPass = max_ranges_per_pass;
    set.numNestingLevels = levels;
    set.minNestingLevel = 1;
    set.targetNestingLevel = 1;
    return cuptiRangeProfilerSetConfig(&set);
  }

  size_t Passes() {
    auto passes = PARAMS(CUpti_Profiler_Host_GetNumOfPasses_Params);
    passes.configImageSize = config_.size();
    passes.pConfigImage = config_.data();
    EXPECT_EQ(cuptiProfilerHostGetNumOfPasses(&passes), CUPTI_SUCCESS);
    return passes.numOfPasses;
  }

  CUptiResult Start() {
    auto params = PARAMS(CUpti_RangeProfiler_Start_Params);
    params.pRangeProfilerObject = object_;
    return cuptiRangeProfilerStart(&params);
  }
  CUptiResult Push(const char* name) {
    auto params = PARAMS(CUpti_RangeProfiler_PushRange_Params);
    params.pRangeProfilerObject = object_;
    params.pRangeName = name;
    return cuptiRangeProfilerPushRange(&params);
  }
  CUptiResult Pop() {
    auto params = PARAMS(CUpti_RangeProfiler_PopRange_Params);
    params.pRangeProfilerObject = object_;
    return cuptiRangeProfilerPopRange(&params);
  }
  bool Stop() {  // true: all passes were submitted
    auto params = PARAMS(CUpti_RangeProfiler_Stop_Params);
    params.pRangeProfilerObject = object_;
    EXPECT_EQ(cuptiRangeProfilerStop(&params), CUPTI_SUCCESS);
    return params.isAllPassSubmitted != 0;
  }
  size_t Decode() {  // ranges dropped
    auto params = PARAMS(CUpti_RangeProfiler_DecodeData_Params);
    params.pRangeProfilerObject = object_;
    EXPECT_EQ(cuptiRangeProfilerDecodeData(&params), CUPTI_SUCCESS);
    return params.numOfRangeDropped;
  }
  size_t Ranges() {
    auto params = PARAMS(CUpti_RangeProfiler_GetCounterDataInfo_Params);
    params.pCounterDataImage = data_.data();
    params.counterDataImageSize = data_.size();
    EXPECT_EQ(cuptiRangeProfilerGetCounterDataInfo(&params), CUPTI_SUCCESS);
    return params.numTotalRanges;
  }
  std::string RangeName(size_t index) {
    auto params = PARAMS(CUpti_RangeProfiler_CounterData_GetRangeInfo_Params);
    params.pCounterDataImage = data_.data();
    params.counterDataImageSize = data_.size();
    params.rangeIndex = index;
    params.rangeDelimiter = "/";
    EXPECT_EQ(cuptiRangeProfilerCounterDataGetRangeInfo(&params), CUPTI_SUCCESS);
    return params.rangeName;
  }
  std::vector<double> Values(size_t range) {
    std::vector<double> values(names_.size());
    auto params = PARAMS(CUpti_Profiler_Host_EvaluateToGpuValues_Params);
    params.pHostObject = host_;
    params.pCounterDataImage = data_.data();
    params.counterDataImageSize = data_.size();
    params.rangeIndex = range;
    params.ppMetricNames = names_.data();
    params.numMetrics = names_.size();
    params.pMetricValues = values.data();
    EXPECT_EQ(cuptiProfilerHostEvaluateToGpuValues(&params), CUPTI_SUCCESS);
    return values;
  }

 private:
  CUpti_Profiler_Host_Object* host_ = nullptr;
  CUpti_RangeProfiler_Object* object_ = nullptr;
  Names names_;
  std::vector<uint8_t> config_;
  std::vector<uint8_t> data_;
};

// Passes of `names` on `chip`, without any GPU.
size_t PassesOf(const char* chip, const Names& names) {
  auto init = PARAMS(CUpti_Profiler_Host_Initialize_Params);
  init.profilerType = CUPTI_PROFILER_TYPE_RANGE_PROFILER;
  init.pChipName = chip;
  EXPECT_EQ(cuptiProfilerHostInitialize(&init), CUPTI_SUCCESS);
  Names copy = names;
  auto add = PARAMS(CUpti_Profiler_Host_ConfigAddMetrics_Params);
  add.pHostObject = init.pHostObject;
  add.ppMetricNames = copy.data();
  add.numMetrics = copy.size();
  EXPECT_EQ(cuptiProfilerHostConfigAddMetrics(&add), CUPTI_SUCCESS) << names[0];
  auto size = PARAMS(CUpti_Profiler_Host_GetConfigImageSize_Params);
  size.pHostObject = init.pHostObject;
  EXPECT_EQ(cuptiProfilerHostGetConfigImageSize(&size), CUPTI_SUCCESS);
  std::vector<uint8_t> image(size.configImageSize);
  auto get = PARAMS(CUpti_Profiler_Host_GetConfigImage_Params);
  get.pHostObject = init.pHostObject;
  get.configImageSize = image.size();
  get.pConfigImage = image.data();
  EXPECT_EQ(cuptiProfilerHostGetConfigImage(&get), CUPTI_SUCCESS);
  auto passes = PARAMS(CUpti_Profiler_Host_GetNumOfPasses_Params);
  passes.configImageSize = image.size();
  passes.pConfigImage = image.data();
  EXPECT_EQ(cuptiProfilerHostGetNumOfPasses(&passes), CUPTI_SUCCESS);
  return passes.numOfPasses;
}

const Names set_a = {"gpu__time_duration.sum",
                     "dram__bytes_read.sum",
                     "dram__bytes_write.sum",
                     "sm__cycles_active.avg.pct_of_peak_sustained_elapsed",
                     "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
                     "sm__warps_active.avg.pct_of_peak_sustained_active"};

Names Plus(Names names, const Names& more) {
  names.insert(names.end(), more.begin(), more.end());
  return names;
}

// The counts that the real host library gives for GH100 (cuptiProfilerHostGetNumOfPasses).
TEST(Profiler, SetsTakeThePassesOfTheRealLibrary) {
  InProcess("", [] {
    const Names set_b =
        Plus(set_a, {"lts__t_sectors.sum", "sm__inst_executed.sum", "gr__cycles_active.avg"});
    EXPECT_EQ(PassesOf("GH100", set_a), 1u);
    EXPECT_EQ(PassesOf("GH100", set_b), 1u);
    EXPECT_EQ(PassesOf("GH100",
                       {"gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum",
                        "sm__cycles_active.avg.pct_of_peak_sustained_elapsed",
                        "sm__warps_active.avg.pct_of_peak_sustained_active",
                        "sm__inst_executed_pipe_tensor.sum", "sm__inst_executed.sum"}),
              1u);
    EXPECT_EQ(PassesOf("GH100", {"gpu__time_duration.sum",
                                 "sm__ops_path_tensor_op_hgmma_src_bf16_dst_fp32.sum"}),
              1u);
    EXPECT_EQ(
        PassesOf("GH100",
                 {"sm__ops_path_tensor_src_bf16_dst_fp32.sum", "sm__ops_path_tensor_src_fp8.sum",
                  "sm__ops_path_tensor_src_tf32_dst_fp32.sum", "sm__ops_path_tensor_src_fp64.sum"}),
        3u);
    EXPECT_EQ(PassesOf("GH100", {"gpu__time_duration.sum", "lts__t_bytes.sum", "dram__bytes.sum"}),
              1u);
    EXPECT_EQ(PassesOf("GH100", {"nvlrx__bytes.sum", "nvltx__bytes.sum"}), 1u);
    EXPECT_EQ(PassesOf("GH100", {"pcie__read_bytes.sum", "pcie__write_bytes.sum"}), 1u);
    EXPECT_EQ(PassesOf("GH100", {"lts__t_sectors.sum", "lts__t_sector_hit_rate.pct",
                                 "l1tex__t_sector_hit_rate.pct"}),
              2u);
    const char* sm = "sm__throughput.avg.pct_of_peak_sustained_elapsed";
    const char* memory = "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed";
    EXPECT_EQ(PassesOf("GH100", {sm}), 8u);
    EXPECT_EQ(PassesOf("GH100", {memory}), 5u);
    EXPECT_EQ(PassesOf("GH100", {sm, memory}), 9u);
    EXPECT_EQ(PassesOf("GA100", {sm}), 5u);
    EXPECT_EQ(PassesOf("GB100", {sm}), 8u);
    EXPECT_EQ(PassesOf("GH100", {"TriageCompute.sm__throughput.avg.pct_of_peak_sustained_elapsed"}),
              2u);
    EXPECT_EQ(PassesOf("GH100", {"sm__inst_executed_pipe_tensor_op_gmma.sum"}), 1u);
    EXPECT_EQ(PassesOf("GH100", {"dram__bytes.sum.per_second"}), 1u);
    EXPECT_EQ(PassesOf("GH100", {"l1tex__t_sector_hit_rate.pct"}), 1u);
    EXPECT_EQ(PassesOf("GH100", {"lts__t_sector_hit_rate.pct"}), 2u);
  });
}

TEST(Profiler, HostErrorsAreThoseOfTheRealLibrary) {
  InProcess("", [] {
    auto init = PARAMS(CUpti_Profiler_Host_Initialize_Params);
    init.profilerType = CUPTI_PROFILER_TYPE_RANGE_PROFILER;
    init.pChipName = "XX100";
    EXPECT_EQ(cuptiProfilerHostInitialize(&init), CUPTI_ERROR_INVALID_CHIP_NAME);
    init.pChipName = "GH100";
    init.structSize = sizeof(init) + 8;
    EXPECT_EQ(cuptiProfilerHostInitialize(&init), CUPTI_ERROR_INVALID_PARAMETER);
    init.structSize = CUpti_Profiler_Host_Initialize_Params_STRUCT_SIZE;
    CUPTI_OK(cuptiProfilerHostInitialize(&init));
    auto add = PARAMS(CUpti_Profiler_Host_ConfigAddMetrics_Params);
    add.pHostObject = init.pHostObject;
    const char* mixed[] = {"dram__bytes.sum", "nvlrx__bytes.sum"};
    add.ppMetricNames = mixed;
    add.numMetrics = 2;
    EXPECT_EQ(cuptiProfilerHostConfigAddMetrics(&add), CUPTI_ERROR_NOT_SUPPORTED);
    const char* unknown[] = {"dram__bytes.sum", "no__such_metric.sum"};
    add.ppMetricNames = unknown;
    EXPECT_EQ(cuptiProfilerHostConfigAddMetrics(&add), CUPTI_ERROR_INVALID_PARAMETER);
    auto size = PARAMS(CUpti_Profiler_Host_GetConfigImageSize_Params);
    size.pHostObject = init.pHostObject;
    EXPECT_EQ(cuptiProfilerHostGetConfigImageSize(&size), CUPTI_ERROR_UNKNOWN);
    auto chip = PARAMS(CUpti_Device_GetChipName_Params);
    CUPTI_OK(cuptiDeviceGetChipName(&chip));
    EXPECT_STREQ(chip.pChipName, "GH100");
    auto info = PARAMS(CUpti_RangeProfiler_GetCounterDataInfo_Params);
    std::vector<uint8_t> garbage(4096, 7);
    info.pCounterDataImage = garbage.data();
    info.counterDataImageSize = garbage.size();
    EXPECT_EQ(cuptiRangeProfilerGetCounterDataInfo(&info), CUPTI_ERROR_NOT_INITIALIZED);
  });
}

// The results of adding a metric of the whole device and one of a context to a host object, made
// with an availability image whose parameters are `bytes` long and have `flag` behind those
// of 13.0.
std::pair<CUptiResult, CUptiResult> AddedWithImage(size_t bytes, bool flag) {
  Gpu gpu;
  gpu.Open();
  auto profiler = PARAMS(CUpti_Profiler_Initialize_Params);
  EXPECT_EQ(cuptiProfilerInitialize(&profiler), CUPTI_SUCCESS);
  struct {
    CUpti_Profiler_GetCounterAvailability_Params params;
    bool flag;
  } long_params = {{.structSize = bytes}, flag};
  auto* params = &long_params.params;
  CUptiResult result = cuptiProfilerGetCounterAvailability(params);
  if (result != CUPTI_SUCCESS) return {result, result};
  std::vector<uint8_t> image(params->counterAvailabilityImageSize);
  params->pCounterAvailabilityImage = image.data();
  EXPECT_EQ(cuptiProfilerGetCounterAvailability(params), CUPTI_SUCCESS);
  const auto add = [&](const char* metric) {
    auto init = PARAMS(CUpti_Profiler_Host_Initialize_Params);
    init.profilerType = CUPTI_PROFILER_TYPE_RANGE_PROFILER;
    init.pChipName = "GH100";
    init.pCounterAvailabilityImage = image.data();
    EXPECT_EQ(cuptiProfilerHostInitialize(&init), CUPTI_SUCCESS);
    auto added = PARAMS(CUpti_Profiler_Host_ConfigAddMetrics_Params);
    added.pHostObject = init.pHostObject;
    added.ppMetricNames = &metric;
    added.numMetrics = 1;
    return cuptiProfilerHostConfigAddMetrics(&added);
  };
  return {add("nvlrx__bytes.sum"), add("dram__bytes.sum")};
}

TEST(Profiler, AvailabilityImagesHaveMetricsOfTheDeviceWhenAsked) {
  constexpr size_t kShort = CUpti_Profiler_GetCounterAvailability_Params_STRUCT_SIZE;
  const auto answers = [](CUptiResult device, CUptiResult context) {
    return std::pair{device, context};
  };
  InProcess("", [&] {
    EXPECT_EQ(AddedWithImage(kShort, false), answers(CUPTI_ERROR_INVALID_PARAMETER, CUPTI_SUCCESS));
  });
  InProcess("", [&] {
    EXPECT_EQ(AddedWithImage(kShort + 1, true).first, CUPTI_ERROR_INVALID_PARAMETER);
  });
  InProcess("cupti.version=130100", [&] {
    EXPECT_EQ(AddedWithImage(kShort, false), answers(CUPTI_ERROR_INVALID_PARAMETER, CUPTI_SUCCESS));
    EXPECT_EQ(AddedWithImage(kShort + 1, false),
              answers(CUPTI_ERROR_INVALID_PARAMETER, CUPTI_SUCCESS));
    EXPECT_EQ(AddedWithImage(kShort + 1, true), answers(CUPTI_SUCCESS, CUPTI_SUCCESS));
  });
}

TEST(Profiler, ARangeCountsExactlyTheLaunchesInIt) {
  InProcess("noise.counters=0", [] {
    Gpu gpu;
    gpu.Open();
    Session session;
    session.Initialize();
    ASSERT_EQ(session.Configure({"dram__bytes_read.sum", "sm__inst_executed.sum",
                                 "sm__pipe_tensor_cycles_active.sum", "gpu__time_duration.sum",
                                 "sm__cycles_active.sum"},
                                CUPTI_UserRange, CUPTI_UserReplay),
              CUPTI_SUCCESS);
    EXPECT_EQ(session.Passes(), 1u);
    SwgpuWork work{};
    work.tensor_flops = 1e9;
    work.dram_read_bytes = 12345;
    work.instructions = 1000;
    auto launch = [&](int n) {
      for (int i = 0; i < n; ++i) {
        swgpu_next_launch_work(&work);
        gpu.Launch(gpu.gemm);
      }
    };
    launch(3);  // before: not counted, though they may still run when the range begins
    SwgpuTotals before, after;
    CUPTI_OK(session.Start());
    CUPTI_OK(session.Push("iteration"));
    swgpu_totals(&before);
    uint64_t begin = swgpu_now_ns();
    launch(5);
    swgpu_totals(&after);
    CUPTI_OK(session.Pop());
    launch(2);
    EXPECT_TRUE(session.Stop());
    EXPECT_EQ(session.Decode(), 0u);
    ASSERT_EQ(session.Ranges(), 1u);
    EXPECT_EQ(session.RangeName(0), "iteration");
    std::vector<double> values = session.Values(0);
    EXPECT_DOUBLE_EQ(values[0], 5 * 12345);
    EXPECT_DOUBLE_EQ(values[1], 5000);
    EXPECT_NEAR(values[2], after.tensor_cycles - before.tensor_cycles, 1e-3);
    EXPECT_GE(values[3], after.kernel_time_ns - before.kernel_time_ns);
    EXPECT_LE(values[3], static_cast<double>(swgpu_now_ns() - begin));
    EXPECT_NEAR(values[4], after.sm_active_cycles - before.sm_active_cycles, 1e-3);
  });
}

TEST(Profiler, AUserRangeIsLongerThanWhatItHolds) {
  const auto time_of_range = [](double* time_ns) {
    Gpu gpu;
    gpu.Open();
    Session session;
    session.Initialize();
    ASSERT_EQ(session.Configure({"gpu__time_duration.sum"}, CUPTI_UserRange, CUPTI_UserReplay),
              CUPTI_SUCCESS);
    CUPTI_OK(session.Start());
    CUPTI_OK(session.Push("iteration"));
    const uint64_t begin_ns = swgpu_now_ns();
    gpu.Launch(gpu.gemm);
    CU_OK(cuStreamSynchronize(gpu.stream));
    const uint64_t end_ns = swgpu_now_ns();
    CUPTI_OK(session.Pop());
    session.Stop();
    session.Decode();
    *time_ns = session.Values(0)[0] - static_cast<double>(end_ns - begin_ns);
  };
  const std::string quiet = kNoNoise;
  InProcess(quiet, [&] {
    double extra_ns = -1;
    time_of_range(&extra_ns);
    EXPECT_NEAR(extra_ns, 0, 100);
  });
  InProcess(quiet + "cupti.range_extra_ns=20000", [&] {
    double extra_ns = -1;
    time_of_range(&extra_ns);
    EXPECT_NEAR(extra_ns, 20'000, 100);
  });
}

TEST(Profiler, MetricsAddedApartTakePassesApart) {
  InProcess("", [] {
    Gpu gpu;
    gpu.Open();
    Session session;
    session.Initialize();
    ASSERT_EQ(session.Configure({"dram__bytes_read.sum"}, CUPTI_UserRange, CUPTI_UserReplay),
              CUPTI_SUCCESS);
    EXPECT_EQ(session.Passes(), 1u);
    ASSERT_EQ(session.Configure({"dram__bytes_read.sum", "dram__bytes_write.sum"}, CUPTI_UserRange,
                                CUPTI_UserReplay),
              CUPTI_SUCCESS);
    EXPECT_EQ(session.Passes(), 2u) << "one was there, the other came later";
  });
}

TEST(Profiler, PassesAreSpreadOverRealIterations) {
  InProcess("noise.counters=0", [] {
    Gpu gpu;
    gpu.Open();
    Session session;
    session.Initialize();
    ASSERT_EQ(session.Configure(
                  {"sm__ops_path_tensor_src_bf16_dst_fp32.sum", "sm__ops_path_tensor_src_fp8.sum",
                   "sm__ops_path_tensor_src_tf32_dst_fp32.sum", "dram__bytes_read.sum"},
                  CUPTI_UserRange, CUPTI_UserReplay),
              CUPTI_SUCCESS);
    ASSERT_EQ(session.Passes(), 3u);
    for (int pass = 0; pass < 3; ++pass) {
      SwgpuWork work{};
      work.dram_read_bytes = 100 * (pass + 1);
      work.tensor_flops = 8192 * (pass + 1);
      CUPTI_OK(session.Start());
      CUPTI_OK(session.Push("iteration"));
      swgpu_next_launch_work(&work);
      gpu.Launch(gpu.gemm);
      CUPTI_OK(session.Pop());
      EXPECT_EQ(session.Stop(), pass == 2);
      if (pass == 1) {
        session.Decode();
        EXPECT_TRUE(std::isnan(session.Values(0)[3])) << "its pass is still to come";
      }
    }
    EXPECT_EQ(session.Decode(), 0u);
    EXPECT_EQ(session.Ranges(), 1u);
    EXPECT_DOUBLE_EQ(session.Values(0)[0], 8192);  // from the first pass
    EXPECT_DOUBLE_EQ(session.Values(0)[3], 300);   // from the third
  });
}

TEST(Profiler, DerivedMetricsAgreeWithTheirCounters) {
  InProcess("noise.counters=0", [] {
    Gpu gpu;
    gpu.Open();
    Session session;
    session.Initialize();
    ASSERT_EQ(session.Configure(
                  {"gpu__time_duration.sum", "dram__bytes.sum", "dram__bytes.sum.per_second",
                   "dram__throughput.avg.pct_of_peak_sustained_elapsed", "sm__cycles_active.sum",
                   "sm__cycles_active.avg", "sm__cycles_elapsed.sum",
                   "sm__cycles_active.avg.pct_of_peak_sustained_elapsed",
                   "sm__warps_active.avg.pct_of_peak_sustained_active"},
                  CUPTI_UserRange, CUPTI_UserReplay),
              CUPTI_SUCCESS);
    CUPTI_OK(session.Start());
    CUPTI_OK(session.Push("r"));
    for (int i = 0; i < 50; ++i) {
      SwgpuWork work{};
      work.dram_read_bytes = 1e8;
      swgpu_next_launch_work(&work);
      gpu.Launch(gpu.gemm, 1000);
    }
    CUPTI_OK(session.Pop());
    session.Stop();
    session.Decode();
    std::vector<double> v = session.Values(0);
    EXPECT_DOUBLE_EQ(v[1], 50 * 1e8);
    EXPECT_NEAR(v[2], v[1] / (v[0] * 1e-9), 1e-6 * v[2]);
    EXPECT_NEAR(v[3], 100 * v[2] / 4800e9, 1e-6 * v[3]);
    EXPECT_GT(v[3], 30);
    EXPECT_LT(v[3], 65) << "no more than the efficiency";
    EXPECT_NEAR(v[5], v[4] / 132, 1e-6 * v[5]);
    EXPECT_NEAR(v[7], 100 * v[4] / v[6], 1e-6 * v[7]);
    EXPECT_LE(v[7], 100);
    EXPECT_NEAR(v[8], 100 * 4 * 8 / 64.0, 1e-6) << "8 blocks of 4 warps, of 64 warps at most";
  });
}

TEST(Profiler, EachNestingLevelTakesItsOwnRounds) {
  InProcess("noise.counters=0", [] {
    Gpu gpu;
    gpu.Open();
    Session session;
    session.Initialize();
    ASSERT_EQ(session.Configure({"lts__t_sector_hit_rate.pct", "dram__bytes_read.sum"},
                                CUPTI_UserRange, CUPTI_UserReplay, 8, 8, 2),
              CUPTI_SUCCESS);
    const size_t passes = session.Passes();
    ASSERT_EQ(passes, 2u);
    SwgpuWork work{};
    work.dram_read_bytes = 100;
    for (size_t round = 0; round < 2 * passes; ++round) {
      CUPTI_OK(session.Start());
      CUPTI_OK(session.Push("outer"));
      for (int i = 0; i < 2; ++i) {
        CUPTI_OK(session.Push(i == 0 ? "first" : "second"));
        swgpu_next_launch_work(&work);
        gpu.Launch(gpu.gemm);
        CUPTI_OK(session.Pop());
      }
      CUPTI_OK(session.Pop());
      EXPECT_EQ(session.Stop(), round == 2 * passes - 1);
    }
    EXPECT_EQ(session.Decode(), 0u);
    ASSERT_EQ(session.Ranges(), 3u);
    EXPECT_EQ(session.RangeName(0), "outer");
    EXPECT_EQ(session.RangeName(2), "outer/second");
    EXPECT_DOUBLE_EQ(session.Values(0)[1], 200);
    EXPECT_DOUBLE_EQ(session.Values(2)[1], 100);
    EXPECT_DOUBLE_EQ(session.Values(2)[0], 60);
  });
}

TEST(Profiler, ALaterPassMustBringTheSameRanges) {
  InProcess("", [] {
    Gpu gpu;
    gpu.Open();
    Session session;
    session.Initialize();
    ASSERT_EQ(session.Configure({"lts__t_sector_hit_rate.pct"}, CUPTI_UserRange, CUPTI_UserReplay),
              CUPTI_SUCCESS);
    for (const char* name : {"one", "two"}) {
      CUPTI_OK(session.Start());
      CUPTI_OK(session.Push(name));
      gpu.Launch(gpu.gemm);
      CUPTI_OK(session.Pop());
      session.Stop();
    }
    EXPECT_EQ(session.Decode(), 1u);
    EXPECT_EQ(session.Ranges(), 1u);
    EXPECT_TRUE(std::isnan(session.Values(0)[0]));
  });
}

TEST(Profiler, RangesBeyondTheImageAreDropped) {
  InProcess("", [] {
    Gpu gpu;
    gpu.Open();
    Session session;
    session.Initialize();
    ASSERT_EQ(session.Configure({"dram__bytes.sum"}, CUPTI_UserRange, CUPTI_UserReplay, 2),
              CUPTI_SUCCESS);
    CUPTI_OK(session.Start());
    for (int i = 0; i < 5; ++i) {
      CUPTI_OK(session.Push("r"));
      gpu.Launch(gpu.gemm);
      CUPTI_OK(session.Pop());
    }
    session.Stop();
    EXPECT_EQ(session.Decode(), 3u);
    EXPECT_EQ(session.Ranges(), 2u);
  });
}

TEST(Profiler, AutoRangesMeasureEachKernel) {
  for (CUpti_ProfilerReplayMode replay : {CUPTI_KernelReplay, CUPTI_UserReplay}) {
    InProcess("noise.counters=0", [replay] {
      Gpu gpu;
      gpu.Open();
      Session session;
      session.Initialize();
      ASSERT_EQ(session.Configure({"lts__t_sector_hit_rate.pct", "dram__bytes_read.sum"},
                                  CUPTI_AutoRange, replay),
                CUPTI_SUCCESS);
      const int rounds = replay == CUPTI_KernelReplay ? 1 : 2;
      for (int round = 0; round < rounds; ++round) {
        CUPTI_OK(session.Start());
        EXPECT_EQ(session.Push("x"), CUPTI_ERROR_INVALID_OPERATION);
        for (int i = 0; i < 3; ++i) {
          SwgpuWork work{};
          work.dram_read_bytes = 1000 * (i + 1);
          swgpu_next_launch_work(&work);
          gpu.Launch(gpu.gemm);
          EXPECT_EQ(cuStreamQuery(gpu.stream), CUDA_SUCCESS) << "kernels are serialised";
        }
        EXPECT_EQ(session.Stop(), round == rounds - 1);
      }
      EXPECT_EQ(session.Decode(), 0u);
      ASSERT_EQ(session.Ranges(), 3u);
      EXPECT_DOUBLE_EQ(session.Values(1)[1], 2000);
      EXPECT_DOUBLE_EQ(session.Values(2)[0], 60);
    });
  }
}

TEST(Profiler, IllegalUsesAreRefused) {
  InProcess("cupti.range_limit=100", [] {
    Gpu gpu;
    gpu.Open();
    Session session;
    session.Initialize();
    const Names names = {"dram__bytes.sum"};
    EXPECT_EQ(session.Start(), CUPTI_ERROR_INVALID_OPERATION) << "no configuration";
    EXPECT_EQ(session.Configure(names, CUPTI_UserRange, CUPTI_KernelReplay),
              CUPTI_ERROR_INVALID_OPERATION);
    EXPECT_EQ(session.Configure(names, CUPTI_AutoRange, CUPTI_UserReplay, 8, 101),
              CUPTI_ERROR_INVALID_OPERATION);
    ASSERT_EQ(session.Configure(names, CUPTI_UserRange, CUPTI_UserReplay), CUPTI_SUCCESS);
    EXPECT_EQ(session.Push("early"), CUPTI_ERROR_INVALID_OPERATION);
    CUPTI_OK(session.Start());
    EXPECT_EQ(session.Start(), CUPTI_ERROR_INVALID_OPERATION);
    EXPECT_EQ(session.Pop(), CUPTI_ERROR_INVALID_OPERATION);
    std::thread([&] {
      EXPECT_EQ(session.Push("other thread"), CUPTI_ERROR_INVALID_CONTEXT);
    }).join();
    auto second = PARAMS(CUpti_RangeProfiler_Enable_Params);
    EXPECT_EQ(cuptiRangeProfilerEnable(&second), CUPTI_ERROR_INVALID_OPERATION);
    auto start = PARAMS(CUpti_RangeProfiler_Start_Params);
    EXPECT_EQ(cuptiRangeProfilerStart(&start), CUPTI_ERROR_INVALID_PARAMETER);
  });
}

TEST(Profiler, WithoutPrivilegesAvailabilityAndStartFail) {
  InProcess("cupti.no_privileges=1", [] {
    Gpu gpu;
    gpu.Open();
    Session session;
    session.Initialize();
    auto availability = PARAMS(CUpti_Profiler_GetCounterAvailability_Params);
    EXPECT_EQ(cuptiProfilerGetCounterAvailability(&availability),
              CUPTI_ERROR_INSUFFICIENT_PRIVILEGES);
    ASSERT_EQ(session.Configure({"dram__bytes.sum"}, CUPTI_UserRange, CUPTI_UserReplay),
              CUPTI_SUCCESS);
    EXPECT_EQ(session.Start(), CUPTI_ERROR_INSUFFICIENT_PRIVILEGES);
  });
}

TEST(Profiler, BusyHardwareRefusesTheStart) {
  InProcess("cupti.hardware_busy=1", [] {
    Gpu gpu;
    gpu.Open();
    Session session;
    session.Initialize();
    ASSERT_EQ(session.Configure({"dram__bytes.sum"}, CUPTI_UserRange, CUPTI_UserReplay),
              CUPTI_SUCCESS);
    EXPECT_EQ(session.Start(), CUPTI_ERROR_HARDWARE_BUSY);
  });
}

TEST(Profiler, EnableWithoutInitializeEndsTheProcess) {
  EXPECT_DEATH(
      {
        auto enable = PARAMS(CUpti_RangeProfiler_Enable_Params);
        cuptiRangeProfilerEnable(&enable);
      },
      "without a successful cuptiProfilerInitialize");
}

TEST(Profiler, CounterNoiseHasTheConfiguredSize) {
  InProcess("clock.speed_cap=0,noise.counters=0.003", [] {
    Gpu gpu;
    gpu.Open();
    Session session;
    session.Initialize();
    constexpr int kRanges = 1000;
    ASSERT_EQ(session.Configure({"dram__bytes_read.sum"}, CUPTI_UserRange, CUPTI_UserReplay,
                                kRanges, kRanges),
              CUPTI_SUCCESS);
    CUPTI_OK(session.Start());
    SwgpuWork work{};
    work.dram_read_bytes = 1e6;
    for (int i = 0; i < kRanges; ++i) {
      CUPTI_OK(session.Push("r"));
      swgpu_next_launch_work(&work);
      gpu.Launch(gpu.gemm);
      CUPTI_OK(session.Pop());
    }
    session.Stop();
    session.Decode();
    double sum = 0, squares = 0;
    for (int i = 0; i < kRanges; ++i) {
      double value = session.Values(static_cast<size_t>(i))[0] / 1e6;
      sum += value;
      squares += value * value;
    }
    double mean = sum / kRanges;
    EXPECT_NEAR(mean, 1, 0.0005);
    EXPECT_NEAR(std::sqrt(squares / kRanges - mean * mean), 0.003, 0.0005);
  });
}

}  // namespace
}  // namespace seqpoint::softgpu
