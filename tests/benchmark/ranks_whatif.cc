#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/benchmark/ranks_parts.h"
#include "tests/support/truth.h"

namespace seqpoint {
namespace {

using Bound = FigureTable::Bound;
using Words = std::vector<std::string>;

constexpr double kWorst = 1;  // % of the changed run's time

struct Setup {
  int ranks = 4;
  Words workload;
  Words settings;
};
struct Case {
  std::string change;  // as the what-if gets it
  Setup before, after;
};

Words Joined(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

class RanksWhatIf {
 public:
  RanksWhatIf(const RanksPart& part, int iterations)
      : part_(part), jobs_(part.jobs), iterations_(iterations) {}

  void Judge(const std::string& name, const Case& one);
  // The same batches, dealt so that ranks of one iteration have lengths as alike as possible.
  void JudgeBalanced(const std::string& parallel);
  // It is not known how other numbers of ranks would share the work.
  void JudgeRefused(const std::string& parallel);

 private:
  RankJobOptions OptionsOf(const std::string& name, const Setup& setup, double speed_cap) const;
  // The time of the training iterations without the profiler; 0: it failed.
  double AloneNs(const std::string& name, const Setup& setup);
  std::optional<v1::WhatIfAnswer> Ask(const std::string& job, const std::string& change);
  std::string WriteLengths(const std::string& name, int ranks) const;

  const RanksPart& part_;
  RankJobs& jobs_;
  const int iterations_;
};

RankJobOptions RanksWhatIf::OptionsOf(const std::string& name, const Setup& setup,
                                      double speed_cap) const {
  // A changed job has the same iterations. A length's first launches take as long as later ones:
  // the changed job has other lengths, and no what-if claims to know what new ones cost.
  return {.name = name,
          .ranks = setup.ranks,
          .workload = Joined({"--model", "transformer", "--epochs", "100", "--max-iterations",
                              absl::StrCat(iterations_), "--seed", absl::StrCat(part_.seed)},
                             setup.workload),
          .settings = Joined({absl::StrCat("clock.speed_cap=", speed_cap), "noise.search_ns=0",
                              absl::StrCat("noise.seed=", part_.seed)},
                             setup.settings)};
}

double RanksWhatIf::AloneNs(const std::string& name, const Setup& setup) {
  if (!jobs_.RunAlone(OptionsOf(name, setup, 0))) {
    std::ifstream log(jobs_.Log(name));
    const std::string text(std::istreambuf_iterator<char>(log), {});
    std::printf("%s failed: %s\n", name.c_str(), text.c_str());
    return 0;
  }
  return jobs_.TrainTimeNs(name);
}

std::optional<v1::WhatIfAnswer> RanksWhatIf::Ask(const std::string& job,
                                                 const std::string& change) {
  v1::WhatIfRequest request;
  request.set_job(job);
  request.add_changes()->set_preset(change);
  Api api = jobs_.NewApi();
  const auto reply = api.Call(&v1::Profiler::Stub::WhatIf, request);
  if (!reply || reply->answers().empty()) {
    std::printf("%s: %s\n", change.c_str(), api.error().c_str());
    return std::nullopt;
  }
  std::printf("%s: %d iterations traced on all ranks; %s\n", change.c_str(), reply->traces(),
              reply->basis().c_str());
  return reply->answers(0);
}

// Both as shares of the time before: what being watched costs is in neither.
void RanksWhatIf::Judge(const std::string& name, const Case& one) {
  const std::string figure = absl::StrCat("what-if ", one.change, " (", name, ")");
  const std::string job =
      absl::StrCat(name, "-", one.change.substr(0, one.change.find(',')), one.after.ranks);
  if (!jobs_.Run(OptionsOf(job, one.before, 2))) {
    return part_.table.Leave(figure, absl::StrCat("the job failed: ", jobs_.Log(job).string()));
  }
  const auto answer = Ask(job, one.change);
  const double before_ns = AloneNs(job + "-alone", one.before);
  const double after_ns = AloneNs(job + "-changed", one.after);
  if (!answer) return part_.table.Leave(figure, "no answer");
  if (before_ns == 0 || after_ns == 0) return part_.table.Leave(figure, "a job failed");
  const double truth = after_ns / before_ns;
  const double said_before_ns = answer->before().value();
  const double said = answer->after().value() / said_before_ns;
  const double low = 1 - answer->saved().high() / said_before_ns;
  const double high = 1 - answer->saved().low() / said_before_ns;
  std::printf("%s: time after / before: true %.4f, said %.4f (%.4f to %.4f)\n", one.change.c_str(),
              truth, said, low, high);
  part_.table.Compare(absl::StrCat(figure, ": error"), 100 * std::abs(said / truth - 1), "%",
                      Bound::kAtMost, kWorst);
  part_.table.Compare(absl::StrCat(figure, ": the interval holds the truth"),
                      low <= truth && truth <= high ? 1 : 0, "", Bound::kEqual, 1);
}

// One epoch of the batches of all ranks. In the order of lengths, a batch has examples of one
// length only, and ranks take consecutive batches.
std::string RanksWhatIf::WriteLengths(const std::string& name, int ranks) const {
  constexpr int kBatch = 32;
  const std::filesystem::path path = jobs_.folder() / (name + ".csv");
  std::ofstream file(path);
  file << "length\n";
  for (int rank = 0; rank < ranks; ++rank) {
    const auto truth = ReadTruth(jobs_.TruthFile(name, rank));
    if (!truth) return "";
    for (const auto& iteration : truth->iterations) {
      for (int example = 0; example < kBatch; ++example) file << iteration.lengths[0] << "\n";
    }
  }
  return path.string();
}

void RanksWhatIf::JudgeBalanced(const std::string& parallel) {
  const Setup before = {.workload = {"--parallel", parallel}};
  const std::string name = "lengths-" + parallel;
  if (AloneNs(name, before) == 0) return;
  Judge(parallel, {.change = "balance-lengths",
                   .before = before,
                   .after = {.workload = {"--parallel", parallel, "--order", "sorted", "--lengths",
                                          WriteLengths(name, before.ranks)},
                             .settings = {"gpu.memory_gb=2000"}}});
}

void RanksWhatIf::JudgeRefused(const std::string& parallel) {
  const std::string name = "refused-" + parallel;
  const std::string figure = absl::StrCat("what-if ranks,count=8 (", parallel, "): is refused");
  if (!jobs_.Run(OptionsOf(name, {.workload = {"--parallel", parallel}}, 2))) {
    return part_.table.Leave(figure, absl::StrCat("the job failed: ", jobs_.Log(name).string()));
  }
  part_.table.Compare(figure, Ask(name, "ranks,count=8") ? 0 : 1, "", Bound::kEqual, 1);
}

}  // namespace

void JudgeRanksWhatIf(const RanksPart& part, int iterations, const std::set<std::string>& changes) {
  std::printf("\nwhat-ifs over ranks, against the changed job without the profiler\n");
  RanksWhatIf judge(part, iterations);
  const Setup data = {.workload = {"--parallel", "data"}};
  const Setup tensor = {.workload = {"--parallel", "tensor"}};
  const Words slow = {"--slow", "2:kernels:1.2"};
  const Words shared = {"--parallel", "data", "--rank-lengths", "shared"};
  if (changes.contains("without-slow-rank")) {
    judge.Judge("slow-data", {.change = "without-slow-rank,rank=2",
                              .before = {.workload = Joined(data.workload, slow)},
                              .after = data});
    judge.Judge("slow-tensor", {.change = "without-slow-rank,rank=2",
                                .before = {.workload = Joined(tensor.workload, slow)},
                                .after = tensor});
  }
  if (changes.contains("balance-lengths")) {
    for (const char* parallel : {"data", "sharded"}) judge.JudgeBalanced(parallel);
  }
  if (changes.contains("bucket-size")) {
    judge.Judge("buckets", {.change = "bucket-size,bytes=80MB",
                            .before = {.workload = shared},
                            .after = {.workload = Joined(shared, {"--bucket-mb", "76.29"})}});
  }
  if (changes.contains("bandwidth")) {
    judge.Judge("bandwidth", {.change = "bandwidth,factor=2",
                              .before = {.workload = shared, .settings = {"nccl.bus_gbps=100"}},
                              .after = {.workload = shared, .settings = {"nccl.bus_gbps=200"}}});
  }
  if (!changes.contains("ranks")) return;
  for (const std::string parallel : {"data", "sharded"}) {
    for (const std::string lengths : {"shared", "own"}) {
      for (const auto& [before, after] : {std::pair(4, 8), std::pair(4, 2), std::pair(2, 4)}) {
        const Words workload = {"--parallel", parallel, "--rank-lengths", lengths};
        judge.Judge(absl::StrCat(parallel, "-", lengths, "-", before),
                    {.change = absl::StrCat("ranks,count=", after),
                     .before = {.ranks = before, .workload = workload},
                     .after = {.ranks = after, .workload = workload}});
      }
    }
  }
  for (const char* parallel : {"tensor", "pipeline"}) judge.JudgeRefused(parallel);
}

}  // namespace seqpoint
