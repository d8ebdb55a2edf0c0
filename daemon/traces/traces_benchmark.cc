// MB/s of uncompressed JSON from bytes to a trace, and the memory that takes beside the trace.
//
//   traces_benchmark [FILE...] [--benchmark_...]
//
// Files are read from disk piece by piece, as a client would send them; MB/s of a packed one counts
// what it holds. peak_mib: the most memory held while reading, beyond what was held before;
// trace_mib: what the trace itself needs.
#include <benchmark/benchmark.h>
#include <malloc.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "daemon/traces/trace_reader.h"
#include "tests/support/memory.h"

namespace seqpoint::traces {
namespace {

constexpr size_t kPieceBytes = size_t{256} << 10;

double BytesOf(const trace::Trace& trace) {
  size_t bytes =
      trace.calls.size() * sizeof(trace::Call) + trace.works.size() * sizeof(trace::Work) +
      trace.spans.size() * sizeof(trace::Span) + trace.waits.size() * sizeof(trace::Wait);
  for (const std::string& name : trace.names) bytes += sizeof(name) + name.capacity();
  return static_cast<double>(bytes);
}

// `feed` gives the reader all pieces and returns the bytes of text in them.
template <typename Feed>
void Measure(benchmark::State& state, const Feed& feed) {
  const double before = StartPeakMemory();
  double bytes = 0;
  double trace_bytes = 0;
  for (auto _ : state) {
    {
      TraceReader reader({});
      bytes += feed(reader);
      const auto trace = reader.Finish();
      if (!trace.ok()) {
        state.SkipWithError(trace.status().ToString().c_str());
        return;
      }
      trace_bytes = BytesOf(*trace);
    }
    state.PauseTiming();
    malloc_trim(0);  // what is free must not count for the next one
    state.ResumeTiming();
  }
  state.counters["MB/s"] = benchmark::Counter(bytes / 1e6, benchmark::Counter::kIsRate);
  state.counters["MB"] = bytes / 1e6 / static_cast<double>(state.iterations());
  state.counters["peak_mib"] = (PeakMemory() - before) / (1 << 20);
  state.counters["trace_mib"] = trace_bytes / (1 << 20);
}

// Events in the proportions and the form of a training step of today's Kineto: per launch two
// operators, the call, the kernel and its flow, one instant of the allocator.
std::string SyntheticEvents(size_t bytes, bool python) {
  std::string text;
  for (uint64_t i = 0; text.size() < bytes; ++i) {
    const auto time = absl::StrFormat("%d.%03d", 1726503200000 + i * 11, i % 1000);
    for (const char* name : {"aten::linear", "aten::addmm"}) {
      absl::StrAppendFormat(
          &text,
          "  {\n    \"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"%s\", \"pid\": 4711, \"tid\": "
          "4711,\n    \"ts\": %s, \"dur\": 8.250,\n    \"args\": {\n      \"External id\": %d,"
          "\"Record function id\": 0, \"Concrete Inputs\": [\"\", \"\", \"\"], \"Input type\": "
          "[\"float\", \"float\", \"float\"], \"Input Dims\": [[64, 1024], [1024, 1024], [1024]], "
          "\"Ev Idx\": %d\n    }\n  },\n",
          name, time, i, i);
    }
    if (python) {
      absl::StrAppendFormat(
          &text,
          "  {\n    \"ph\": \"X\", \"cat\": \"python_function\", \"name\": \"torch/nn/modules/"
          "linear.py(116): forward\", \"pid\": 4711, \"tid\": 4711,\n    \"ts\": %s, \"dur\": 9.5,"
          "\n    \"args\": {\n      \"Python parent id\": %d, \"Python id\": %d, \"Ev Idx\": %d\n  "
          " "
          " }\n  },\n",
          time, i, i + 1, i);
    }
    absl::StrAppendFormat(
        &text,
        "  {\n    \"ph\": \"i\", \"cat\": \"cpu_instant_event\", \"s\": \"t\", \"name\": "
        "\"[memory]\",\n    \"pid\": 4711, \"tid\": 4711,\n    \"ts\": %s,\n    \"args\": {\n      "
        "\"Total Reserved\": 2097152, \"Bytes\": 4096, \"Addr\": 140423455375360\n    }\n  },\n"
        "  {\n    \"ph\": \"X\", \"cat\": \"cuda_runtime\", \"name\": \"cudaLaunchKernel\", "
        "\"pid\": 4711, \"tid\": 4711,\n    \"ts\": %s, \"dur\": 4.125,\n    \"args\": {\n      "
        "\"External id\": %d, \"cbid\": 211, \"correlation\": %d\n    }\n  },\n"
        "  {\n    \"ph\": \"s\", \"id\": %d, \"pid\": 4711, \"tid\": 4711, \"ts\": %s,\n    "
        "\"cat\": \"ac2g\", \"name\": \"ac2g\"\n  },\n",
        time, time, i, i + 1, i + 1, time);
    absl::StrAppendFormat(
        &text,
        "  {\n    \"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"void at::native::"
        "vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, at::detail::Array<"
        "char*, 3> >(int, at::native::CUDAFunctor_add<float>, at::detail::Array<char*, 3>)\", "
        "\"pid\": 0, \"tid\": 7,\n    \"ts\": %s, \"dur\": 6.880,\n    \"args\": {\n      "
        "\"External id\": %d,\n      \"queued\": 0, \"device\": 0, \"context\": 1,\n      "
        "\"stream\": 7, \"correlation\": %d,\n      \"registers per thread\": 24,\n      \"shared "
        "memory\": 0,\n      \"blocks per SM\": 1.454545,\n      \"warps per SM\": 5.818182,\n   "
        "   \"grid\": [192, 1, 1],\n      \"block\": [128, 1, 1],\n      \"est. achieved occupancy "
        "%%\": 12\n    }\n  },\n"
        "  {\n    \"ph\": \"f\", \"id\": %d, \"pid\": 0, \"tid\": 7, \"ts\": %s,\n    \"cat\": "
        "\"ac2g\", \"name\": \"ac2g\", \"bp\": \"e\"\n  },\n",
        time, i, i + 1, i + 1, time);
  }
  return text;
}

// The same 8 MiB of events as often as it takes, so that the text itself is no memory to speak of.
void BM_Synthetic(benchmark::State& state) {
  const std::string events = SyntheticEvents(size_t{8} << 20, state.range(1) != 0);
  const auto copies = static_cast<size_t>(state.range(0)) / 8;
  Measure(state, [&](TraceReader& reader) {
    (void)reader.Add("{\n  \"schemaVersion\": 1,\n  \"traceEvents\": [\n");
    for (size_t i = 0; i < copies; ++i) {
      for (std::string_view rest = events; !rest.empty();
           rest.remove_prefix(std::min(rest.size(), kPieceBytes))) {
        (void)reader.Add(rest.substr(0, kPieceBytes));
      }
    }
    (void)reader.Add("{}],\n  \"baseTimeNanoseconds\": 1000\n}\n");
    return static_cast<double>(copies * events.size());
  });
}
BENCHMARK(BM_Synthetic)
    ->ArgNames({"MiB", "python"})
    ->Args({128, 0})
    ->Args({128, 1})
    ->Args({1024, 0})
    ->Unit(benchmark::kMillisecond);

struct CloseFile {
  void operator()(FILE* file) const { std::fclose(file); }
};

void MeasureFile(benchmark::State& state, const std::string& path) {
  std::vector<char> piece(kPieceBytes);
  Measure(state, [&](TraceReader& reader) {
    const std::unique_ptr<FILE, CloseFile> file(std::fopen(path.c_str(), "rb"));
    if (file == nullptr) return 0.0;
    while (const size_t n = std::fread(piece.data(), 1, piece.size(), file.get())) {
      if (!reader.Add({piece.data(), n}).ok()) break;
    }
    return static_cast<double>(reader.text_bytes());
  });
}

}  // namespace
}  // namespace seqpoint::traces

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    const std::string path = argv[i];
    if (path.substr(0, 2) == "--") {
      std::fprintf(stderr, "usage: traces_benchmark [FILE...] [--benchmark_...]; not %s\n",
                   path.c_str());
      return 2;
    }
    benchmark::RegisterBenchmark(
        path.substr(path.rfind('/') + 1).c_str(),
        [path](benchmark::State& state) { seqpoint::traces::MeasureFile(state, path); })
        ->Unit(benchmark::kMillisecond);
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
