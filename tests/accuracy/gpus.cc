#include "tests/accuracy/gpus.h"

#include <stdlib.h>
#include <sys/wait.h>

#include <filesystem>
#include <set>

#include "absl/strings/str_cat.h"
#include "tests/support/api.h"
#include "tests/support/temp_folder.h"
#include "tests/support/truth.h"

namespace seqpoint::accuracy {
namespace {

constexpr const char* kGpus[] = {"h200", "a100", "small"};  // the first one chooses
constexpr const char* kCounters[] = {"dram__bytes_read.sum", "sm__inst_executed.sum"};
constexpr int kRuns = 3;  // of the same batches with other noise: most lengths occur once in each
struct Workload {
  const char* model;
  const char* batch;
  const char* max_length;  // what the smallest GPU's memory holds
};
constexpr Workload kWorkloads[] = {
    {"gnmt", "64", "100"}, {"ds2", "32", "2500"}, {"transformer", "32", "192"}};

absl::StatusOr<Truth> Run(const Workload& workload, const std::string& gpu, int seed) {
  const std::filesystem::path binaries = BinaryDirectory();
  const std::filesystem::path program = binaries / "seqpoint_workload";
  if (!std::filesystem::exists(program)) {
    return absl::UnavailableError(
        absl::StrCat(program.string(), " was not built (it needs the CUDA toolkit)"));
  }
  TempFolder folder;
  const std::filesystem::path truth = folder.path() / "truth.jsonl";
  setenv("LD_LIBRARY_PATH", (binaries.parent_path() / "softgpu").c_str(), 1);
  setenv("SWGPU_CONFIG", (std::filesystem::path(SEQPOINT_GPU_CONFIGS) / (gpu + ".ini")).c_str(), 1);
  setenv("SWGPU_SET", "clock.speed_cap=0", 1);
  setenv("SWGPU_SEED", absl::StrCat(seed).c_str(), 1);
  const pid_t pid =
      Spawn({program.string(), "--model", workload.model, "--batch", workload.batch, "--max-length",
             workload.max_length, "--epochs", "1", "--truth", truth.string()},
            folder.path() / "log.txt");
  int status = 0;
  waitpid(pid, &status, 0);
  std::optional<Truth> read = ReadTruth(truth);
  if (status != 0 || !read) {
    folder.Keep();
    return absl::InternalError(absl::StrCat(workload.model, " on ", gpu, " ended with status ",
                                            status, "; see ", folder.path().string(), "/log.txt"));
  }
  return *std::move(read);
}

// As a log of all runs; `counter` empty means times. The first iteration in which a run has a
// length is left out: it pays for choosing algorithms, which is no matter of SeqPoints.
DataSet DataOf(const std::string& name, const std::vector<Truth>& runs,
               const std::string& counter) {
  RunLog log;
  for (size_t r = 0; r < runs.size(); ++r) {
    std::set<int64_t> seen[2];
    for (const TrueIteration& i : runs[r].iterations) {
      bool first = false;
      for (size_t d = 0; d < i.lengths.size() && d < 2; ++d) {
        first |= seen[d].insert(i.lengths[d]).second;
      }
      if (first) continue;
      log.keys.push_back({i.lengths[0], i.lengths.size() > 1 ? i.lengths[1] : 0});
      log.times.push_back(counter.empty() ? i.gpu_time_ns : i.counters.at(counter));
      log.groups.push_back(static_cast<int>(r));
    }
  }
  return MakeDataSet(name, log);
}

}  // namespace

absl::StatusOr<std::vector<GpuPair>> RunWorkloads() {
  std::vector<GpuPair> pairs;
  for (const Workload& workload : kWorkloads) {
    DataSet base;
    for (const char* gpu : kGpus) {
      std::vector<Truth> runs;
      for (int seed = 1; seed <= kRuns; ++seed) {
        absl::StatusOr<Truth> truth = Run(workload, gpu, seed);
        if (!truth.ok()) return truth.status();
        runs.push_back(*std::move(truth));
      }
      const std::string name = absl::StrCat(workload.model, "@", gpu);
      DataSet times = DataOf(name, runs, "");
      if (gpu == kGpus[0]) {
        base = std::move(times);
      } else {
        pairs.push_back({base, std::move(times)});
      }
      if (gpu != kGpus[0]) continue;  // a counter is the same on all of them
      for (const char* counter : kCounters) {
        pairs.push_back({base, DataOf(absl::StrCat(name, " ", counter), runs, counter)});
      }
    }
  }
  return pairs;
}

}  // namespace seqpoint::accuracy
