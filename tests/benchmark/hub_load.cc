#include <algorithm>
#include <cstdio>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/benchmark/hub_asker.h"
#include "tests/benchmark/hub_parts.h"
#include "tests/support/memory.h"
#include "tests/support/paced_nodes.h"
#include "tests/support/process_usage.h"

namespace seqpoint {
namespace {

using Bound = FigureTable::Bound;

constexpr char kJob[] = "load";
constexpr int kSamples = 10;

ReportedRanksOptions TrainingOf(const HubPart& part) {
  return {.job = kJob,
          .nodes = part.nodes,
          .ranks_of_node = part.ranks_of_node,
          .step_ms = part.step_ms,
          .seed = part.seed,
          .collectives = part.collectives};
}

}  // namespace

void TellDifferences(const std::string& name, PacedNodes& nodes, const HubProcess& hub,
                     FigureTable& table) {
  if (!nodes.AwaitAcknowledged(absl::Minutes(2))) {
    return table.Leave(
        absl::StrCat(name, ": rows"),
        absl::StrCat(nodes.waiting(), " batches were not acknowledged in 2 minutes"));
  }
  Api api = hub.NewApi();
  const auto found = Compare(nodes.training(), api);
  if (!found) return table.Leave(absl::StrCat(name, ": rows"), api.error());
  const auto none = [&](const char* figure, int64_t measured) {
    table.Compare(absl::StrCat(name, ": ", figure), static_cast<double>(measured), "iterations",
                  Bound::kEqual, 0);
  };
  table.Tell(absl::StrCat(name, ": reported by all ranks"), static_cast<double>(found->reported),
             "iterations");
  none("lost", found->lost);
  none("twice", found->twice);
  none("that were none", found->invented);
  none("with another length or time", found->wrong);
  v1::GetJobRequest request;
  request.set_job(nodes.training().options().job);
  const auto job = api.Call(&v1::Profiler::Stub::GetJob, request);
  if (!job) return table.Leave(absl::StrCat(name, ": steps"), api.error());
  table.Compare(absl::StrCat(name, ": steps of the job, less those of rank 0"),
                static_cast<double>(job->job().iterations()) -
                    static_cast<double>(nodes.training().log(0).size()),
                "iterations", Bound::kEqual, 0);
}

void LoadHub(const HubPart& part, double minutes) {
  std::printf("\n%d nodes of %d ranks, %.3g iterations/s of each, %.3g minutes\n", part.nodes,
              part.ranks_of_node, 1000 / part.step_ms, minutes);
  HubProcess hub(part.folder / "load");
  PacedNodes nodes(TrainingOf(part), {.address = hub.address(), .host = "load"});
  for (int node = 0; node < part.nodes; ++node) {
    if (nodes.node(node).AwaitAcknowledged(1, absl::Seconds(30))) continue;
    return part.table.Leave("load",
                            absl::StrCat("the hub took no batch; ", nodes.node(node).error()));
  }
  Asker project(hub, [](Api& api) { return AskForProjection(api, kJob); });
  Asker fleet(hub,
              [](Api& api) { return api.Call(&v1::Profiler::Stub::GetFleet, {}).has_value(); });
  std::printf("%8s %10s %10s %10s %12s\n", "minutes", "hub s", "hub MiB", "store MiB", "waiting");
  const absl::Time begin = absl::Now();
  const double cpu_before_s = CpuSeconds(hub.pid());
  double half_mib = 0, last_mib = 0;
  for (int i = 1; i <= kSamples; ++i) {
    absl::SleepFor(begin + absl::Minutes(minutes * i / kSamples) - absl::Now());
    last_mib = MemoryStatus("VmRSS:", hub.pid()) / kMib;
    if (i == kSamples / 2) half_mib = last_mib;
    std::printf("%8.2f %10.1f %10.1f %10.1f %12lld\n", minutes * i / kSamples,
                CpuSeconds(hub.pid()) - cpu_before_s, last_mib,
                static_cast<double>(std::filesystem::file_size(hub.store())) / kMib,
                static_cast<long long>(nodes.waiting()));
    std::fflush(stdout);
  }
  const double wall_s = absl::ToDoubleSeconds(absl::Now() - begin);
  const double cpu_s = CpuSeconds(hub.pid()) - cpu_before_s;
  project.End();
  fleet.End();
  nodes.End();
  FigureTable& table = part.table;
  TellDifferences("load", nodes, hub, table);
  const auto reported = static_cast<double>(nodes.training().reported());
  table.Tell("load: CPU of the hub, share of a core", 100 * cpu_s / wall_s, "%");
  table.Tell("load: CPU of the hub for an iteration of a rank", 1e6 * cpu_s / reported, "us");
  table.Tell("load: memory of the hub at the end", last_mib, "MiB");
  table.Tell("load: growth of its memory, second half", 100 * (last_mib / half_mib - 1), "%");
  table.Tell("load: frames, for an iteration of a rank",
             static_cast<double>(nodes.frame_bytes()) / reported, "bytes");
  for (const auto& [name, asker] : {std::pair("project", &project), std::pair("fleet", &fleet)}) {
    const std::string under_load = absl::StrCat("load: ", name, " under load, ");
    table.Tell(under_load + "answers", static_cast<double>(asker->answers()), "");
    table.Compare(under_load + "refused", static_cast<double>(asker->refusals()), "", Bound::kEqual,
                  0);
    table.Tell(under_load + "p50", asker->Quantile(0.5), "ms");
    table.Compare(under_load + "p99", asker->Quantile(0.99), "ms", Bound::kAtMost, 20);
  }
}

void KillHub(const HubPart& part, int times) {
  std::printf("\n%d nodes of %d ranks, and the hub is killed %d times\n", part.nodes,
              part.ranks_of_node, times);
  HubProcess hub(part.folder / "kills");
  PacedNodes nodes(TrainingOf(part), {.address = hub.address(), .host = "kills"});
  std::mt19937_64 random(part.seed);
  const auto between = [&](int low_ms, int high_ms) {
    absl::SleepFor(absl::Milliseconds(std::uniform_int_distribution<int>(low_ms, high_ms)(random)));
  };
  double sum_s = 0, longest_s = 0;
  int recovered = 0;
  between(2000, 3000);
  for (int i = 0; i < times; ++i) {
    hub.Stop(SIGKILL);
    between(0, 500);
    hub.Start();
    const absl::Time started = absl::Now();
    // Everything that waited when the hub was back is in its store.
    std::vector<int64_t> last;
    for (int node = 0; node < part.nodes; ++node) last.push_back(nodes.node(node).last());
    bool all = true;
    for (int node = 0; node < part.nodes; ++node) {
      all &= nodes.node(node).AwaitAcknowledged(last[static_cast<size_t>(node)], absl::Seconds(60));
    }
    recovered += all;
    const double took_s = absl::ToDoubleSeconds(absl::Now() - started);
    std::printf("kill %d: %s after %.2f s\n", i + 1, all ? "recovered" : "NOT recovered", took_s);
    std::fflush(stdout);
    sum_s += took_s;
    longest_s = std::max(longest_s, took_s);
    between(500, 3000);
  }
  nodes.End();
  FigureTable& table = part.table;
  TellDifferences("kills", nodes, hub, table);
  table.Compare("kills: recovered within 60 s", recovered, "", Bound::kEqual, times);
  table.Tell("kills: until all that waited was stored, mean", sum_s / times, "s");
  table.Tell("kills: until all that waited was stored, longest", longest_s, "s");
}

}  // namespace seqpoint
