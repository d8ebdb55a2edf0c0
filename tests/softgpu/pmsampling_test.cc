// PM sampling of the software GPU: values by time, the hardware buffer, errors.

#include <cupti_pmsampling.h>
#include <cupti_profiler_host.h>
#include <cupti_profiler_target.h>
#include <cupti_range_profiler.h>
#include <cupti_target.h>

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

void Initialize() {
  auto init = PARAMS(CUpti_Profiler_Initialize_Params);
  CUPTI_OK(cuptiProfilerInitialize(&init));
}

#define OK(call) EXPECT_EQ(call, CUPTI_SUCCESS)

class Sampler {
 public:
  CUptiResult Enable() {
    auto enable = PARAMS(CUpti_PmSampling_Enable_Params);
    const CUptiResult result = cuptiPmSamplingEnable(&enable);
    object_ = enable.pPmSamplingObject;
    return result;
  }
  CUptiResult Configure(
      const Names& names, uint64_t interval_ns,
      CUpti_PmSampling_TriggerMode trigger = CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_TIME_INTERVAL) {
    names_ = names;
    auto host = PARAMS(CUpti_Profiler_Host_Initialize_Params);
    host.profilerType = CUPTI_PROFILER_TYPE_PM_SAMPLING;
    auto chip = PARAMS(CUpti_Device_GetChipName_Params);
    OK(cuptiDeviceGetChipName(&chip));
    host.pChipName = chip.pChipName;
    OK(cuptiProfilerHostInitialize(&host));
    host_ = host.pHostObject;
    auto add = PARAMS(CUpti_Profiler_Host_ConfigAddMetrics_Params);
    add.pHostObject = host_;
    add.ppMetricNames = names_.data();
    add.numMetrics = names_.size();
    const CUptiResult added = cuptiProfilerHostConfigAddMetrics(&add);
    if (added != CUPTI_SUCCESS) return added;
    auto size = PARAMS(CUpti_Profiler_Host_GetConfigImageSize_Params);
    size.pHostObject = host_;
    OK(cuptiProfilerHostGetConfigImageSize(&size));
    std::vector<uint8_t>& config = config_;
    config.assign(size.configImageSize, 0);
    auto image = PARAMS(CUpti_Profiler_Host_GetConfigImage_Params);
    image.pHostObject = host_;
    image.configImageSize = config.size();
    image.pConfigImage = config.data();
    OK(cuptiProfilerHostGetConfigImage(&image));
    auto set = PARAMS(CUpti_PmSampling_SetConfig_Params);
    set.pPmSamplingObject = object_;
    set.configSize = config.size();
    set.pConfig = config.data();
    set.hardwareBufferSize = 1 << 20;
    set.samplingInterval = interval_ns;
    set.triggerMode = trigger;
    return cuptiPmSamplingSetConfig(&set);
  }
  CUptiResult Disable() {
    auto params = PARAMS(CUpti_PmSampling_Disable_Params);
    params.pPmSamplingObject = object_;
    return cuptiPmSamplingDisable(&params);
  }
  std::vector<uint8_t>& config() { return config_; }
  CUptiResult Start() {
    auto params = PARAMS(CUpti_PmSampling_Start_Params);
    params.pPmSamplingObject = object_;
    return cuptiPmSamplingStart(&params);
  }
  CUptiResult Stop() {
    auto params = PARAMS(CUpti_PmSampling_Stop_Params);
    params.pPmSamplingObject = object_;
    return cuptiPmSamplingStop(&params);
  }
  struct Sample {
    uint64_t start_ns, end_ns;
    std::vector<double> values;
  };
  // All there are, `most` at a time.
  std::vector<Sample> Decode(uint32_t most, bool* overflow = nullptr) {
    std::vector<Sample> samples;
    while (true) {
      auto size = PARAMS(CUpti_PmSampling_GetCounterDataSize_Params);
      size.pPmSamplingObject = object_;
      size.pMetricNames = names_.data();
      size.numMetrics = names_.size();
      size.maxSamples = most;
      OK(cuptiPmSamplingGetCounterDataSize(&size));
      std::vector<uint8_t> data(size.counterDataSize);
      auto init = PARAMS(CUpti_PmSampling_CounterDataImage_Initialize_Params);
      init.pPmSamplingObject = object_;
      init.counterDataSize = data.size();
      init.pCounterData = data.data();
      OK(cuptiPmSamplingCounterDataImageInitialize(&init));
      auto decode = PARAMS(CUpti_PmSampling_DecodeData_Params);
      decode.pPmSamplingObject = object_;
      decode.pCounterDataImage = data.data();
      decode.counterDataImageSize = data.size();
      OK(cuptiPmSamplingDecodeData(&decode));
      if (overflow != nullptr) *overflow = decode.overflow != 0;
      auto info = PARAMS(CUpti_PmSampling_GetCounterDataInfo_Params);
      info.pCounterDataImage = data.data();
      info.counterDataImageSize = data.size();
      OK(cuptiPmSamplingGetCounterDataInfo(&info));
      EXPECT_LE(info.numCompletedSamples, most);
      for (size_t i = 0; i < info.numCompletedSamples; ++i) {
        auto sample = PARAMS(CUpti_PmSampling_CounterData_GetSampleInfo_Params);
        sample.pPmSamplingObject = object_;
        sample.pCounterDataImage = data.data();
        sample.counterDataImageSize = data.size();
        sample.sampleIndex = i;
        OK(cuptiPmSamplingCounterDataGetSampleInfo(&sample));
        Sample& to = samples.emplace_back();
        to = {sample.startTimestamp, sample.endTimestamp, std::vector<double>(names_.size())};
        auto values = PARAMS(CUpti_Profiler_Host_EvaluateToGpuValues_Params);
        values.pHostObject = host_;
        values.pCounterDataImage = data.data();
        values.counterDataImageSize = data.size();
        values.rangeIndex = i;
        values.ppMetricNames = names_.data();
        values.numMetrics = names_.size();
        values.pMetricValues = to.values.data();
        OK(cuptiProfilerHostEvaluateToGpuValues(&values));
      }
      if (decode.decodeStopReason == CUPTI_PM_SAMPLING_DECODE_STOP_REASON_OTHER) ++stops_;
      if (decode.decodeStopReason == CUPTI_PM_SAMPLING_DECODE_STOP_REASON_END_OF_RECORDS) {
        return samples;
      }
    }
  }

  // Decodes so far that stopped for no told reason.
  int stops() const { return stops_; }

 private:
  CUpti_PmSampling_Object* object_ = nullptr;
  CUpti_Profiler_Host_Object* host_ = nullptr;
  Names names_;
  std::vector<uint8_t> config_;
  int stops_ = 0;
};

void LaunchWork(Gpu* gpu, int launches) {
  SwgpuWork work{};
  work.dram_read_bytes = 1 << 20;
  work.instructions = 1000;
  for (int i = 0; i < launches; ++i) {
    swgpu_next_launch_work(&work);
    gpu->Launch(gpu->gemm);
  }
}

TEST(PmSampling, SamplesOfATimeAddUpToItsWork) {
  InProcess("noise.counters=0", [] {
    Gpu gpu;
    gpu.Open();
    Initialize();
    Sampler sampler;
    ASSERT_EQ(sampler.Enable(), CUPTI_SUCCESS);
    ASSERT_EQ(sampler.Configure({"gpu__time_duration.sum", "dram__bytes_read.sum"}, 5000),
              CUPTI_SUCCESS);
    CUPTI_OK(sampler.Start());
    LaunchWork(&gpu, 20);
    CUstream other;
    CU_OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    CU_OK(cuStreamSynchronize(gpu.stream));
    swgpu_host_work(50000);  // the last sample is over
    CUPTI_OK(sampler.Stop());
    const auto samples = sampler.Decode(7);
    ASSERT_GT(samples.size(), 10u);
    double bytes = 0;
    for (size_t i = 0; i < samples.size(); ++i) {
      EXPECT_EQ(samples[i].end_ns - samples[i].start_ns, 5000u);
      EXPECT_EQ(samples[i].values[0], 5000);
      EXPECT_EQ(samples[i].start_ns, samples[i > 0 ? i - 1 : i].end_ns - (i > 0 ? 0 : 5000));
      bytes += samples[i].values[1];
    }
    EXPECT_NEAR(bytes, 20.0 * (1 << 20), 1);
    // Nothing waited: the launches are as fast as without.
    EXPECT_EQ(sampler.Decode(7).size(), 0u);
  });
}

TEST(PmSampling, AFullBufferKeepsTheOldest) {
  InProcess("cupti.pm_buffer_samples=10", [] {
    Gpu gpu;
    gpu.Open();
    Initialize();
    Sampler sampler;
    ASSERT_EQ(sampler.Enable(), CUPTI_SUCCESS);
    ASSERT_EQ(sampler.Configure({"gpu__time_duration.sum"}, 1000), CUPTI_SUCCESS);
    CUPTI_OK(sampler.Start());
    const uint64_t begin_ns = swgpu_now_ns();
    swgpu_host_work(100000);
    bool overflow = false;
    const auto samples = sampler.Decode(64, &overflow);
    EXPECT_TRUE(overflow);
    ASSERT_EQ(samples.size(), 10u);
    EXPECT_LE(samples[0].start_ns, begin_ns);
    EXPECT_EQ(sampler.Decode(64).size(), 0u) << "the others are lost";
  });
}

TEST(PmSampling, DecodesMayStopBeforeTheEnd) {
  InProcess("cupti.pm_samples_per_decode=10", [] {
    Gpu gpu;
    gpu.Open();
    Initialize();
    Sampler sampler;
    ASSERT_EQ(sampler.Enable(), CUPTI_SUCCESS);
    ASSERT_EQ(sampler.Configure({"gpu__time_duration.sum"}, 1000), CUPTI_SUCCESS);
    CUPTI_OK(sampler.Start());
    swgpu_host_work(55000);
    CUPTI_OK(sampler.Stop());
    EXPECT_GT(sampler.Decode(64).size(), 50u);
    EXPECT_GE(sampler.stops(), 5);
  });
}

TEST(PmSampling, TheFirstSampleIsAnOutlier) {
  InProcess("noise.counters=0,cupti.pm_first_sample_factor=100", [] {
    Gpu gpu;
    gpu.Open();
    Initialize();
    Sampler sampler;
    ASSERT_EQ(sampler.Enable(), CUPTI_SUCCESS);
    ASSERT_EQ(sampler.Configure({"gpu__time_duration.sum"}, 1000), CUPTI_SUCCESS);
    for (int round = 0; round < 2; ++round) {
      CUPTI_OK(sampler.Start());
      swgpu_host_work(10000);
      CUPTI_OK(sampler.Stop());
      const auto samples = sampler.Decode(64);
      ASSERT_GT(samples.size(), 2u);
      EXPECT_EQ(samples[0].end_ns - samples[0].start_ns, 100'000u);
      EXPECT_EQ(samples[1].start_ns, samples[0].end_ns);
      EXPECT_EQ(samples[1].values[0], 1000);
    }
  });
}

TEST(PmSampling, AnImageThatChangedIsNoticed) {
  InProcess("", [] {
    Gpu gpu;
    gpu.Open();
    Initialize();
    Sampler sampler;
    ASSERT_EQ(sampler.Enable(), CUPTI_SUCCESS);
    ASSERT_EQ(sampler.Configure({"gpu__time_duration.sum"}, 1000), CUPTI_SUCCESS);
    sampler.config().back() ^= 1;
    EXPECT_EQ(sampler.Start(), CUPTI_ERROR_UNKNOWN);
    sampler.config().back() ^= 1;
    EXPECT_EQ(sampler.Start(), CUPTI_SUCCESS);
  });
}

TEST(PmSampling, ClocksAreLockedWhileItIsEnabled) {
  InProcess(std::string(kNoNoise) + "cupti.pm_slowdown=3", [] {
    Gpu gpu;
    gpu.Open();
    Initialize();
    const auto time_ns = [&] {
      const uint64_t begin_ns = swgpu_now_ns();
      LaunchWork(&gpu, 1000);
      EXPECT_EQ(cuStreamSynchronize(gpu.stream), CUDA_SUCCESS);
      return static_cast<double>(swgpu_now_ns() - begin_ns);
    };
    const double usual_ns = time_ns();
    Sampler sampler;
    ASSERT_EQ(sampler.Enable(), CUPTI_SUCCESS);
    EXPECT_GT(time_ns(), 1.5 * usual_ns);
    CUPTI_OK(sampler.Disable());
    EXPECT_NEAR(time_ns(), usual_ns, 0.01 * usual_ns);
  });
}

TEST(PmSampling, InitializingIsNotCounted) {
  InProcess("", [] {
    Gpu gpu;
    gpu.Open();
    Initialize();
    Initialize();
    auto end = PARAMS(CUpti_Profiler_DeInitialize_Params);
    CUPTI_OK(cuptiProfilerDeInitialize(&end));
    EXPECT_DEATH(cuptiProfilerDeInitialize(&end), "without cuptiProfilerInitialize");
  });
}

TEST(PmSampling, RefusesWhatTheRealOneRefuses) {
  InProcess("", [] {
    Gpu gpu;
    gpu.Open();
    Sampler before;
    EXPECT_EQ(before.Enable(), CUPTI_ERROR_UNKNOWN) << "not initialised";
    Initialize();
    Sampler sampler;
    ASSERT_EQ(sampler.Enable(), CUPTI_SUCCESS);
    EXPECT_EQ(sampler.Start(), CUPTI_ERROR_INVALID_OPERATION) << "not configured";
    Sampler second;
    EXPECT_EQ(second.Enable(), CUPTI_ERROR_INVALID_OPERATION) << "one per device";
    EXPECT_EQ(sampler.Configure({"lts__t_sectors_lookup_hit.sum"}, 1000),
              CUPTI_ERROR_INVALID_PARAMETER)
        << "not offered";
    EXPECT_EQ(sampler.Configure({"sm__inst_executed_pipe_tensor.sum"}, 1000),
              CUPTI_ERROR_NOT_SUPPORTED)
        << "two passes";
    // Links and others together, unlike ranges.
    ASSERT_EQ(sampler.Configure({"nvlrx__bytes.sum", "dram__bytes.sum"}, 1000), CUPTI_SUCCESS);
    CUPTI_OK(sampler.Start());
    EXPECT_EQ(sampler.Start(), CUPTI_ERROR_INVALID_OPERATION);
    CUPTI_OK(sampler.Stop());
  });
  InProcess("cupti.no_privileges=1", [] {
    Gpu gpu;
    gpu.Open();
    Initialize();
    Sampler sampler;
    EXPECT_EQ(sampler.Enable(), CUPTI_ERROR_INSUFFICIENT_PRIVILEGES);
    auto available = PARAMS(CUpti_PmSampling_GetCounterAvailability_Params);
    EXPECT_EQ(cuptiPmSamplingGetCounterAvailability(&available),
              CUPTI_ERROR_INSUFFICIENT_PRIVILEGES);
  });
  InProcess("cupti.hardware_busy=1", [] {
    Gpu gpu;
    gpu.Open();
    Initialize();
    Sampler sampler;
    ASSERT_EQ(sampler.Enable(), CUPTI_SUCCESS);
    ASSERT_EQ(sampler.Configure({"dram__bytes.sum"}, 1000), CUPTI_SUCCESS);
    EXPECT_EQ(sampler.Start(), CUPTI_ERROR_HARDWARE_BUSY);
  });
  InProcess("gpu.chip=GA100", [] {
    Gpu gpu;
    gpu.Open();
    Initialize();
    Sampler sampler;
    ASSERT_EQ(sampler.Enable(), CUPTI_SUCCESS);
    EXPECT_EQ(sampler.Configure({"dram__bytes.sum"}, 1000), CUPTI_ERROR_NOT_SUPPORTED)
        << "no trigger by time";
    EXPECT_EQ(sampler.Configure({"dram__bytes.sum"}, 1000,
                                CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_SYSCLK_INTERVAL),
              CUPTI_SUCCESS);
  });
}

}  // namespace
}  // namespace seqpoint::softgpu
