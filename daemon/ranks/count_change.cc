#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "daemon/ranks/change_kinds.h"

namespace seqpoint::ranks {
namespace {

using whatif::GpuTask;
using whatif::Graph;

// As many collectives of a window may lack a rank (WindowJoin::TooManyAlone).
constexpr double kFew = 0.05;
// What "most" means, as a share of the bytes: most collectives are of gradients in the one kind of
// job, of activations in the other.
constexpr double kMajority = 0.5;
// Transfers of which the law is not known may be off by this share of the iteration.
constexpr double kUnknown = 0.005;

// The share of the bytes that are in collectives of a size that no other iteration has. Those of
// gradients and parameters have the same sizes in each; one may be lost.
double ShareOfOwnSizes(Recordings recordings) {
  std::map<std::pair<std::string, uint64_t>, std::set<const RankRecording*>> sizes;
  for (const RankRecording* recording : recordings) {
    for (const JoinedCollective& collective : recording->collectives) {
      sizes[{collective.function, collective.bytes}].insert(recording);
    }
  }
  double all = 0, own = 0;
  for (const RankRecording* recording : recordings) {
    for (const JoinedCollective& collective : recording->collectives) {
      const auto bytes = static_cast<double>(collective.bytes);
      all += bytes;
      if (sizes[{collective.function, collective.bytes}].size() == 1) own += bytes;
    }
  }
  return recordings.size() > 1 && all > 0 ? own / all : 0;
}

// The share of the all-reduces' and reduce-scatters' bytes that work waits for before the next one
// is launched: on another lane, or because it comes behind in the same one.
double ShareWaitedFor(const RankRecording& recorded, const Graph& graph) {
  const std::vector<uint32_t> tasks = TasksOf(recorded, graph, /*turn=*/0);
  std::map<uint32_t, uint32_t> by_call;  // GPU tasks
  for (const uint32_t g : tasks) {
    if (g != whatif::kNone) by_call[graph.gpu[g].call] = g;
  }
  double all = 0, waited = 0;
  for (auto it = by_call.begin(); it != by_call.end(); ++it) {
    const GpuTask& task = graph.gpu[it->second];
    const JoinedCollective& collective =
        recorded.collectives[recorded.CollectiveOf(task.collective)];
    if (collective.function != "AllReduce" && collective.function != "ReduceScatter") continue;
    all += static_cast<double>(collective.bytes);
    const auto next = std::next(it);
    if (next == by_call.end()) continue;
    bool waits = IsWaitedFor(graph, it->second, next->second);
    for (uint32_t t = it->first + 1; t < next->first && !waits; ++t) {
      const uint32_t g = graph.cpu[t].first_work;
      waits = g != whatif::kNone && graph.gpu[g].lane == task.lane;
    }
    if (waits) waited += static_cast<double>(collective.bytes);
  }
  return all > 0 ? waited / all : 0;
}

// Why the work is split among the ranks in a way that tells nothing of other numbers of them; else
// empty.
std::string WhyOtherSplit(Recordings recordings, const std::vector<Graph>& graphs) {
  const RankRecording& recorded = *recordings[0];
  const size_t all = graphs.size();
  double of_few = 0;
  for (const JoinedCollective& collective : recorded.collectives) {
    if (collective.function == "SendRecv")
      return "ranks send to each other, as a pipeline's stages";
    of_few += collective.ranks.size() < all;
  }
  if (of_few > kFew * static_cast<double>(recorded.collectives.size())) {
    return "some collectives are of a part of the ranks";
  }
  if (ShareOfOwnSizes(recordings) > kMajority) {
    return "collectives have other sizes in other iterations, as those of activations";
  }
  if (ShareWaitedFor(recorded, graphs[0]) > kMajority) {
    return "most all-reduces and reduce-scatters are waited for one by one, as those of "
           "activations";
  }
  return "";
}

// A rank works on its shard between the last gradients and the next parameters.
// Answers how many kernels that are; 0: the ranks have no shards.
uint64_t ScaleShards(double factor, const RankRecording& recorded, Graph* graph) {
  std::map<size_t, uint32_t> reduced;  // the call of the last reduce-scatter, by turn
  std::vector<uint32_t> gathers;       // calls
  for (const GpuTask& task : graph->gpu) {
    if (task.collective == whatif::kNone || task.call == whatif::kNone) continue;
    const std::string& function =
        recorded.collectives[recorded.CollectiveOf(task.collective)].function;
    if (function == "AllGather") gathers.push_back(task.call);
    if (function != "ReduceScatter") continue;
    uint32_t& last = reduced[task.collective / recorded.collectives.size()];
    last = std::max(last, task.call);
  }
  if (gathers.empty()) return 0;
  std::sort(gathers.begin(), gathers.end());
  uint64_t tasks = 0;
  for (GpuTask& task : graph->gpu) {
    if (task.kind != whatif::WorkKind::kKernel || task.collective != whatif::kNone ||
        task.call == whatif::kNone) {
      continue;
    }
    const auto gather = std::lower_bound(gathers.begin(), gathers.end(), task.call);
    const bool shard = std::any_of(reduced.begin(), reduced.end(), [&](const auto& turn) {
      return turn.second < task.call &&
             (gather == gathers.begin() || *std::prev(gather) < turn.second);
    });
    if (!shard) continue;
    task.duration_ns = std::llround(static_cast<double>(task.duration_ns) * factor);
    ++tasks;
  }
  return tasks;
}

}  // namespace

absl::StatusOr<RankEffect> SetRanks(size_t count, Recordings recordings, const TransferLaws& laws,
                                    std::vector<Graph>* graphs) {
  const RankRecording& recorded = *recordings[0];
  const size_t all = graphs->size();
  if (const std::string why = WhyOtherSplit(recordings, *graphs); !why.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("how ", count, " ranks would share the work is not known: ", why));
  }
  RankEffect effect;
  // Nothing tells which part of their time depends on their bytes, where all have one size.
  double unknown_ns = 0;
  std::string unknown;
  effect.tasks = SetTransfers(
      recorded,
      [&](const JoinedCollective& collective) -> double {
        if (collective.ranks.size() != all) return -1;
        const auto now_ns = static_cast<double>(collective.transfer_ns);
        const auto bytes = static_cast<double>(collective.bytes);
        const std::optional<TransferLaw> law = laws.Of(collective.function, all);
        if (law && collective.bytes > 0) {
          // The law stays as far off for this one as it is.
          return now_ns / law->At(bytes) * Scaled(*law, collective.function, all, count).At(bytes);
        }
        const TransferLaw latency = {.fixed_ns = now_ns}, transfer = {.ns_per_byte = now_ns};
        const double one_ns = Scaled(latency, collective.function, all, count).At(1);
        const double other_ns = Scaled(transfer, collective.function, all, count).At(1);
        unknown_ns += std::abs(one_ns - other_ns) / 2;
        unknown = collective.function;
        return (one_ns + other_ns) / 2;
      },
      graphs);
  if (unknown_ns > kUnknown * recorded.IterationNs(recorded.recording.graphs)) {
    return absl::FailedPreconditionError(
        absl::StrCat("how long ", unknown, " takes among ", count,
                     " ranks is not known: that needs NCCL 2.26 or later, which tells the bytes, "
                     "and collectives of two sizes"));
  }
  if (effect.tasks == 0) {
    return absl::FailedPreconditionError("no collective of all ranks is in the windows");
  }
  uint64_t of_shards = 0;
  for (Graph& graph : *graphs) {
    of_shards +=
        ScaleShards(static_cast<double>(all) / static_cast<double>(count), recorded, &graph);
  }
  effect.tasks += of_shards;
  effect.assumptions = {"collectives are rings over links of the same latency and bandwidth",
                        "each rank has batches of its own as large as now"};
  if (of_shards > 0) {
    effect.assumptions.push_back(
        "kernels between an iteration's last reduce-scatter and the next all-gather work on a "
        "rank's shard");
  }
  return effect;
}

}  // namespace seqpoint::ranks
