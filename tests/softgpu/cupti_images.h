// The software libcupti's own image formats (configuration, counter data), shared by the range
// profiler and PM sampling. A caller may copy them as bytes.
#ifndef SEQPOINT_TESTS_SOFTGPU_CUPTI_IMAGES_H_
#define SEQPOINT_TESTS_SOFTGPU_CUPTI_IMAGES_H_

#include <cuda.h>
#include <cupti_result.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "tests/softgpu/metrics.h"

namespace seqpoint::softgpu {

inline constexpr uint64_t kConfigMagic = 0x31474643'55504753;        // "SGPUCFG1"
inline constexpr uint64_t kCounterDataMagic = 0x31544144'55504753;   // "SGPUDAT1"
inline constexpr uint64_t kAvailabilityMagic = 0x314c5641'55504753;  // "SGPUAVL1"
inline constexpr size_t kNameBytes = 128;
inline constexpr size_t kMaxMetrics = 4096;  // an image that claims more is none

struct Name {
  char text[kNameBytes];
};

// A counter availability image: of which metrics the device offers which.
struct Availability {
  uint64_t magic = kAvailabilityMagic;
  uint64_t device_level = 1;  // 1: those of the whole device (links), too
  uint64_t unused[6] = {};
};

// Answers cupti*GetCounterAvailability.
inline CUptiResult GiveAvailability(const Availability& availability, size_t* bytes,
                                    uint8_t* image) {
  if (image == nullptr) {
    *bytes = sizeof(availability);
    return CUPTI_SUCCESS;
  }
  if (*bytes < sizeof(availability)) return CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT;
  memcpy(image, &availability, sizeof(availability));
  *bytes = sizeof(availability);
  return CUPTI_SUCCESS;
}

struct ConfigHeader {
  uint64_t magic;
  uint64_t sampled;  // 1: for PM sampling, 0: for the range profiler
  Name chip;
  uint64_t metrics;  // followed by as many ConfigMetric
};

struct ConfigMetric {
  Name name;
  uint64_t group;  // which ConfigAddMetrics call brought it
};

struct CounterDataHeader {
  uint64_t magic;
  uint64_t metrics;
  uint64_t max_ranges;
  uint64_t ranges;
  // Followed by names of metrics, names of ranges, MetricSlot x max_ranges x metrics.
};

// The value of one metric in one range: the mean over the passes that it needs.
struct MetricSlot {
  PassData data;
  uint64_t passes_needed;
  uint64_t passes_seen;
};

inline bool SetName(std::string_view text, Name* name) {
  if (text.size() >= kNameBytes) return false;
  memset(name, 0, sizeof(*name));
  memcpy(name->text, text.data(), text.size());
  return true;
}

// A view of a counter data image.
struct CounterData {
  CounterDataHeader* header = nullptr;
  Name* metrics = nullptr;
  Name* ranges = nullptr;
  MetricSlot* slots = nullptr;

  static size_t Bytes(uint64_t metrics, uint64_t max_ranges) {
    return sizeof(CounterDataHeader) + metrics * sizeof(Name) +
           max_ranges * (sizeof(Name) + metrics * sizeof(MetricSlot));
  }

  // False: the bytes are no (complete) image.
  bool Open(const uint8_t* image, size_t bytes) {
    if (image == nullptr || bytes < sizeof(CounterDataHeader)) return false;
    auto* h = reinterpret_cast<CounterDataHeader*>(const_cast<uint8_t*>(image));
    if (h->magic != kCounterDataMagic || bytes < Bytes(h->metrics, h->max_ranges)) return false;
    header = h;
    metrics = reinterpret_cast<Name*>(header + 1);
    ranges = metrics + header->metrics;
    slots = reinterpret_cast<MetricSlot*>(ranges + header->max_ranges);
    return true;
  }

  // Index of the metric, or the number of metrics when the image was not made for it.
  uint64_t Find(std::string_view metric) const {
    uint64_t i = 0;
    while (i < header->metrics && metrics[i].text != metric) ++i;
    return i;
  }

  MetricSlot& At(uint64_t range, uint64_t metric) {
    return slots[range * header->metrics + metric];
  }
};

// False: no configuration, or one for the other profiler.
inline bool ReadConfig(const uint8_t* image, size_t bytes, bool sampled, std::string* chip,
                       std::vector<MetricGroup>* groups) {
  if (image == nullptr || bytes < sizeof(ConfigHeader)) return false;
  ConfigHeader header;
  memcpy(&header, image, sizeof(header));
  if (header.magic != kConfigMagic || (header.sampled != 0) != sampled ||
      header.metrics > kMaxMetrics ||
      bytes < sizeof(header) + header.metrics * sizeof(ConfigMetric)) {
    return false;
  }
  *chip = header.chip.text;
  for (uint64_t i = 0; i < header.metrics; ++i) {
    ConfigMetric metric;
    memcpy(&metric, image + sizeof(header) + i * sizeof(metric), sizeof(metric));
    if (metric.group > i) return false;
    if (metric.group >= groups->size()) groups->resize(metric.group + 1);
    (*groups)[metric.group].push_back(metric.name.text);
  }
  return true;
}

// An empty image for these metrics, with as many ranges (or samples) as fit the bytes.
inline CUptiResult InitializeCounterData(const std::vector<std::string>& names, uint8_t* data,
                                         size_t bytes) {
  if (data == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  CounterDataHeader header{};
  header.magic = kCounterDataMagic;
  header.metrics = names.size();
  const size_t base = CounterData::Bytes(header.metrics, 0);
  const size_t per_range = CounterData::Bytes(header.metrics, 1) - base;
  if (bytes < base + per_range) {
    return CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT;
  }
  header.max_ranges = (bytes - base) / per_range;
  memset(data, 0, bytes);
  memcpy(data, &header, sizeof(header));
  CounterData image;
  image.Open(data, bytes);
  for (size_t i = 0; i < names.size(); ++i) {
    SetName(names[i], &image.metrics[i]);
  }
  return CUPTI_SUCCESS;
}

// The performance monitors of a device have one owner in all processes (setting
// cupti.monitor_owner_file). False: it is another process. Each call that succeeds asks for one of
// ReleaseMonitors.
bool OwnMonitors(int device);
void ReleaseMonitors(int device);

// The two profilers need the same hardware, and both an initialised profiler API.
bool ProfilerInitialized();
bool RangeProfilerRuns();
bool PmSamplingRuns();
// The context is enabled for the range profiler, or for PC sampling.
bool RangeProfiled(CUcontext context);
bool PcSampled(CUcontext context);

}  // namespace seqpoint::softgpu

#endif  // SEQPOINT_TESTS_SOFTGPU_CUPTI_IMAGES_H_
