// Counts of operations whose number is known, and CUPTI's automatic ranges: what the set "flops"
// and the roofline rest on.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "injection/seqpoint.h"
#include "tests/gpu/probes/kernels.h"
#include "tests/gpu/probes/probe.h"
#include "tests/gpu/probes/range_profiler.h"

namespace seqpoint::probe {
namespace {

constexpr int kBlocks = 132 * 16;  // more than an H200 runs at once
constexpr size_t kResultBytes = 64 << 20;
constexpr size_t kCopyFloats = 16 << 20;

void* Allocate(size_t bytes) {
  void* memory = nullptr;
  CUDA(cudaMalloc(&memory, bytes));
  return memory;
}

// The first call that failed, and its result.
class Attempt {
 public:
  bool ok() const { return text_ == "0"; }
  const std::string& text() const { return text_; }
  void operator()(const char* what, CUptiResult result) {
    if (ok() && result != CUPTI_SUCCESS) text_ = std::string(what) + ": " + ResultText(result);
  }

 private:
  std::string text_ = "0";
};

// Measures what `work` launches, one pass.
struct Ranges {
  std::string result;
  size_t count = 0, dropped = 0;
  std::vector<std::vector<double>> values;
};
Ranges MeasureRanges(RangeProfiler* profiler, MetricConfig* config, CUpti_ProfilerRange kind,
                     size_t max_ranges, const std::function<void()>& work) {
  Attempt attempt;
  Ranges ranges;
  attempt("configure", profiler->Configure(config, kind, CUPTI_UserReplay, max_ranges));
  if (attempt.ok()) attempt("start", profiler->Start());
  if (attempt.ok()) {
    if (kind == CUPTI_UserRange) attempt("push", profiler->Push("work"));
    work();
    if (kind == CUPTI_UserRange && attempt.ok()) attempt("pop", profiler->Pop());
    attempt("stop", profiler->Stop());
  }
  if (attempt.ok()) attempt("decode", profiler->Decode(&ranges.dropped));
  ranges.result = attempt.text();
  if (!attempt.ok()) return ranges;
  ranges.count = profiler->Ranges();
  for (size_t i = 0; i < ranges.count; ++i) ranges.values.push_back(profiler->Values(i));
  return ranges;
}

}  // namespace

// One configuration, the arguments, over each kind of arithmetic; and what it costs.
void Opcodes(Json* out) {
  if (Arguments().empty()) Die("opcodes: name the metrics of a configuration");
  constexpr int kRounds = 2048;
  void* result = Allocate(kResultBytes);
  RangeProfiler profiler;
  MetricConfig config(Arguments(), kRange);
  out->Add("metrics", Arguments()).Add("passes", config.passes()).Add("chip", ChipName());
  std::vector<Json> rows;
  for (const Arithmetic& kind : kArithmetic) {
    const auto work = [&] { kind.launch(nullptr, result, kBlocks, kRounds); };
    work();  // loaded, and warm
    CUDA(cudaDeviceSynchronize());
    std::vector<double> alone_ns, counted_ns;
    Ranges ranges;
    for (int i = 0; i < 5; ++i) {
      alone_ns.push_back(Time([&] {
        work();
        CUDA(cudaDeviceSynchronize());
      }));
      ranges = MeasureRanges(&profiler, &config, CUPTI_UserRange, 1, [&] {
        counted_ns.push_back(Time([&] {
          work();
          CUDA(cudaDeviceSynchronize());
        }));
      });
    }
    Json row;
    row.Add("kernel", kind.kernel)
        .Add("what", kind.what)
        .Add("instructions", InstructionsOf(kind, kBlocks, kRounds))
        .Add("operations", OperationsOf(kind, kBlocks, kRounds))
        .Add("result", ranges.result)
        .Add("ranges", ranges.count)
        .Add("alone_ns", Quantile(alone_ns, 0.5))
        .Add("counted_ns", Quantile(counted_ns, 0.5));
    if (ranges.count == 1) row.Add("values", ranges.values[0]);
    rows.push_back(row);
  }
  out->Add("kernels", rows);

  // Beside records of copies, which the library leaves on where a copy is the iterations' clock.
  int64_t copies = 0;
  CollectActivity(
      [&](const CUpti_Activity* record) { copies += record->kind == CUPTI_ACTIVITY_KIND_MEMCPY; });
  const CUptiResult enabled = cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMCPY);
  std::vector<char> host(1 << 16);
  const Arithmetic& kind = kArithmetic[0];
  const Ranges beside = MeasureRanges(&profiler, &config, CUPTI_UserRange, 1, [&] {
    CUDA(cudaMemcpyAsync(result, host.data(), host.size(), cudaMemcpyHostToDevice, nullptr));
    kind.launch(nullptr, result, kBlocks, kRounds);
    CUDA(cudaDeviceSynchronize());
  });
  if (enabled == CUPTI_SUCCESS) {
    FlushActivity();
    CUPTI(cuptiActivityDisable(CUPTI_ACTIVITY_KIND_MEMCPY));
  }
  Json besides;
  besides.Add("enable", ResultText(enabled)).Add("result", beside.result).Add("records", copies);
  if (beside.count == 1) besides.Add("values", beside.values[0]);
  out->Add("beside_copy_records", besides);
}

// Automatic ranges: whose values are whose is told by their order alone.
void KernelRanges(Json* out) {
  void* result = Allocate(kResultBytes);
  auto* from = static_cast<float*>(Allocate(kCopyFloats * sizeof(float)));
  auto* to = static_cast<float*>(Allocate(kCopyFloats * sizeof(float)));
  cudaStream_t one, two;
  CUDA(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking));
  CUDA(cudaStreamCreateWithFlags(&two, cudaStreamNonBlocking));
  const Arithmetic& ffma = kArithmetic[0];
  std::vector<char> host(1 << 16);

  // The i-th launch does i times as much: the values tell which one a range was.
  constexpr int kLaunches = 40;
  const auto rounds = [](int i) { return 64 * (1 + i * 7 % kLaunches); };
  struct Case {
    const char* what;
    std::function<void(int)> between;  // what comes in front of the i-th launch
    bool streams;
  };
  const Case cases[] = {
      {"kernels", [](int) {}, false},
      {"kernels of two streams", [](int) {}, true},
      {"memsets between", [&](int) { CUDA(cudaMemsetAsync(to, 0, 1 << 20, one)); }, false},
      {"copies on the device between",
       [&](int) { CUDA(cudaMemcpyAsync(to, from, 1 << 20, cudaMemcpyDeviceToDevice, one)); },
       false},
      {"copies from the host between",
       [&](int) {
         CUDA(cudaMemcpyAsync(to, host.data(), host.size(), cudaMemcpyHostToDevice, one));
       },
       false},
  };
  MetricConfig config({"gpu__time_duration.sum", "sm__inst_executed.sum"}, kRange);
  RangeProfiler profiler;
  std::vector<Json> rows;
  for (const Case& each : cases) {
    const Ranges ranges = MeasureRanges(&profiler, &config, CUPTI_AutoRange, 2000, [&] {
      for (int i = 0; i < kLaunches; ++i) {
        each.between(i);
        ffma.launch(each.streams && i % 2 == 1 ? two : one, result, kBlocks, rounds(i));
      }
      CUDA(cudaDeviceSynchronize());
    });
    // In order: a launch with more work has more instructions.
    bool in_order = ranges.count == kLaunches;
    for (int i = 0; in_order && i < kLaunches; ++i) {
      for (int j = 0; j < kLaunches; ++j) {
        if (rounds(i) < rounds(j)) in_order &= ranges.values[i][1] < ranges.values[j][1];
      }
    }
    rows.push_back(Json()
                       .Add("what", each.what)
                       .Add("launches", kLaunches)
                       .Add("result", ranges.result)
                       .Add("ranges", ranges.count)
                       .Add("dropped", ranges.dropped)
                       .Add("in_order", in_order));
  }

  cudaGraph_t graph;
  cudaGraphExec_t exec;
  constexpr int kNodes = 10;
  CUDA(cudaStreamBeginCapture(one, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < kNodes; ++i) ffma.launch(one, result, kBlocks, 64);
  CUDA(cudaStreamEndCapture(one, &graph));
  CUDA(cudaGraphInstantiate(&exec, graph, 0));
  const Ranges graphs = MeasureRanges(&profiler, &config, CUPTI_AutoRange, 2000, [&] {
    CUDA(cudaGraphLaunch(exec, one));
    CUDA(cudaDeviceSynchronize());
  });
  out->Add("cases", rows)
      .Add("graph",
           Json().Add("nodes", kNodes).Add("result", graphs.result).Add("ranges", graphs.count));

  // More ranges than the library asks for, and than there is room.
  std::vector<Json> rooms;
  struct Room {
    int room, launches;
  };
  for (const Room each : {Room{2000, 2000}, Room{2000, 2100}, Room{4000, 4000}}) {
    const Ranges ranges = MeasureRanges(&profiler, &config, CUPTI_AutoRange, each.room, [&] {
      for (int i = 0; i < each.launches; ++i) LaunchEmpty(one);
      CUDA(cudaDeviceSynchronize());
    });
    rooms.push_back(Json()
                        .Add("room", each.room)
                        .Add("launches", each.launches)
                        .Add("result", ranges.result)
                        .Add("ranges", ranges.count)
                        .Add("dropped", ranges.dropped));
  }
  out->Add("rooms", rooms);

  constexpr int kTimed = 500;
  const auto timed = [&](double* ns) {
    *ns = Time([&] {
      for (int i = 0; i < kTimed; ++i) LaunchEmpty(one);
      CUDA(cudaDeviceSynchronize());
    });
  };
  double alone_ns = 0, ranged_ns = 0;
  timed(&alone_ns);
  timed(&alone_ns);
  MeasureRanges(&profiler, &config, CUPTI_AutoRange, 2000, [&] { timed(&ranged_ns); });
  out->Add("launch_alone_ns", alone_ns / kTimed).Add("launch_in_range_ns", ranged_ns / kTimed);
}

// Iterations of four lengths; what a kernel does is `length` times what it does at length 1.
void KnownTraining(Json* out) {
  const int iterations = Arguments().empty() ? 400 : std::atoi(Arguments()[0].c_str());
  constexpr int kRoundsOfLength = 256;
  constexpr size_t kFloatsOfLength = 64 << 20;  // far more than the L2 holds
  constexpr int kMostLength = 4;
  void* result = Allocate(kResultBytes);
  // This program's other probes use CUPTI, so an injected library leaves it to us. This one does
  // not.
  if (seqpoint_come_back != nullptr) seqpoint_come_back();
  auto* from = static_cast<float*>(Allocate(kMostLength * kFloatsOfLength * sizeof(float)));
  auto* to = static_cast<float*>(Allocate(kMostLength * kFloatsOfLength * sizeof(float)));
  std::vector<int> batch(1024 * kMostLength);
  void* on_gpu = Allocate(batch.size() * sizeof(int));
  cudaStream_t stream;
  CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  float loss = 0;
  for (int i = 0; i < iterations; ++i) {
    const int length = 1 + i * 7 % 11 % kMostLength;
    CUDA(cudaMemcpyAsync(on_gpu, batch.data(), 1024 * sizeof(int) * static_cast<size_t>(length),
                         cudaMemcpyHostToDevice, stream));
    LaunchCopy(stream, to, from, kFloatsOfLength * static_cast<size_t>(length));
    for (const Arithmetic& kind : kArithmetic) {
      kind.launch(stream, result, kBlocks, kRoundsOfLength * length);
    }
    CUDA(cudaMemcpyAsync(&loss, to, sizeof(loss), cudaMemcpyDeviceToHost, stream));
    CUDA(cudaStreamSynchronize(stream));
  }
  std::vector<Json> rows = {
      Json()
          .Add("kernel", "probe_copy")
          .Add("operations_of_length", 0.0)
          .Add("bytes_of_length", 2.0 * kFloatsOfLength * sizeof(float)),
  };
  for (const Arithmetic& kind : kArithmetic) {
    rows.push_back(Json()
                       .Add("kernel", kind.kernel)
                       .Add("operations_of_length", OperationsOf(kind, kBlocks, kRoundsOfLength)));
  }
  out->Add("iterations", iterations)
      .Add("bytes_of_batch_of_length", 1024.0 * sizeof(int))
      .Add("kernels", rows);
}

}  // namespace seqpoint::probe
