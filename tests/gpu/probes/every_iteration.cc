// libseqpoint_gpu_ranges.so: counters of every iteration, for a training script that says where its
// iterations begin and end. The oracle for what the profiler projects from a few iterations; it
// disturbs the training far more. Used through ctypes; one thread, with the context current.
//
//   gpu_ranges_begin("dram__bytes_read.sum,sm__inst_executed.sum")
//   for each iteration: gpu_ranges_push() ... gpu_ranges_pop()
//   gpu_ranges_end("counters.csv")   a header of metric names, a row per iteration
//
// Each returns 0, or CUPTI's result; an unknown metric ends the process with a sentence.
#include <cstdio>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "tests/gpu/probes/probe.h"
#include "tests/gpu/probes/range_profiler.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace seqpoint::probe {
namespace {

// Ranges that one counter data image holds; CUPTI takes 2,000 at most.
constexpr size_t kChunk = 500;

struct Session {
  std::vector<std::string> metrics;
  std::unique_ptr<MetricConfig> config;
  std::unique_ptr<RangeProfiler> profiler;
  size_t in_chunk = 0;
  std::vector<std::vector<double>> rows;

  CUptiResult Open() {
    in_chunk = 0;
    const CUptiResult result =
        profiler->Configure(config.get(), CUPTI_UserRange, CUPTI_UserReplay, kChunk);
    return result != CUPTI_SUCCESS ? result : profiler->Start();
  }
  CUptiResult Close() {
    CUptiResult result = profiler->Stop();
    if (result == CUPTI_SUCCESS) result = profiler->Decode();
    if (result != CUPTI_SUCCESS) return result;
    for (size_t i = 0; i < profiler->Ranges(); ++i) rows.push_back(profiler->Values(i));
    return profiler->Ranges() == in_chunk ? CUPTI_SUCCESS : CUPTI_ERROR_UNKNOWN;
  }
};

std::unique_ptr<Session> session;

}  // namespace

EXPORT int gpu_ranges_begin(const char* metrics) {
  session = std::make_unique<Session>();
  std::stringstream list(metrics);
  for (std::string metric; std::getline(list, metric, ',');) session->metrics.push_back(metric);
  session->config =
      std::make_unique<MetricConfig>(session->metrics, CUPTI_PROFILER_TYPE_RANGE_PROFILER);
  if (session->config->passes() != 1) {
    Die("the metrics need " + std::to_string(session->config->passes()) +
        " passes; an iteration has one");
  }
  session->profiler = std::make_unique<RangeProfiler>();
  return session->Open();
}

EXPORT int gpu_ranges_push() {
  if (session->in_chunk == kChunk) {
    CUptiResult result = session->Close();
    if (result == CUPTI_SUCCESS) result = session->Open();
    if (result != CUPTI_SUCCESS) return result;
  }
  return session->profiler->Push(std::to_string(session->in_chunk++).c_str());
}

EXPORT int gpu_ranges_pop() { return session->profiler->Pop(); }

EXPORT int gpu_ranges_end(const char* path) {
  const CUptiResult result = session->Close();
  if (result != CUPTI_SUCCESS) return result;
  FILE* file = std::fopen(path, "w");
  if (file == nullptr) return CUPTI_ERROR_UNKNOWN;
  for (size_t i = 0; i < session->metrics.size(); ++i) {
    std::fprintf(file, "%s%s", i > 0 ? "," : "", session->metrics[i].c_str());
  }
  std::fprintf(file, "\n");
  for (const std::vector<double>& row : session->rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      std::fprintf(file, "%s%.9g", i > 0 ? "," : "", row[i]);
    }
    std::fprintf(file, "\n");
  }
  std::fclose(file);
  session.reset();
  return CUPTI_SUCCESS;
}

}  // namespace seqpoint::probe
