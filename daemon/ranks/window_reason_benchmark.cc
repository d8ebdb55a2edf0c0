// Not timed: random faults of computed jobs (tests/support/rank_windows.h), and whether the reason
// is found. Prints a table: by fault, how many reasons were right, unknown, wrong.
//
//   window_reason_benchmark [FAULTS [SEED]]

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "daemon/ranks/window_reason.h"
#include "tests/support/rank_windows.h"

namespace seqpoint::ranks {
namespace {

enum class Parallelism : uint8_t { kData, kTensor, kPipeline };
constexpr const char* kParallelisms[] = {"data", "tensor", "pipeline"};

struct Fault {
  Reason reason = Reason::kUnknown;  // the truth; kUnknown: no fault
  Parallelism parallelism = Parallelism::kData;
  int32_t rank = 0;
  double size = 0.2;  // 0.2: 20 %
  int ranks = 4;
  int windows = 3;
  bool told = true;
  uint64_t seed = 1;
};

Program ProgramOf(const Fault& fault, const StepShape& shape, int32_t rank) {
  switch (fault.parallelism) {
    case Parallelism::kData:
      return DataParallel(shape);
    case Parallelism::kTensor:
      return TensorParallel(shape);
    default:
      return Pipeline(shape, rank, fault.ranks, 4);
  }
}

std::vector<IterationProfiles> WindowsOf(const Fault& fault, bool with_fault) {
  RankJob job(fault.ranks);
  job.noise = 0.02;
  job.jitter_us = 5;
  job.seed = fault.seed * 2 + (with_fault ? 1 : 0);
  job.idle_between = true;
  for (int32_t r = 0; r < fault.ranks; ++r) job.clock_us[static_cast<size_t>(r)] = 12345.0 * r;
  std::mt19937_64 random(job.seed);
  std::vector<Programs> programs;
  std::vector<std::vector<int64_t>> lengths;
  for (int i = 0; i <= fault.windows; ++i) {  // the first one starts together, and is left out
    Programs& of_ranks = programs.emplace_back();
    std::vector<int64_t>& of_lengths = lengths.emplace_back();
    for (int32_t r = 0; r < fault.ranks; ++r) {
      StepShape shape;
      const bool slow = with_fault && r == fault.rank;
      const double by = slow ? fault.size : 0;
      int64_t length = 0;
      switch (fault.reason) {
        case Reason::kClocks:
          shape.factor = 1 + by;
          break;
        case Reason::kKernels:
          shape.slow = "gemm_128x64_backward";
          shape.slow_factor = 1 + by * 1.9;  // half of the time
          break;
        case Reason::kHost:  // bound by launches
          shape.kernel_us = 10;
          shape.host_us = 25 * (1 + by);
          break;
        case Reason::kLoader:
          shape.loader_us = 100 + by * 11'000;
          break;
        case Reason::kLink:
          if (with_fault) shape.link = 1 + 2 * fault.size;
          break;
        case Reason::kMoreWork:
          if (slow) shape.more_layers = static_cast<int>(std::lround(fault.size * 12));
          break;
        case Reason::kImbalance:
          length = std::uniform_int_distribution<int64_t>(80, 120)(random);
          if (slow) length = static_cast<int64_t>(120 * (1 + fault.size));
          shape.length = length;
          break;
        default:
          break;
      }
      of_ranks.push_back(ProgramOf(fault, shape, r));
      of_lengths.push_back(length);
    }
  }
  const SimulatedRun run = job.Run(programs, lengths);
  std::vector<IterationProfiles> iterations;
  for (int i = 1; i <= fault.windows; ++i) {
    const std::vector<RankWindow> windows = run.Windows(static_cast<size_t>(i), fault.told);
    iterations.push_back(ProfilesOf(windows, JoinWindows(windows)));
  }
  return iterations;
}

Fault Draw(std::mt19937_64* random) {
  const auto draw = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(*random);
  };
  Fault fault;
  fault.parallelism = static_cast<Parallelism>(draw(0, 2));
  fault.reason = static_cast<Reason>(draw(0, 7));
  fault.ranks = fault.parallelism == Parallelism::kPipeline ? 4 : 1 << draw(1, 3);
  fault.rank = draw(0, fault.ranks - 1);
  fault.size = draw(5, 50) / 100.0;
  fault.windows = draw(2, 3);
  fault.told = draw(0, 1) == 1;
  fault.seed = static_cast<uint64_t>(draw(1, 1'000'000));
  // All ranks of a group or a pipeline have the same batch.
  const bool shared = fault.parallelism != Parallelism::kData;
  if (shared && (fault.reason == Reason::kImbalance || fault.reason == Reason::kMoreWork)) {
    fault.reason = Reason::kClocks;
  }
  return fault;
}

int Main(int count, uint64_t seed) {
  std::mt19937_64 random(seed);
  struct Row {
    int right = 0, unknown = 0, wrong = 0;
  };
  std::map<std::string, Row> rows;
  Row all;
  for (int i = 0; i < count; ++i) {
    const Fault fault = Draw(&random);
    const std::vector<IterationProfiles> now = WindowsOf(fault, true),
                                         earlier = WindowsOf(fault, false);
    RankQuestion question = {fault.rank, {}, now, {}};
    if (fault.parallelism != Parallelism::kPipeline) {
      for (int32_t r = 0; r < fault.ranks; ++r) {
        if (r != fault.rank) question.peers.push_back(r);
      }
    }
    if (question.peers.empty() || fault.reason == Reason::kLink) question.earlier = earlier;
    const ReasonVerdict verdict = FindReason(question);
    Row& row = rows[std::string(ReasonName(fault.reason)) + ", " +
                    kParallelisms[static_cast<size_t>(fault.parallelism)]];
    for (Row* to : {&row, &all}) {
      if (verdict.reason == fault.reason) {
        ++to->right;
      } else if (verdict.reason == Reason::kUnknown) {
        ++to->unknown;
      } else {
        ++to->wrong;
      }
    }
    if (verdict.reason != fault.reason) {
      std::printf("  %s, %s, rank %d of %d, %.0f %%, %d windows%s: %s: %s\n",
                  ReasonName(fault.reason), kParallelisms[static_cast<size_t>(fault.parallelism)],
                  fault.rank, fault.ranks, 100 * fault.size, fault.windows,
                  fault.told ? ", told" : "", ReasonName(verdict.reason), verdict.text.c_str());
    }
  }
  std::printf("%-28s %6s %8s %6s\n", "fault", "right", "unknown", "wrong");
  for (const auto& [name, row] : rows) {
    std::printf("%-28s %6d %8d %6d\n", name.c_str(), row.right, row.unknown, row.wrong);
  }
  std::printf("%-28s %6d %8d %6d\n", "all", all.right, all.unknown, all.wrong);
  return 0;
}

}  // namespace
}  // namespace seqpoint::ranks

int main(int argc, char** argv) {
  return seqpoint::ranks::Main(argc > 1 ? std::atoi(argv[1]) : 200,
                               argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1);
}
