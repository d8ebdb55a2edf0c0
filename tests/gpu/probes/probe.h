// Shared by the probes: checked calls, CUPTI's clock, medians, and the one line of JSON that a
// probe prints. A probe is a function that fills a Json; main.cc chooses it by its name. One thread
// unless a probe starts others.
#ifndef SEQPOINT_TESTS_GPU_PROBES_PROBE_H_
#define SEQPOINT_TESTS_GPU_PROBES_PROBE_H_

#include <cuda_runtime.h>
#include <cupti.h>
#include <cupti_profiler_host.h>
#include <cupti_profiler_target.h>
#include <cupti_range_profiler.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace seqpoint::probe {

inline constexpr CUpti_ActivityKind kKernel = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
inline constexpr CUpti_ProfilerType kRange = CUPTI_PROFILER_TYPE_RANGE_PROFILER;

// An object, written in the order of the calls.
class Json {
 public:
  Json& Add(const std::string& key, double value);
  Json& Add(const std::string& key, int64_t value);
  Json& Add(const std::string& key, int value) { return Add(key, static_cast<int64_t>(value)); }
  Json& Add(const std::string& key, size_t value) { return Add(key, static_cast<int64_t>(value)); }
  Json& Add(const std::string& key, bool value);
  Json& Add(const std::string& key, const std::string& value);
  Json& Add(const std::string& key, const char* value) { return Add(key, std::string(value)); }
  Json& Add(const std::string& key, const Json& value);
  Json& Add(const std::string& key, const std::vector<Json>& values);
  Json& Add(const std::string& key, const std::vector<double>& values);
  Json& Add(const std::string& key, const std::vector<std::string>& values);
  std::string Text() const { return "{" + text_ + "}"; }

 private:
  Json& AddRaw(const std::string& key, const std::string& raw);
  std::string text_;
};

// The arguments after the probe's name on the command line.
const std::vector<std::string>& Arguments();

// Ends the process with status 1 and the sentence on standard error.
[[noreturn]] void Die(const std::string& message);

void CheckCuda(cudaError_t result, const char* call);
void CheckCupti(CUptiResult result, const char* call);
#define CUDA(call) ::seqpoint::probe::CheckCuda((call), #call)
#define CUPTI(call) ::seqpoint::probe::CheckCupti((call), #call)

// "0", or number and name.
std::string ResultText(CUptiResult result);

// Nanoseconds of CUPTI's clock, which the software GPU's virtual time follows, too.
double Now();
// Duration of `work`, ns.
double Time(const std::function<void()>& work);

double Quantile(std::vector<double> values, double share);
// {"median", "p90", "min", "count"}, in the unit of `values`.
Json Spread(const std::vector<double>& values);

// Activity buffers that are read at once: `on_record` is called with every record, in the thread
// that flushes or in CUPTI's own. Registering twice replaces the function.
void CollectActivity(std::function<void(const CUpti_Activity*)> on_record);
// Everything that is finished, also of buffers that are not full.
void FlushActivity();

// `launches` empty kernels, captured from the stream and instantiated.
cudaGraphExec_t MakeGraph(cudaStream_t stream, int launches);

// The probes, by group of questions.
void Environment(Json* out);
void LaunchCost(Json* out);     // 5
void SwitchCost(Json* out);     // 1
void Nesting(Json* out);        // 2
void CopyClock(Json* out);      // 3
void CallTime(Json* out);       // 18
void BeginOwnRecords();         // 19, before CUDA begins
void OwnRecords(Json* out);     // 19
void GraphRecords(Json* out);   // 15
void LateGraphs(Json* out);     // 15, 20
void FirstWindow(Json* out);    // 20
void Captures(Json* out);       // 21
void RangeCost(Json* out);      // 6
void RangeActivity(Json* out);  // 7
void Permission(Json* out);     // 22
void HoldCounters(Json* out);   // 22
void Collect(Json* out);        // 23
void DecodeThread(Json* out);   // 9
void GraphRange(Json* out);     // 10
void Sampling(Json* out);       // 14
void Known(Json* out);          // kernels whose work is known, alone: for ncu
void KnownMeasured(Json* out);  // the same, measured by an auto range
void Opcodes(Json* out);        // 16
void KernelRanges(Json* out);   // 17
void KnownTraining(Json* out);  // a training of kernels whose work is known, to be profiled
void SoakJob(Json* out);        // a training that is told what to do line by line

}  // namespace seqpoint::probe

#endif  // SEQPOINT_TESTS_GPU_PROBES_PROBE_H_
