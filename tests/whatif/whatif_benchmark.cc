// ./dev bench whatif: how well a replay gives the time of recorded traces, as they were and
// changed.
#include <benchmark/benchmark.h>
#include <re2/re2.h>
#include <stdio.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "daemon/whatif/language/parser.h"
#include "daemon/whatif/replay.h"
#include "daemon/whatif/transform/transform.h"
#include "tests/support/shared_traces.h"
#include "tests/whatif/judge.h"
#ifdef SEQPOINT_WITH_SOFTWARE_RUNS
#include "tests/whatif/software_gpu.h"
#endif

namespace seqpoint::whatif {
namespace {

namespace fs = std::filesystem;

constexpr uint32_t kSyntheticTasks = 100'000;

struct Flags {
  std::vector<std::string> files;
  std::vector<std::string> pair;
  std::string marker, apply, json;
  LoaderModel loader;
  bool software = false;     // whole runs on the software GPU,
  std::string only;          // ... of these
  bool no_software = false;  // ... else after the traces, where none is named
};

// Apply and replay, as often as someone moves a slider.
void BM_Slider(benchmark::State& state) {
  const Graph base = SyntheticGraph(static_cast<uint32_t>(state.range(0)));
  const absl::StatusOr<Request> request =
      ParseRequest("scale kernels where name ~ \"kernel_1\" by $slider; scale launches by 1/2");
  for (auto _ : state) {
    Graph graph = base;
    benchmark::DoNotOptimize(Apply(*request, {{"slider", 0.7}}, {}, &graph));
    const Graph* ranks[] = {&graph};
    benchmark::DoNotOptimize(Replay(ranks));
  }
  state.counters["tasks"] = static_cast<double>(base.cpu.size() + base.gpu.size());
}
BENCHMARK(BM_Slider)->Arg(kSyntheticTasks)->Unit(benchmark::kMillisecond);

class Reporter : public benchmark::ConsoleReporter {
 public:
  Reporter() : ConsoleReporter(OO_None) {}
  void ReportRuns(const std::vector<Run>& runs) override {
    ConsoleReporter::ReportRuns(runs);
    for (const Run& run : runs) {
      Verdict verdict;
      verdict.file = "synthetic graph: apply and replay";
      verdict.check = "speed";
      const double ms = run.GetAdjustedCPUTime();
      verdict.tasks = static_cast<int64_t>(run.counters.at("tasks").value);
      verdict.replay_tasks_s = static_cast<double>(verdict.tasks) / (ms / 1e3);
      verdict.predicted_ms = ms;
      verdict.note =
          absl::StrFormat("%.1f ms (to reach: 50 ms, %s)", ms, ms <= 50 ? "reached" : "MISSED");
      verdicts.push_back(verdict);
    }
  }
  std::vector<Verdict> verdicts;
};

// "…workers0…" and "…workers4…": the same job with its data loaded elsewhere.
std::vector<std::pair<size_t, size_t>> LoaderPairs(const std::vector<Recorded>& all,
                                                   std::vector<int>* processes) {
  static const RE2 kWorkers(R"((.*workers?_?)(\d+)(.*))");
  std::vector<std::pair<size_t, size_t>> pairs;
  const auto split = [](const std::string& file, std::string* rest, int* count) {
    std::string before, after;
    if (!RE2::FullMatch(file, kWorkers, &before, count, &after)) return false;
    *rest = before + after;
    return true;
  };
  for (size_t a = 0; a < all.size(); ++a) {
    std::string rest, other;
    int workers = 0, more = 0;
    if (!split(all[a].file, &rest, &workers) || workers != 0) continue;
    for (size_t b = 0; b < all.size(); ++b) {
      if (!split(all[b].file, &other, &more) || more == 0 || other != rest) continue;
      pairs.emplace_back(a, b);
      processes->push_back(more);
    }
  }
  return pairs;
}

void Say(const std::string& text) { fprintf(stderr, "%s\n", text.c_str()); }

// False: they could not be run.
bool JudgeWholeRuns(const std::string& only, std::vector<Verdict>* verdicts) {
#ifdef SEQPOINT_WITH_SOFTWARE_RUNS
  const absl::Status status = JudgeSoftwareGpu(only, [&](const Verdict& verdict) {
    Say(absl::StrFormat("%s: %+.2f %%", verdict.file, 100 * verdict.error));
    verdicts->push_back(verdict);
  });
  if (!status.ok()) Say(std::string(status.message()));
  return status.ok();
#else
  Say("whole runs are left out: the training programs were not built "
      "(build/release/configure.log)");
  return true;
#endif
}

int Judge(const Flags& flags) {
  std::vector<std::string> paths = flags.files, names = flags.files;
  const bool named = !paths.empty() || !flags.pair.empty();
  const bool shared = !named && !flags.software;
  if (shared) {
    names = SharedTraceFiles();
    for (const std::string& name : names) paths.push_back(SharedTraces() + "/" + name);
    if (names.empty()) {
      Say(absl::StrCat(SharedTraces(), " is not there: only speed is judged. SEQPOINT_SHARED_DATA ",
                       "names the folder that holds traces/, or name traces"));
    }
  }
  for (const std::string& path : flags.pair) {
    paths.push_back(path);
    names.push_back(path);
  }
  std::ofstream json;
  if (!flags.json.empty()) {
    json.open(flags.json);
    if (!json) {
      Say(absl::StrCat("cannot write ", flags.json));
      return 1;
    }
  }

  std::vector<Verdict> verdicts;
  std::vector<Recorded> all;
  bool read_all = true;
  for (size_t i = 0; i < paths.size(); ++i) {
    absl::StatusOr<Recorded> recorded = ReadRecorded(paths[i], flags.marker);
    if (!recorded.ok()) {
      Say(std::string(recorded.status().message()));
      read_all = read_all && shared;
      continue;
    }
    recorded->file = names[i];
    const bool gpu_only = recorded->trace.calls.empty();
    if (gpu_only || recorded->marks.iterations() >= 2) {
      verdicts.push_back(JudgeBoundaries(paths[i], *recorded));
    }
    if (gpu_only) {
      Say(names[i] + ": has no calls, only GPU work: nothing to replay");
      continue;
    }
    verdicts.push_back(JudgeReplay(*recorded));
    if (recorded->marks.iterations() >= 3) {
      for (const int64_t at_ns : CutsNs(*recorded)) {
        verdicts.push_back(JudgeReplay(CutOff(*recorded, at_ns, flags.marker)));
        verdicts.back().check = "cut";
      }
    }
    verdicts.push_back(JudgeSpeed(paths[i], *recorded));
    all.push_back(*std::move(recorded));
  }

  const auto judge_pair = [&](const Recorded& before, const Recorded& after,
                              const std::string& request) {
    const absl::StatusOr<Verdict> verdict = JudgePair(before, after, request);
    if (!verdict.ok()) {
      Say(std::string(verdict.status().message()));
      return false;
    }
    verdicts.push_back(*verdict);
    return true;
  };
  if (!flags.pair.empty()) {
    if (all.size() != paths.size()) return 1;  // what is missing was said
    const Recorded& before = all[all.size() - 2];
    if (!judge_pair(before, all.back(),
                    flags.apply.empty() ? LoaderRequest(before, flags.loader) : flags.apply)) {
      return 1;
    }
  } else {
    std::vector<int> processes;
    const auto pairs = LoaderPairs(all, &processes);
    for (size_t i = 0; i < pairs.size(); ++i) {
      const auto& [a, b] = pairs[i];
      LoaderModel loader = flags.loader;
      loader.processes = processes[i];
      judge_pair(all[a], all[b], LoaderRequest(all[a], loader));
    }
  }
  for (const Recorded& recorded : all) {
    if (absl::StrContains(recorded.file, "adam_step_only")) {
      verdicts.push_back(JudgeFusedAdam(recorded));
    }
  }

  // Ranks of one job lie in one folder, and are of as many.
  std::map<std::pair<std::string, int32_t>, std::vector<size_t>> jobs;
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].trace.world_size > 1) {
      jobs[{fs::path(all[i].file).parent_path().string(), all[i].trace.world_size}].push_back(i);
    }
  }
  for (const auto& [job, members] : jobs) {
    std::map<int32_t, size_t> by_rank;
    for (const size_t i : members) by_rank.try_emplace(all[i].trace.rank, i);
    if (by_rank.size() < 2) continue;
    std::vector<const Recorded*> ranks;
    for (const auto& [rank, i] : by_rank) ranks.push_back(&all[i]);
    Verdict verdict = JudgeCollectives(ranks);
    if (!std::isfinite(verdict.error)) continue;  // ranks of different jobs
    verdicts.push_back(std::move(verdict));
  }

  if (flags.software || (shared && !flags.no_software)) {
    read_all = JudgeWholeRuns(flags.only, &verdicts) && read_all;
  }

  if (shared || named) {
    Reporter reporter;
    benchmark::RunSpecifiedBenchmarks(&reporter);
    verdicts.insert(verdicts.end(), reporter.verdicts.begin(), reporter.verdicts.end());
  }
  printf("%s", ToTables(verdicts).c_str());
  if (json.is_open()) {
    json << ToJson(verdicts);
    json.close();
    if (!json) {
      Say(absl::StrCat("cannot write ", flags.json));
      return 1;
    }
  }
  return read_all ? 0 : 1;
}

}  // namespace
}  // namespace seqpoint::whatif

int main(int argc, char** argv) {
  seqpoint::whatif::Flags flags;
  CLI::App app(
      "How well the replay of recorded traces gives their time: without change, changed and beside "
      "a trace of the changed run, and the ends of collectives with all ranks replayed together.",
      "./dev bench whatif");
  app.set_help_flag("-h,--help", "print this help");
  app.add_option(
         "TRACE", flags.files,
         "traces (docs/formats/traces.md); default: all of ../shared/data/traces. Ranks of one job "
         "lie in one folder; names with workers0 and workersN are a pair")
      ->type_name("");
  app.add_option("--marker", flags.marker,
                 "expression for the names of the annotations that iterations begin with; default: "
                 "ProfilerStep#, else Optimizer.zero_grad#, else Optimizer.step#")
      ->type_name("REGEX");
  app.add_option("--pair", flags.pair, "a trace before a change and one after it")
      ->expected(2)
      ->type_name("BEFORE AFTER");
  app.add_option(
         "--apply", flags.apply,
         "the change, as a what-if (docs/using/whatif.md); default: data loading moves into "
         "processes of its own")
      ->type_name("TEXT");
  app.add_option(
         "--slower", flags.loader.slower_per_process,
         "by how much each process that loads data slows the training process; default 0.03")
      ->check(CLI::Range(0.0, 10.0))
      ->type_name("SHARE");
  app.add_option("--first-read", flags.loader.first_read,
                 "how much longer a copy of a batch from another process takes; default 1.45")
      ->check(CLI::Range(0.0, 100.0))
      ->type_name("FACTOR");
  app.add_option("--receive", flags.loader.receive_ms,
                 "what receiving a tensor of a batch from another process takes; default 0.7")
      ->check(CLI::Range(0.0, 1000.0))
      ->type_name("MS");
  app.add_option("--free", flags.loader.free_gb_s,
                 "how fast the shared memory of a batch is freed; default 8")
      ->check(CLI::Range(0.001, 1e9))
      ->type_name("GB/S");
  app.add_option("--workers", flags.loader.processes,
                 "processes that load data, of --pair; default 4")
      ->check(CLI::Range(1, 1000))
      ->type_name("N");
  auto* software = app.add_flag("--software", flags.software,
                                "whole runs on the software GPU, against the changed job in full; "
                                "without TRACE nothing else");
  app.add_option("--only", flags.only, "of these whole runs those that it finds in their names")
      ->type_name("REGEX");
  app.add_flag("--no-software", flags.no_software, "leave these out")->excludes(software);
  app.add_option("--json", flags.json, "write all results there")->type_name("FILE");
  CLI11_PARSE(app, argc, argv);
  return seqpoint::whatif::Judge(flags);
}
