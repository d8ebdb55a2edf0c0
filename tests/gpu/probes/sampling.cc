// PM sampling: its clock beside that of activity records, the shortest interval, its costs.
#include <cupti_pmsampling.h>
#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "tests/gpu/probes/kernels.h"
#include "tests/gpu/probes/probe.h"
#include "tests/gpu/probes/range_profiler.h"

namespace seqpoint::probe {
namespace {

// The functions are looked up: older libraries lack them.
struct Functions {
#define PM(name) decltype(&cuptiPmSampling##name) name = nullptr
  PM(GetCounterAvailability);
  PM(Enable);
  PM(Disable);
  PM(SetConfig);
  PM(Start);
  PM(Stop);
  PM(DecodeData);
  PM(GetCounterDataSize);
  PM(CounterDataImageInitialize);
  PM(GetCounterDataInfo);
  PM(CounterDataGetSampleInfo);
#undef PM

  Functions() {
#define PM(name)                                                                         \
  name = reinterpret_cast<decltype(name)>(dlsym(RTLD_DEFAULT, "cuptiPmSampling" #name)); \
  if (name == nullptr) Die("this libcupti has no PM sampling: no cuptiPmSampling" #name)
    PM(GetCounterAvailability);
    PM(Enable);
    PM(Disable);
    PM(SetConfig);
    PM(Start);
    PM(Stop);
    PM(DecodeData);
    PM(GetCounterDataSize);
    PM(CounterDataImageInitialize);
    PM(GetCounterDataInfo);
    PM(CounterDataGetSampleInfo);
#undef PM
  }
};

struct Sample {
  double start, end, instructions;
};

}  // namespace

void Sampling(Json* out) {
  CUDA(cudaFree(nullptr));
  const Functions pm;
  std::vector<uint8_t> unused;
  CheckCupti(CounterAvailability(&unused), "cuptiProfilerGetCounterAvailability");
  auto available = PARAMS(CUpti_PmSampling_GetCounterAvailability_Params);
  CheckCupti(pm.GetCounterAvailability(&available), "cuptiPmSamplingGetCounterAvailability");
  std::vector<uint8_t> image(available.counterAvailabilityImageSize);
  available.pCounterAvailabilityImage = image.data();
  CheckCupti(pm.GetCounterAvailability(&available), "cuptiPmSamplingGetCounterAvailability");
  MetricConfig config({"sm__inst_executed.sum", "sm__cycles_active.sum"},
                      CUPTI_PROFILER_TYPE_PM_SAMPLING, image);
  out->Add("passes", config.passes());
  float* memory = nullptr;
  CUDA(cudaMalloc(&memory, 64 << 20));
  cudaStream_t stream;
  CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));

  // Bursts of arithmetic with silence between them, seen by both clocks.
  struct Span {
    double start, end;
  };
  std::vector<Span> bursts;
  CollectActivity([&](const CUpti_Activity* record) {
    if (record->kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) return;
    const auto* kernel = reinterpret_cast<const CUpti_ActivityKernel10*>(record);
    bursts.push_back({static_cast<double>(kernel->start), static_cast<double>(kernel->end)});
  });
  const auto configure = [&](CUpti_PmSampling_Object* object, uint64_t interval_ns) {
    auto set = PARAMS(CUpti_PmSampling_SetConfig_Params);
    set.pPmSamplingObject = object;
    set.configSize = config.image().size();
    set.pConfig = config.image().data();
    set.hardwareBufferSize = 256 << 20;
    set.samplingInterval = interval_ns;
    set.triggerMode = CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_TIME_INTERVAL;
    set.hwBufferAppendMode = CUPTI_PM_SAMPLING_HARDWARE_BUFFER_APPEND_MODE_KEEP_OLDEST;
    return pm.SetConfig(&set);
  };

  // A kernel that only the clock of the GPU makes longer or shorter: does sampling change the
  // clock, and from when to when (pytorch#188844: "locks the GPU clocks while active")?
  std::vector<Json> states;
  const auto look_at_the_clock = [&](const char* state) {
    std::vector<double> kernels;
    for (int i = 0; i < 30; ++i) {
      kernels.push_back(Time([&] {
        LaunchMultiplyAdd(stream, memory, 132 * 4, 50'000);
        CUDA(cudaStreamSynchronize(stream));
      }));
    }
    states.push_back(Json().Add("state", state).Add("kernel_ns", Spread(kernels)));
  };
  look_at_the_clock("not enabled");
  {
    auto enable = PARAMS(CUpti_PmSampling_Enable_Params);
    CheckCupti(pm.Enable(&enable), "cuptiPmSamplingEnable");
    look_at_the_clock("enabled");
    auto start = PARAMS(CUpti_PmSampling_Start_Params);
    start.pPmSamplingObject = enable.pPmSamplingObject;
    CUptiResult started = configure(enable.pPmSamplingObject, 50'000);
    if (started == CUPTI_SUCCESS) started = pm.Start(&start);
    if (started == CUPTI_SUCCESS) {
      look_at_the_clock("started");
      auto stop = PARAMS(CUpti_PmSampling_Stop_Params);
      stop.pPmSamplingObject = enable.pPmSamplingObject;
      CheckCupti(pm.Stop(&stop), "cuptiPmSamplingStop");
      look_at_the_clock("stopped");
    }
    auto disable = PARAMS(CUpti_PmSampling_Disable_Params);
    disable.pPmSamplingObject = enable.pPmSamplingObject;
    CheckCupti(pm.Disable(&disable), "cuptiPmSamplingDisable");
    look_at_the_clock("disabled again");
  }
  out->Add("states", states);

  std::vector<Json> rows;
  for (const uint64_t interval_ns : {50'000, 20'000, 10'000, 5'000}) {
    constexpr uint32_t kMaxSamples = 60'000;
    Json row;
    row.Add("interval_ns", static_cast<int64_t>(interval_ns));
    auto enable = PARAMS(CUpti_PmSampling_Enable_Params);
    CheckCupti(pm.Enable(&enable), "cuptiPmSamplingEnable");
    CUpti_PmSampling_Object* object = enable.pPmSamplingObject;
    const CUptiResult configured = configure(object, interval_ns);
    row.Add("set_config", ResultText(configured));
    if (configured == CUPTI_SUCCESS) {
      auto size = PARAMS(CUpti_PmSampling_GetCounterDataSize_Params);
      size.pPmSamplingObject = object;
      size.pMetricNames = config.names();
      size.numMetrics = config.count();
      size.maxSamples = kMaxSamples;
      CheckCupti(pm.GetCounterDataSize(&size), "cuptiPmSamplingGetCounterDataSize");
      std::vector<uint8_t> data(size.counterDataSize);
      auto init = PARAMS(CUpti_PmSampling_CounterDataImage_Initialize_Params);
      init.pPmSamplingObject = object;
      init.counterDataSize = data.size();
      init.pCounterData = data.data();
      CheckCupti(pm.CounterDataImageInitialize(&init), "cuptiPmSamplingCounterDataImageInitialize");

      bursts.clear();
      // Records and samples at once may be refused: then the clocks cannot be compared, and it says
      // so.
      const CUptiResult records = cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
      auto start = PARAMS(CUpti_PmSampling_Start_Params);
      start.pPmSamplingObject = object;
      CUptiResult started = CUPTI_SUCCESS;
      row.Add("start_ns", Time([&] { started = pm.Start(&start); }))
          .Add("start", ResultText(started))
          .Add("records_beside", ResultText(records));
      if (started != CUPTI_SUCCESS) {
        if (records == CUPTI_SUCCESS) cuptiActivityDisable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
        auto disable = PARAMS(CUpti_PmSampling_Disable_Params);
        disable.pPmSamplingObject = object;
        pm.Disable(&disable);
        rows.push_back(row);
        continue;
      }
      const double begin = Now();
      for (int i = 0; i < 20; ++i) {
        LaunchMultiplyAdd(stream, memory, 132 * 32, 20'000);
        CUDA(cudaStreamSynchronize(stream));
        const double until = Now() + 500'000;
        while (Now() < until) cudaStreamQuery(stream);
      }
      const double trained_ns = Now() - begin;
      auto stop = PARAMS(CUpti_PmSampling_Stop_Params);
      stop.pPmSamplingObject = object;
      row.Add("stop_ns", Time([&] { CheckCupti(pm.Stop(&stop), "cuptiPmSamplingStop"); }));
      FlushActivity();
      if (records == CUPTI_SUCCESS) {
        CUPTI(cuptiActivityDisable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL));
      }
      auto decode = PARAMS(CUpti_PmSampling_DecodeData_Params);
      decode.pPmSamplingObject = object;
      decode.pCounterDataImage = data.data();
      decode.counterDataImageSize = data.size();
      const double decode_ns =
          Time([&] { CheckCupti(pm.DecodeData(&decode), "cuptiPmSamplingDecodeData"); });
      auto info = PARAMS(CUpti_PmSampling_GetCounterDataInfo_Params);
      info.pCounterDataImage = data.data();
      info.counterDataImageSize = data.size();
      CheckCupti(pm.GetCounterDataInfo(&info), "cuptiPmSamplingGetCounterDataInfo");
      std::vector<Sample> samples;
      std::vector<double> widths;
      for (size_t i = 0; i < info.numCompletedSamples; ++i) {
        auto sample = PARAMS(CUpti_PmSampling_CounterData_GetSampleInfo_Params);
        sample.pPmSamplingObject = object;
        sample.pCounterDataImage = data.data();
        sample.counterDataImageSize = data.size();
        sample.sampleIndex = i;
        CheckCupti(pm.CounterDataGetSampleInfo(&sample), "cuptiPmSamplingCounterDataGetSampleInfo");
        samples.push_back({static_cast<double>(sample.startTimestamp),
                           static_cast<double>(sample.endTimestamp), config.Values(data, i)[0]});
        widths.push_back(samples.back().end - samples.back().start);
      }
      row.Add("samples", samples.size())
          .Add("decode_ns", decode_ns)
          .Add("decode_ns_per_sample", decode_ns / static_cast<double>(samples.size()))
          .Add("overflow", decode.overflow != 0)
          .Add("width_ns", Spread(widths))
          .Add("first_sample_width_ns", widths.empty() ? NAN : widths.front())
          .Add("first_sample_instructions", samples.empty() ? NAN : samples.front().instructions)
          .Add("run_ns", trained_ns);
      // Begin and end of each burst by its samples, against those of its record.
      std::vector<double> begins, ends;
      double inside = 0, all = 0;
      for (const Sample& sample : samples) all += sample.instructions;
      for (const Span& burst : bursts) {
        double first = NAN, last = NAN;
        for (const Sample& sample : samples) {
          const double slack = 3.0 * static_cast<double>(interval_ns) + 100'000;
          if (sample.end < burst.start - slack || sample.start > burst.end + slack) continue;
          inside += sample.instructions;
          if (sample.instructions <= 0) continue;
          if (std::isnan(first)) first = sample.start;
          last = sample.end;
        }
        if (std::isnan(first)) continue;
        begins.push_back(first - burst.start);
        ends.push_back(last - burst.end);
      }
      row.Add("bursts_recorded", bursts.size())
          .Add("first_sample_minus_record_start_ns", Spread(begins))
          .Add("last_sample_minus_record_end_ns", Spread(ends))
          .Add("share_of_instructions_near_bursts", all > 0 ? inside / all : NAN);
    }
    auto disable = PARAMS(CUpti_PmSampling_Disable_Params);
    disable.pPmSamplingObject = object;
    CheckCupti(pm.Disable(&disable), "cuptiPmSamplingDisable");
    rows.push_back(row);
  }
  out->Add("intervals", rows);
}

}  // namespace seqpoint::probe
