#include "tests/whatif/software_gpu.h"

#include <re2/re2.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tests/whatif/software_runs.h"

namespace seqpoint::whatif {
namespace {

// A change of the software GPU or of the training program, and the what-if that asks about it.
struct Case {
  const char* name;
  const char* settings;
  std::vector<std::string> options;
  std::vector<std::string> changes;
};
struct Base {
  const char* name;
  std::vector<std::string> options;  // of all runs
  std::vector<Case> cases;
  std::vector<std::string> own_options;  // of the run before alone
};

std::vector<Case> Machines() {
  return {
      {"kernels x0.5",
       "gpu.efficiency=1.2,gpu.kernel_min_ns=900",
       {},
       {"scale kernels by 0.5; scale memsets by 0.5"}},
      {"kernels x2",
       "gpu.efficiency=0.3,gpu.kernel_min_ns=3600",
       {},
       {"scale kernels by 2; scale memsets by 2"}},
      {"launches x3", "cpu.launch_ns=6600", {}, {"scale launches where name ~ \"Launch\" by 3"}},
      {"copies x4",
       "gpu.h2d_gbps=12.5,gpu.d2h_gbps=12.5,gpu.copy_latency_ns=6000",
       {},
       {"scale copies where name ~ \"HtoD|DtoH\" by 4"}},
  };
}

std::vector<Base> Bases() {
  // Two bytes in place of four, and twice the operations per second: the program has no half
  // precision, so the GPU is as fast as if it had.
  const Case half = {"half precision",
                     "gpu.fp32_tflops=120,gpu.tensor_tflops=1800,gpu.dram_gbps=9600",
                     {},
                     {"amp,compute=2,memory=2"}};
  const Case graphs = {"CUDA graphs", "", {"--graphs"}, {"cuda-graphs"}};
  const Case fused = {"fused optimiser",
                      "",
                      {"--optimizer", "fused"},
                      {"fuse kernels where name ~ \"adam\" into \"fused_adam\""}};
  const auto and_more = [](std::vector<Case> cases, const std::vector<Case>& more) {
    cases.insert(cases.end(), more.begin(), more.end());
    return cases;
  };
  return {
      {"gnmt", {"--model", "gnmt", "--examples", "100000"}, and_more(Machines(), {half})},
      {"ds2", {"--model", "ds2", "--examples", "20000"}, and_more(Machines(), {half})},
      {"transformer",
       {"--model", "transformer", "--pad-multiple", "8"},
       and_more(Machines(), {half, graphs})},
      {"fixed", {"--model", "fixed"}, and_more(Machines(), {half, graphs})},
      {"gnmt, foreach",
       {"--model", "gnmt", "--nvtx", "--examples", "100000"},
       {fused},
       {"--optimizer", "foreach"}},
      {"transformer, foreach",
       {"--model", "transformer", "--nvtx", "--pad-multiple", "8"},
       {fused},
       {"--optimizer", "foreach"}},
  };
}

std::string NameOf(const Base& base, const Case& one) {
  return absl::StrCat(base.name, ", ", one.name);
}

Verdict Judge(const std::string& file, const v1::Estimate& predicted, double measured_ns) {
  Verdict verdict;
  verdict.file = absl::StrCat("software GPU: ", file);
  verdict.check = "pair";
  verdict.measured_ms = measured_ns / 1e6;
  verdict.predicted_ms = predicted.value() / 1e6;
  verdict.low_ms = predicted.low() / 1e6;
  verdict.high_ms = predicted.high() / 1e6;
  verdict.error = predicted.value() / measured_ns - 1;
  return verdict;
}

}  // namespace

absl::Status JudgeSoftwareGpu(const std::string& only,
                              absl::FunctionRef<void(const Verdict&)> done) {
  const RE2 wanted(only);
  if (!wanted.ok()) return absl::InvalidArgumentError(absl::StrCat("--only: ", wanted.error()));
  SoftwareRuns runs;
  for (const Base& base : Bases()) {
    std::vector<Case> cases;
    for (const Case& one : base.cases) {
      if (RE2::PartialMatch(NameOf(base, one), wanted)) cases.push_back(one);
    }
    if (cases.empty()) continue;
    std::vector<std::string> own = base.options;
    own.insert(own.end(), base.own_options.begin(), base.own_options.end());
    const auto trained = runs.Train(base.name, own, "");
    if (!trained.ok()) return trained.status();
    for (const Case& one : cases) {
      std::vector<std::string> options = base.options;
      options.insert(options.end(), one.options.begin(), one.options.end());
      const std::string name = NameOf(base, one);
      const auto reply = runs.WhatIf(base.name, one.changes);
      if (!reply.ok()) return reply.status();
      const auto changed = runs.Train(name, options, one.settings);
      if (!changed.ok()) return changed.status();
      const v1::WhatIfAnswer& answer = reply->answers(0);
      if (&one == &cases.front()) {
        Verdict before =
            Judge(absl::StrCat(base.name, ", unchanged"), answer.before(), trained->watched_ns);
        before.iterations_true = static_cast<int64_t>(trained->alone.iterations.size());
        before.note = absl::StrFormat("being watched costs %+.2f %%",
                                      100 * (trained->watched_ns / trained->alone_ns - 1));
        done(before);
      }
      Verdict verdict = Judge(name, answer.after(), changed->watched_ns);
      verdict.target = kWholeRunWorst;
      verdict.iterations_true = static_cast<int64_t>(changed->alone.iterations.size());
      verdict.note = absl::StrJoin(one.changes, "; ");
      done(verdict);
    }
  }
  return absl::OkStatus();
}

}  // namespace seqpoint::whatif
