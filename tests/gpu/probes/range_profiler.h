// CUPTI's range profiler for the probes: one context, one configuration at a time. Every function
// returns CUPTI's result, which is often the answer that is looked for. One thread at a time.
#ifndef SEQPOINT_TESTS_GPU_PROBES_RANGE_PROFILER_H_
#define SEQPOINT_TESTS_GPU_PROBES_RANGE_PROFILER_H_

#include <cupti_profiler_host.h>
#include <cupti_profiler_target.h>
#include <cupti_range_profiler.h>
#include <cupti_target.h>

#include <string>
#include <vector>

namespace seqpoint::probe {

template <typename Params>
Params Sized(size_t bytes) {
  Params params{};
  params.structSize = bytes;
  return params;
}
#define PARAMS(type) ::seqpoint::probe::Sized<type>(type##_STRUCT_SIZE)

// The device's chip as the profiler names it, "GH100".
std::string ChipName();

// Which counters this process may use: the first thing that privileges are checked by. Asked once,
// before a profiler is enabled, as CUPTI refuses it then.
CUptiResult CounterAvailability(std::vector<uint8_t>* image);

// A configuration for metrics: made by the host library, without the GPU.
class MetricConfig {
 public:
  // Dies where a metric is unknown. `available`: of another kind of profiler; empty: of ranges.
  MetricConfig(std::vector<std::string> metrics, CUpti_ProfilerType type,
               std::vector<uint8_t> available = {});
  // A configuration of ranges that may be refused: `result` and `call` say at which call, and the
  // object is of no use then. Without an image every counter of the chip counts as available
  // (user guide 13.0, 2.8.2: what metrics of the whole device need).
  MetricConfig(std::vector<std::string> metrics, bool with_image, CUptiResult* result,
               std::string* call);
  ~MetricConfig();
  MetricConfig(const MetricConfig&) = delete;
  MetricConfig& operator=(const MetricConfig&) = delete;

  const char** names() { return names_.data(); }
  size_t count() const { return names_.size(); }
  std::vector<uint8_t>& image() { return image_; }
  size_t passes() const { return passes_; }
  // Values of the range or sample with this index; NaN where a pass is missing.
  std::vector<double> Values(const std::vector<uint8_t>& counter_data, size_t index) const;

 private:
  // The result of the first call that failed, and its name.
  CUptiResult Build(CUpti_ProfilerType type, const uint8_t* available, std::string* call);

  std::vector<std::string> metrics_;
  mutable std::vector<const char*> names_;
  CUpti_Profiler_Host_Object* host_ = nullptr;
  std::vector<uint8_t> image_;
  size_t passes_ = 0;
};

class RangeProfiler {
 public:
  // Enables it for the current context, and dies where that is refused.
  RangeProfiler();
  // Says what enabling gave instead.
  explicit RangeProfiler(CUptiResult* result) { *result = Enable(); }
  ~RangeProfiler();
  RangeProfiler(const RangeProfiler&) = delete;
  RangeProfiler& operator=(const RangeProfiler&) = delete;

  // The calls of the constructor and the destructor, to be measured.
  CUptiResult Enable();
  CUptiResult Disable();

  // `config` must outlive the profiler or the next Configure.
  CUptiResult Configure(MetricConfig* config, CUpti_ProfilerRange range,
                        CUpti_ProfilerReplayMode replay, size_t max_ranges);
  CUptiResult Start();
  CUptiResult Push(const char* name);
  CUptiResult Pop();
  // `pass`: the pass index that CUPTI names; `complete`: all passes were submitted. Each may be
  // null.
  CUptiResult Stop(size_t* pass = nullptr, bool* complete = nullptr);
  CUptiResult Decode(size_t* dropped = nullptr);
  size_t Ranges() const;
  std::vector<double> Values(size_t range) const { return config_->Values(data_, range); }

 private:
  CUpti_RangeProfiler_Object* object_ = nullptr;
  MetricConfig* config_ = nullptr;
  std::vector<uint8_t> data_;
};

}  // namespace seqpoint::probe

#endif  // SEQPOINT_TESTS_GPU_PROBES_RANGE_PROFILER_H_
