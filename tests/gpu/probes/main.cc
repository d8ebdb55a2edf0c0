// seqpoint_gpu_probe NAME [ARGUMENTS]: asks CUDA and CUPTI one group of questions and prints the
// answer as one line of JSON. Status 0: answered, 1: a call failed (the sentence says which), 2:
// usage, 3: no GPU.
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "tests/gpu/probes/probe.h"

namespace seqpoint::probe {
namespace {

struct Probe {
  const char* name;
  void (*run)(Json*);
  const char* question;
  void (*before_cuda)() = nullptr;
};

constexpr Probe kProbes[] = {
    {"environment", Environment, "versions, and what the GPU is"},
    {"switch", SwitchCost, "cost of switching activity kinds at a boundary (question 1)"},
    {"nesting", Nesting, "driver callbacks within runtime callbacks (2)"},
    {"copy_clock", CopyClock, "copy records alone as the clock of iterations (3)"},
    {"launch", LaunchCost, "cost of a watched launch (5)"},
    {"range", RangeCost, "cost and reach of a counter range (6)"},
    {"range_activity", RangeActivity, "counters beside kernel records (7)"},
    {"call_time", CallTime, "callbacks within the time of a call's record (18)"},
    {"own_records", OwnRecords, "records of a program that traces itself (19)", BeginOwnRecords},
    {"permission", Permission, "what a process is answered that asks for counters (22)"},
    {"hold_counters", HoldCounters, "measures a range and rests, for others to ask meanwhile (22)"},
    {"collect", Collect, "METRIC ...: is a configuration built, started and decoded (23)"},
    {"decode_thread", DecodeThread, "decoding on another thread (9)"},
    {"graph_range", GraphRange, "graph launches in a range (10)"},
    {"sampling", Sampling, "PM sampling: clock, interval, cost (14)"},
    {"graph_records", GraphRecords, "records of kernels inside graphs (15)"},
    {"late_graphs", LateGraphs,
     "SETTING: graphs that are instantiated between windows, and ids (15, 20)"},
    {"first_window", FirstWindow, "[MODULES]: windows in a process with many modules (20)"},
    {"captures", Captures, "CALL: does it end another thread's stream capture (21)"},
    {"known", Known, "kernels whose work is known, for another profiler to measure"},
    {"known_measured", KnownMeasured, "the same, each measured by CUPTI"},
    {"opcodes", Opcodes, "METRIC ...: counts of known arithmetic by one configuration (16)"},
    {"kernel_ranges", KernelRanges, "is each launch one automatic range, in order; cost (17)"},
    {"known_training", KnownTraining, "a training of known kernels, to be profiled"},
    {"soak_job", SoakJob, "[graphs|marks]: a training that is told what to do line by line"},
};

std::vector<std::string> arguments;

int Main(int argc, char** argv) {
  const Probe* chosen = nullptr;
  for (const Probe& probe : kProbes) {
    if (argc >= 2 && strcmp(argv[1], probe.name) == 0) chosen = &probe;
  }
  if (chosen == nullptr) {
    std::fprintf(stderr, "seqpoint_gpu_probe NAME [ARGUMENTS]\n");
    for (const Probe& probe : kProbes) {
      std::fprintf(stderr, "  %-16s %s\n", probe.name, probe.question);
    }
    return 2;
  }
  arguments.assign(argv + 2, argv + argc);
  if (chosen->before_cuda != nullptr) chosen->before_cuda();
  int devices = 0;
  const cudaError_t result = cudaGetDeviceCount(&devices);
  if (result != cudaSuccess || devices == 0) {
    std::fprintf(stderr, "seqpoint_gpu_probe: no GPU: cudaGetDeviceCount gave %d (%s)\n",
                 static_cast<int>(result), cudaGetErrorString(result));
    return 3;
  }
  Json out;
  chosen->run(&out);
  CUDA(cudaDeviceSynchronize());
  std::printf("%s\n", out.Text().c_str());
  return 0;
}

}  // namespace

const std::vector<std::string>& Arguments() { return arguments; }

}  // namespace seqpoint::probe

int main(int argc, char** argv) { return seqpoint::probe::Main(argc, argv); }
