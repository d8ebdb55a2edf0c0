#include "tests/gpu/probes/probe.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <utility>

#include "tests/gpu/probes/range_profiler.h"

namespace seqpoint::probe {
namespace {

std::string Quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + "\"";
}

std::string Number(double value) {
  if (!std::isfinite(value)) return "null";
  char text[40];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

std::mutex activity_mutex;
std::function<void(const CUpti_Activity*)> on_activity;

void CUPTIAPI OnRequest(uint8_t** buffer, size_t* bytes, size_t* max_records) {
  *bytes = 1 << 20;
  *max_records = 0;
  *buffer = static_cast<uint8_t*>(aligned_alloc(8, *bytes));
}

void CUPTIAPI OnComplete(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  const std::lock_guard lock(activity_mutex);
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
    if (on_activity) on_activity(record);
  }
  free(buffer);
}

}  // namespace

Json& Json::AddRaw(const std::string& key, const std::string& raw) {
  if (!text_.empty()) text_ += ", ";
  text_ += Quoted(key) + ": " + raw;
  return *this;
}
Json& Json::Add(const std::string& key, double value) { return AddRaw(key, Number(value)); }
Json& Json::Add(const std::string& key, int64_t value) {
  return AddRaw(key, std::to_string(value));
}
Json& Json::Add(const std::string& key, bool value) {
  return AddRaw(key, value ? "true" : "false");
}
Json& Json::Add(const std::string& key, const std::string& value) {
  return AddRaw(key, Quoted(value));
}
Json& Json::Add(const std::string& key, const Json& value) { return AddRaw(key, value.Text()); }
Json& Json::Add(const std::string& key, const std::vector<Json>& values) {
  std::string raw;
  for (const Json& value : values) raw += (raw.empty() ? "" : ", ") + value.Text();
  return AddRaw(key, "[" + raw + "]");
}
Json& Json::Add(const std::string& key, const std::vector<double>& values) {
  std::string raw;
  for (const double value : values) raw += (raw.empty() ? "" : ", ") + Number(value);
  return AddRaw(key, "[" + raw + "]");
}
Json& Json::Add(const std::string& key, const std::vector<std::string>& values) {
  std::string raw;
  for (const std::string& value : values) raw += (raw.empty() ? "" : ", ") + Quoted(value);
  return AddRaw(key, "[" + raw + "]");
}

void Die(const std::string& message) {
  std::fprintf(stderr, "seqpoint_gpu_probe: %s\n", message.c_str());
  // Not exit: CUPTI's handlers might wait for work that never ends.
  std::_Exit(1);
}

void CheckCuda(cudaError_t result, const char* call) {
  if (result != cudaSuccess) Die(std::string(call) + ": " + cudaGetErrorString(result));
}

void CheckCupti(CUptiResult result, const char* call) {
  if (result != CUPTI_SUCCESS) Die(std::string(call) + " gave " + ResultText(result));
}

std::string ResultText(CUptiResult result) {
  if (result == CUPTI_SUCCESS) return "0";
  const char* name = nullptr;
  cuptiGetResultString(result, &name);
  return std::to_string(result) + " " + (name != nullptr ? name : "?");
}

double Now() {
  uint64_t now = 0;
  CUPTI(cuptiGetTimestamp(&now));
  // Counted from the first call, so that a double holds every nanosecond.
  static const uint64_t begin = now;
  return static_cast<double>(now - begin);
}

double Time(const std::function<void()>& work) {
  const double begin = Now();
  work();
  return Now() - begin;
}

double Quantile(std::vector<double> values, double share) {
  if (values.empty()) return NAN;
  const auto at =
      values.begin() + static_cast<int64_t>(share * static_cast<double>(values.size() - 1) + 0.5);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

Json Spread(const std::vector<double>& values) {
  return Json()
      .Add("median", Quantile(values, 0.5))
      .Add("p90", Quantile(values, 0.9))
      .Add("min", Quantile(values, 0))
      .Add("count", values.size());
}

void CollectActivity(std::function<void(const CUpti_Activity*)> on_record) {
  {
    const std::lock_guard lock(activity_mutex);
    on_activity = std::move(on_record);
  }
  static const CUptiResult registered = cuptiActivityRegisterCallbacks(OnRequest, OnComplete);
  CheckCupti(registered, "cuptiActivityRegisterCallbacks");
}

void FlushActivity() {
  CUPTI(cuptiActivityFlushAll(0));
  CUPTI(cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED));
}

void Environment(Json* out) {
  cudaDeviceProp device;
  CUDA(cudaGetDeviceProperties(&device, 0));
  int driver = 0, runtime = 0;
  CUDA(cudaDriverGetVersion(&driver));
  CUDA(cudaRuntimeGetVersion(&runtime));
  uint32_t cupti = 0;
  CUPTI(cuptiGetVersion(&cupti));
  out->Add("device", device.name)
      .Add("chip", ChipName())
      .Add("multiprocessors", device.multiProcessorCount)
      .Add("compute_capability", device.major * 10 + device.minor)
      .Add("memory_bytes", static_cast<size_t>(device.totalGlobalMem))
      .Add("l2_bytes", device.l2CacheSize)
      .Add("driver", driver)
      .Add("runtime", runtime)
      .Add("cupti", static_cast<int64_t>(cupti));
  std::vector<double> stamps;
  for (int i = 0; i < 1000; ++i) stamps.push_back(Time([] {}));
  out->Add("timestamp_ns", Spread(stamps));
}

}  // namespace seqpoint::probe
