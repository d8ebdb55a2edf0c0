// MB/s of a file of lengths that becomes a horizon, and the memory that takes.
//
//   lengths_benchmark [--bytes N] [--benchmark_...]
//
// N (default 64 MB) is how large a file to make, in a folder of its own under $TMPDIR; it goes with
// the program. Its rows are short, so there are as many as a file of that size can have. peak_mib:
// the most memory held while reading, beyond what was held before.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <fstream>
#include <random>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/files/lengths.h"
#include "tests/support/memory.h"
#include "tests/support/temp_folder.h"

namespace seqpoint::client {
namespace {

void WriteFile(const std::string& path, bool two_columns, int64_t bytes) {
  std::ofstream file(path);
  std::mt19937_64 random(1);
  std::lognormal_distribution<double> length(3.2, 0.6);
  file << (two_columns ? "len_en,len_de\n" : "length\n");
  std::string block;
  for (int64_t written = 0; written < bytes; written += static_cast<int64_t>(block.size())) {
    block.clear();
    while (block.size() < (1 << 20)) {
      const int first = 1 + static_cast<int>(length(random));
      absl::StrAppend(&block, first);
      if (two_columns) absl::StrAppend(&block, ",", 1 + first * (80 + random() % 40) / 100);
      block += '\n';
    }
    file << block;
  }
  if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

void Read(benchmark::State& state, const LengthsOptions& options, int64_t bytes) {
  const double before = StartPeakMemory();
  for (auto _ : state) {
    const absl::StatusOr<v1::Horizon> horizon = ReadLengths(options);
    if (!horizon.ok()) {
      state.SkipWithError(std::string(horizon.status().message()).c_str());
      break;
    }
    state.counters["lengths"] = horizon->histogram_size();
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * bytes);
  state.counters["peak_mib"] = (PeakMemory() - before) / (1 << 20);
}

}  // namespace
}  // namespace seqpoint::client

int main(int argc, char** argv) {
  using seqpoint::client::ExampleOrder;
  benchmark::Initialize(&argc, argv);
  int64_t bytes = 64'000'000;
  const bool sized = argc == 3 && std::string(argv[1]) == "--bytes";
  if (argc > 1 && (!sized || !absl::SimpleAtoi(argv[2], &bytes) || bytes < 1)) {
    fprintf(stderr, "usage: %s [--bytes N] [--benchmark_...]\n", argv[0]);
    return 2;
  }
  const seqpoint::TempFolder folder;
  for (const bool two : {false, true}) {
    const std::string path = folder.path() / (two ? "two.csv" : "one.csv");
    seqpoint::client::WriteFile(path, two, bytes);
    const auto add = [&](const char* name, int64_t batch, ExampleOrder order) {
      const seqpoint::client::LengthsOptions options{
          .path = path, .batch = batch, .order = order, .show_progress = false};
      benchmark::RegisterBenchmark(
          absl::StrCat(two ? "two_columns/" : "one_column/", name).c_str(),
          [=](benchmark::State& state) { seqpoint::client::Read(state, options, bytes); })
          ->Unit(benchmark::kMillisecond)
          ->UseRealTime();
    };
    add("rows", 0, ExampleOrder::kShuffle);
    add("shuffle", 64, ExampleOrder::kShuffle);
    add("bucket", 64, ExampleOrder::kBucket);
    add("sorted", 64, ExampleOrder::kSorted);
    add("file", 64, ExampleOrder::kFile);
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
