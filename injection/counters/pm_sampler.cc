#include "injection/counters/pm_sampler.h"

#include <string.h>

#include <algorithm>
#include <utility>

#include "injection/base/system.h"
#include "injection/counters/cupti_params.h"

namespace seqpoint::inject {
namespace {

constexpr size_t kHardwareBufferBytes = 64 << 20;
constexpr uint32_t kMaxSamplesOfImage = 1024;
// About a thousand samples an iteration: each edge is then wrong by a thousandth at most.
constexpr uint64_t kSamplesOfIteration = 1000;
constexpr uint64_t kShortestIntervalNs = 20'000;
constexpr uint64_t kLongestIntervalNs = 1'000'000;
constexpr uint64_t kUsualIntervalNs = 100'000;  // of an iteration of unknown length
// Records come with the next flush; without one for so long they never do.
constexpr uint64_t kRecordPatienceNs = 5'000'000'000;
// A twentieth of the samples lost makes the measurement worthless. Fewer are lost anywhere, and
// what is there stands for them; but a full buffer loses the iteration's end, which is like nothing
// else in it.
constexpr uint64_t kMissingShare = 20;
constexpr uint64_t kMissingEndShare = 200;
// Decoding ends even if CUPTI never says so.
constexpr int kMaxDecodes = 4096;

}  // namespace

// Where an iteration begins and ends.

void PmSampler::OnBoundary(uint64_t now_ns) {
  // The candidate before this one had no clock event: its call must do.
  for (Edge* edge : {&begin_, &end_}) {
    if (!edge->expected.load(std::memory_order_relaxed)) continue;
    edge->expected.store(false, std::memory_order_relaxed);
    if (edge->correlation_id.load(std::memory_order_relaxed) != 0) continue;
    edge->ns.store(boundary_ns_, std::memory_order_release);
  }
  boundary_ns_ = now_ns;
  boundary_clock_ = 0;
}

void PmSampler::OnClock(uint32_t correlation_id) {
  if (boundary_clock_ != 0) return;
  boundary_clock_ = correlation_id;
  for (Edge* edge : {&begin_, &end_}) {
    if (!edge->expected.load(std::memory_order_relaxed) ||
        edge->correlation_id.load(std::memory_order_relaxed) != 0) {
      continue;
    }
    edge->correlation_id.store(correlation_id, std::memory_order_release);
  }
}

void PmSampler::Expect(Edge* edge, bool recorded) {
  edge->ns.store(recorded ? 0 : boundary_ns_, std::memory_order_relaxed);
  edge->correlation_id.store(recorded ? boundary_clock_ : 0, std::memory_order_release);
  edge->expected.store(recorded, std::memory_order_release);
}

void PmSampler::ExpectBegin(bool recorded) {
  end_.expected.store(false, std::memory_order_relaxed);
  end_.correlation_id.store(0, std::memory_order_relaxed);
  end_.ns.store(0, std::memory_order_relaxed);
  end_expected_ = false;
  Expect(&begin_, recorded);
}

void PmSampler::ExpectEnd(bool recorded) {
  end_expected_ = true;
  Expect(&end_, recorded);
}

// Application's thread.

uint32_t PmSampler::Probe(CUcontext, uint32_t device, uint8_t* image, size_t* bytes) {
  SEQPOINT_PARAMS(PmSampling_GetCounterAvailability, available);
  available.deviceIndex = device;
  available.counterAvailabilityImageSize = *bytes;
  available.pCounterAvailabilityImage = image;
  SEQPOINT_CALL_OR_RETURN(PmSamplingGetCounterAvailability, &available);
  *bytes = available.counterAvailabilityImageSize;
  return CUPTI_SUCCESS;
}

uint32_t PmSampler::Open(CUcontext context, CounterConfig* config, uint64_t usual_ns) {
  uint32_t device = 0;
  SEQPOINT_CALL_OR_RETURN(GetDeviceId, context, &device);
  if (object_ == nullptr) {
    SEQPOINT_PARAMS(PmSampling_Enable, enable);
    enable.deviceIndex = device;
    SEQPOINT_CALL_OR_RETURN(PmSamplingEnable, &enable);
    object_ = enable.pPmSamplingObject;
    context_ = context;
  }
  expired_.store(false, std::memory_order_relaxed);
  const uint32_t result = StartFor(config, usual_ns);
  if (result != CUPTI_SUCCESS) Disable();
  return result;
}

uint32_t PmSampler::StartFor(CounterConfig* config, uint64_t usual_ns) {
  interval_ns_ = usual_ns == 0 ? kUsualIntervalNs
                               : std::clamp(usual_ns / kSamplesOfIteration, kShortestIntervalNs,
                                            kLongestIntervalNs);
  SEQPOINT_OBJECT_PARAMS(PmSampling, SetConfig, set);
  set.configSize = config->image_bytes;
  set.pConfig = config->image;
  set.hardwareBufferSize = kHardwareBufferBytes;
  set.samplingInterval = interval_ns_;
  set.triggerMode = CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_TIME_INTERVAL;
  set.hwBufferAppendMode = CUPTI_PM_SAMPLING_HARDWARE_BUFFER_APPEND_MODE_KEEP_OLDEST;
  uint32_t result = cupti_->PmSamplingSetConfig(&set);
  if (result == CUPTI_ERROR_NOT_SUPPORTED) {
    // Turing and GA100 count clock cycles, of somewhat under a nanosecond.
    set.triggerMode = CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_SYSCLK_INTERVAL;
    result = cupti_->PmSamplingSetConfig(&set);
  }
  if (result != CUPTI_SUCCESS) return Fail("cuptiPmSamplingSetConfig", result);
  SEQPOINT_OBJECT_PARAMS(PmSampling, Start, start);
  SEQPOINT_CALL_OR_RETURN(PmSamplingStart, &start);
  started_ = true;
  cupti_->GetTimestamp(&started_ns_);
  return CUPTI_SUCCESS;
}

uint32_t PmSampler::Close() {
  // Ended by something else than a boundary: what is left has no time of its own.
  if (!end_expected_) {
    uint64_t now_ns = 0;
    cupti_->GetTimestamp(&now_ns);
    end_.ns.store(now_ns, std::memory_order_release);
  }
  closed_monotonic_ns_ = MonotonicNs();
  return CUPTI_SUCCESS;
}

void PmSampler::Stop() {
  if (!started_) return;
  started_ = false;
  SEQPOINT_OBJECT_PARAMS(PmSampling, Stop, stop);
  const uint32_t result = cupti_->PmSamplingStop(&stop);
  if (result != CUPTI_SUCCESS) Fail("cuptiPmSamplingStop", result);
}

void PmSampler::Disable() {
  if (object_ == nullptr) return;
  Stop();
  SEQPOINT_OBJECT_PARAMS(PmSampling, Disable, disable);
  cupti_->PmSamplingDisable(&disable);
  Forget();
}

void PmSampler::Forget() {
  started_ = false;
  object_ = nullptr;
  context_ = nullptr;
}

// Helper thread.

bool PmSampler::Decode(CounterConfig* config, double* values, uint32_t* status) {
  uint64_t begin_ns = begin_.ns.load(std::memory_order_acquire);
  const uint64_t end_ns = end_.ns.load(std::memory_order_acquire);
  if (begin_ns == 0 || end_ns == 0) {
    if (!expired_.load(std::memory_order_relaxed) &&
        MonotonicNs() - closed_monotonic_ns_ < kRecordPatienceNs) {
      return false;
    }
    Disable();
    *status = abi::kCountersAborted;
    return true;
  }
  Stop();
  seen_ = {};
  if (end_ns > begin_ns) seen_.duration_ns = end_ns - begin_ns;
  // The program was held in Open: before, this thread had nothing but the clock event on the GPU.
  // That part and the first sample, which is not used, are not scaled up, as the GPU was idle in
  // most of them; the event has their length.
  if (begin_ns < started_ns_ + interval_ns_) begin_ns = started_ns_ + interval_ns_;
  *status = end_ns > begin_ns ? DecodeSamples(config, begin_ns, end_ns, values)
                              : static_cast<uint32_t>(abi::kCountersAborted);
  Disable();
  return true;
}

uint32_t PmSampler::NewImage(CounterConfig* config) {
  SEQPOINT_OBJECT_PARAMS(PmSampling, GetCounterDataSize, size);
  size.pMetricNames = config->names;
  size.numMetrics = config->count;
  for (size.maxSamples = kMaxSamplesOfImage; size.maxSamples > 0; size.maxSamples /= 2) {
    SEQPOINT_CALL_OR_RETURN(PmSamplingGetCounterDataSize, &size);
    if (size.counterDataSize <= kCounterImageBytes) break;
  }
  if (size.maxSamples == 0) {
    features_->Report(abi::Feature::kCounters, abi::FeatureState::kFailed, 0,
                      "configuration %u needs a counter data image of more than %zu bytes for one "
                      "sample; split its metrics",
                      config->wanted.config_id, kCounterImageBytes);
    return CUPTI_ERROR_OUT_OF_MEMORY;
  }
  config->counter_bytes = size.counterDataSize;
  SEQPOINT_OBJECT_PARAMS(PmSampling, CounterDataImage_Initialize, image);
  image.counterDataSize = config->counter_bytes;
  image.pCounterData = counter_image_;
  SEQPOINT_CALL_OR_RETURN(PmSamplingCounterDataImageInitialize, &image);
  return CUPTI_SUCCESS;
}

uint32_t PmSampler::DecodeSamples(CounterConfig* config, uint64_t begin_ns, uint64_t end_ns,
                                  double* values) {
  uint64_t covered_ns = 0;
  bool overflow = false, first = true;
  for (int round = 0; round < kMaxDecodes; ++round) {
    uint32_t result = NewImage(config);
    if (result != CUPTI_SUCCESS) return result;
    SEQPOINT_OBJECT_PARAMS(PmSampling, DecodeData, decode);
    decode.pCounterDataImage = counter_image_;
    decode.counterDataImageSize = config->counter_bytes;
    result = cupti_->PmSamplingDecodeData(&decode);
    overflow |= decode.overflow != 0 || result == CUPTI_ERROR_OUT_OF_MEMORY;
    if (result != CUPTI_SUCCESS && result != CUPTI_ERROR_OUT_OF_MEMORY) {
      return Fail("cuptiPmSamplingDecodeData", result);
    }
    SEQPOINT_PARAMS(PmSampling_GetCounterDataInfo, info);
    info.pCounterDataImage = counter_image_;
    info.counterDataImageSize = config->counter_bytes;
    SEQPOINT_CALL_OR_RETURN(PmSamplingGetCounterDataInfo, &info);
    for (size_t i = 0; i < info.numCompletedSamples; ++i) {
      SEQPOINT_OBJECT_PARAMS(PmSampling, CounterData_GetSampleInfo, sample);
      sample.pCounterDataImage = counter_image_;
      sample.counterDataImageSize = config->counter_bytes;
      sample.sampleIndex = i;
      SEQPOINT_CALL_OR_RETURN(PmSamplingCounterDataGetSampleInfo, &sample);
      // "The first sample may occasionally contain outlier values. Discarding the first sample is
      // recommended" (CUPTI user guide 2.12.1).
      if (std::exchange(first, false)) continue;
      const uint64_t from = std::max<uint64_t>(sample.startTimestamp, begin_ns);
      const uint64_t to = std::min<uint64_t>(sample.endTimestamp, end_ns);
      if (from >= to) continue;  // outside, or without a time
      double of_sample[kMaxMetrics] = {};
      result = Evaluate(*config, i, of_sample);
      if (result != CUPTI_SUCCESS) return result;
      const uint64_t width_ns = sample.endTimestamp - sample.startTimestamp;
      const double share = static_cast<double>(to - from) / static_cast<double>(width_ns);
      for (uint32_t metric = 0; metric < config->count; ++metric) {
        values[metric] += share * of_sample[metric];
      }
      covered_ns += to - from;
      if (to - from < width_ns) seen_.edge_ns += width_ns;
    }
    // A decode may stop without a reason while there are many more (pytorch/kineto#1532).
    if (decode.decodeStopReason == CUPTI_PM_SAMPLING_DECODE_STOP_REASON_END_OF_RECORDS) break;
    if (info.numCompletedSamples == 0) break;
  }
  const uint64_t whole_ns = end_ns - begin_ns;
  const uint64_t missing_ns = whole_ns - covered_ns;
  if (covered_ns > whole_ns || missing_ns > whole_ns / kMissingShare ||
      (overflow && missing_ns > whole_ns / kMissingEndShare)) {
    features_->Report(abi::Feature::kCounters, abi::FeatureState::kFailed, 0,
                      overflow ? "PM sampling's buffer was full before a measured iteration ended; "
                                 "its counters are missing"
                               : "PM sampling lost samples of a measured iteration; its counters "
                                 "are missing");
    return abi::kCountersRangeDropped;
  }
  const double scale = static_cast<double>(whole_ns) / static_cast<double>(covered_ns);
  for (uint32_t metric = 0; metric < config->count; ++metric) values[metric] *= scale;
  seen_.covered_ns = covered_ns;
  return CheckNumbers(*config, values);
}

}  // namespace seqpoint::inject
