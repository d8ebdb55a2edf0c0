// Rates of the store: iterations, states and trace records to the commit, how long one commit takes
// at most, and what an engine's state costs in bytes. Runs in the directory that TMPDIR names.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string_view>

#include "benchmark/benchmark.h"
#include "daemon/seqpoint/engine.h"
#include "daemon/seqpoint/engine_codec.h"
#include "daemon/store/part_log.h"
#include "daemon/store/store.h"
#include "injection/abi/records.h"
#include "tests/support/private_postgres.h"
#include "tests/support/temp_folder.h"

namespace seqpoint {
namespace {

// SEQPOINT_BENCHMARK_STORE=postgresql: on a server of its own.
class TempStore {
 public:
  TempStore() {
    const char* backend = std::getenv("SEQPOINT_BENCHMARK_STORE");
    std::string address = folder_.path() / "seqpoint.db";
    if (backend != nullptr && std::string_view(backend) == "postgresql") {
      server_.emplace();
      if (!server_->Start() || !server_->CreateDatabase("benchmark")) {
        throw std::runtime_error(server_->Log());
      }
      address = server_->AddressOf("benchmark");
    }
    store_ = *Store::Open(address, {});
  }
  Store& operator*() { return *store_; }

 private:
  const TempFolder folder_;
  std::optional<PrivatePostgres> server_;
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

IterationRow Iteration(int64_t number) {
  return {.job_id = 1,
          .number = number,
          .length_count = 1,
          .length = {number % 97, 0},
          .start_ns = number * 40'000'000,
          .duration_ns = 40'000'000 + number % 1'000'000,
          .level = 3};
}

// 10 M iterations in commits of 1,000: memory must not grow with them.
void BM_Iterations(benchmark::State& state) {
  TempStore store;
  int64_t number = 0;
  double longest_s = 0;
  WriteBatch batch;
  for (auto _ : state) {
    batch = {};
    for (int i = 0; i < 1'000; ++i, ++number) {
      batch.iterations.push_back(Iteration(number));
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
  state.counters["row_bytes"] =
      static_cast<double>(*(*store).Bytes()) / static_cast<double>(number);
  state.counters["rss_max_mb"] = static_cast<double>(usage.ru_maxrss) / 1024;
}

// A live rank writes ten iterations a commit.
void BM_FewIterations(benchmark::State& state) {
  TempStore store;
  int64_t number = 0;
  for (auto _ : state) {
    WriteBatch batch;
    for (int i = 0; i < 10; ++i, ++number) {
      batch.iterations.push_back(Iteration(number));
    }
    if (absl::Status status = (*store).Write(batch); !status.ok()) {
      state.SkipWithError(std::string(status.message()).c_str());
    }
  }
  state.SetItemsProcessed(number);
}
BENCHMARK(BM_FewIterations)->Iterations(1'000)->UseRealTime();
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

// Bytes that this process gave to write(2) so far.
double WrittenBytes() {
  std::ifstream file("/proc/self/io");
  std::string name;
  double value = 0;
  while (file >> name >> value) {
    if (name == "wchar:") return value;
  }
  return 0;
}

// What a live job's engine of so many lengths writes for ten iterations, ten times a second: with a
// log, or whole each time.
void BM_EngineCommit(benchmark::State& state) {
  TempStore store;
  const int64_t lengths = state.range(0);
  const bool whole = state.range(1) != 0;
  OnlineEngine engine;
  PartLog log("engine");
  uint64_t iteration = 0;
  const auto add = [&] {
    const int64_t length = 1 + static_cast<int64_t>(iteration * 7919 % lengths);
    engine.AddIteration({.iteration = iteration,
                         .key = {length},
                         .time_ns = 10'000'000 + length * 400 +
                                    static_cast<int64_t>(iteration * 104'729 % 200'000)});
    ++iteration;
  };
  while (iteration < static_cast<uint64_t>(5 * lengths)) add();
  engine.KeepCalls();
  log.Restart();
  double row_bytes = 0;
  WriteBatch batch;
  const auto commit = [&] {
    batch = {};
    if (whole) {
      batch.states = {{.job_id = 1, .part = "engine", .bytes = SerializeEngine(engine)}};
    } else {
      log.Write(
          1, 0, SerializeCalls(engine.TakeCalls()), [&] { return SerializeEngine(engine); },
          batch.states);
    }
    for (const StateRow& row : batch.states) row_bytes += static_cast<double>(row.bytes.size());
    benchmark::DoNotOptimize((*store).Write(batch));
  };
  commit();
  row_bytes = 0;
  const double before = WrittenBytes();
  for (auto _ : state) {
    for (int i = 0; i < 10; ++i) add();
    commit();
  }
  const auto commits = static_cast<double>(state.iterations());
  state.counters["row_bytes"] = row_bytes / commits;
  state.counters["written_bytes"] = (WrittenBytes() - before) / commits;
}
BENCHMARK(BM_EngineCommit)
    ->ArgNames({"lengths", "whole"})
    ->Args({1'000, 1})
    ->Args({1'000, 0})
    ->Args({100'000, 1})
    ->Args({100'000, 0})
    ->UseRealTime();

// The daemon starts again just before the base is due: it reads the base and does the log again.
void BM_EngineRecovery(benchmark::State& state) {
  OnlineEngine engine;
  PartLog log("engine");
  uint64_t iteration = 0;
  const int64_t lengths = state.range(0);
  const auto add = [&] {
    const int64_t length = 1 + static_cast<int64_t>(iteration * 7919 % lengths);
    engine.AddIteration(
        {.iteration = iteration++, .key = {length}, .time_ns = 10'000'000 + length * 400});
  };
  while (iteration < static_cast<uint64_t>(5 * lengths)) add();
  const std::string base = SerializeEngine(engine);
  engine.KeepCalls();
  std::string added;
  const uint64_t first = iteration;
  while (added.size() < base.size()) {
    for (int i = 0; i < 100; ++i) add();
    added += SerializeCalls(engine.TakeCalls());
  }
  for (auto _ : state) {
    auto restored = ParseEngine(base);
    if (!restored.ok() || !ReplayCalls(added, *restored).ok()) state.SkipWithError("damaged");
    benchmark::DoNotOptimize(restored);
  }
  state.counters["iterations"] = static_cast<double>(iteration - first);
}
BENCHMARK(BM_EngineRecovery)->Arg(1'000)->Arg(100'000)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace seqpoint

BENCHMARK_MAIN();
