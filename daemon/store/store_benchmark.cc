// Rates of the store: iterations, states and trace records to the commit, and how long one commit
// takes at most. Runs in the directory that TMPDIR names.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "benchmark/benchmark.h"
#include "daemon/store/store.h"
#include "injection/abi/records.h"

namespace seqpoint {
namespace {

class TempStore {
 public:
  TempStore() {
    std::string pattern = (std::filesystem::temp_directory_path() / "store_bench.XXXXXX").string();
    directory_ = mkdtemp(pattern.data());
    store_ = *Store::Open(directory_ / "seqpoint.db", {});
  }
  ~TempStore() {
    store_.reset();
    std::filesystem::remove_all(directory_);
  }
  Store& operator*() { return *store_; }

 private:
  std::filesystem::path directory_;
  std::unique_ptr<Store> store_;
};

// What a training process of 40 kernels sends: names repeat, times grow.
std::string KernelRecords(int count) {
  std::string bytes;
  uint64_t time_ns = 1'700'000'000'000'000'000;
  uint64_t random = 1;
  for (int i = 0; i < count; ++i) {
    random = random * 6364136223846793005ull + 1442695040888963407ull;
    abi::KernelRecord kernel = {};
    kernel.type = static_cast<uint16_t>(abi::DataType::kKernel);
    kernel.name_id = 1 + (random >> 33) % 40;
    kernel.start_ns = time_ns += 500 + (random >> 40) % 3'000;
    kernel.end_ns = time_ns += 2'000 + (random >> 30) % 100'000;
    kernel.correlation_id = 1'000 + 3 * i;
    kernel.stream = 7;
    kernel.grid_x = 1u << (kernel.name_id % 8);
    kernel.grid_y = kernel.grid_z = kernel.block_y = kernel.block_z = 1;
    kernel.block_x = 256;
    kernel.context = 1;
    bytes.append(reinterpret_cast<const char*>(&kernel), sizeof(kernel));
  }
  return bytes;
}

void BM_TraceRecords(benchmark::State& state) {
  TempStore store;
  const int records = static_cast<int>(state.range(0));
  WriteBatch batch;
  batch.trace_segments = {{.job_id = 1, .records = KernelRecords(records)}};
  for (auto _ : state) {
    if (absl::Status status = (*store).Write(batch); !status.ok()) {
      state.SkipWithError(std::string(status.message()).c_str());
    }
  }
  state.SetItemsProcessed(state.iterations() * records);
}
BENCHMARK(BM_TraceRecords)->Arg(1'024)->Arg(65'536)->UseRealTime();

// 10 M iterations in commits of 1,000: memory must not grow with them.
void BM_Iterations(benchmark::State& state) {
  TempStore store;
  int64_t number = 0;
  double longest_s = 0;
  WriteBatch batch;
  for (auto _ : state) {
    batch.Clear();
    for (int i = 0; i < 1'000; ++i, ++number) {
      batch.iterations.push_back({.job_id = 1,
                                  .number = number,
                                  .length_count = 1,
                                  .length = {number % 97, 0},
                                  .start_ns = number * 40'000'000,
                                  .duration_ns = 40'000'000 + number % 1'000'000,
                                  .level = 3});
    }
    auto begin = std::chrono::steady_clock::now();
    if (absl::Status status = (*store).Write(batch); !status.ok()) {
      state.SkipWithError(std::string(status.message()).c_str());
    }
    longest_s = std::max(
        longest_s, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  state.SetItemsProcessed(number);
  state.counters["longest_commit_ms"] = longest_s * 1e3;
  state.counters["rss_max_mb"] = static_cast<double>(usage.ru_maxrss) / 1024;
}
BENCHMARK(BM_Iterations)->Iterations(100)->Iterations(10'000)->UseRealTime();

// What a live job writes ten times a second: its states and a cursor.
void BM_StateAndCursor(benchmark::State& state) {
  TempStore store;
  WriteBatch batch;
  batch.states = {{.job_id = 1, .part = "engine", .bytes = std::string(state.range(0), 'x')}};
  batch.cursors = {{.ring_id = std::string(16, 'r'), .bytes = std::string(4'096, 'c')}};
  for (auto _ : state) {
    benchmark::DoNotOptimize((*store).Write(batch));
  }
}
BENCHMARK(BM_StateAndCursor)->Arg(16 << 10)->Arg(1 << 20)->UseRealTime();

}  // namespace
}  // namespace seqpoint

BENCHMARK_MAIN();
