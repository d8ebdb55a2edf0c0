#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/base/statistics.h"
#include "daemon/ranks/change_kinds.h"
#include "daemon/ranks/window_compare.h"
#include "daemon/whatif/transform/graph_edits.h"

namespace seqpoint::ranks {
namespace {

using whatif::CpuTask;
using whatif::GpuTask;
using whatif::Graph;

// Scales kernels by the factor of their name.
uint64_t ScaleKernels(const std::map<std::string, double>& factors, Graph* graph) {
  std::vector<double> by_name(graph->names.size(), 1);
  for (size_t name = 0; name < by_name.size(); ++name) {
    const auto it = factors.find(graph->names[name]);
    if (it != factors.end()) by_name[name] = it->second;
  }
  uint64_t tasks = 0;
  for (GpuTask& task : graph->gpu) {
    if (task.kind != whatif::WorkKind::kKernel || by_name[task.name] == 1) continue;
    task.duration_ns = std::llround(static_cast<double>(task.duration_ns) * by_name[task.name]);
    ++tasks;
  }
  return tasks;
}

// What a thread's host does: its calls in order, each with the gaps before it.
struct HostCall {
  uint32_t call = 0;           // CPU task
  std::vector<uint32_t> gaps;  // CPU tasks before it
};
std::vector<std::vector<HostCall>> HostCallsOf(const Graph& graph) {
  std::vector<std::vector<HostCall>> threads;
  for (const std::vector<uint32_t>& order : graph.order) {
    std::vector<HostCall>& calls = threads.emplace_back();
    std::vector<uint32_t> gaps;
    for (const uint32_t t : order) {
      if (graph.cpu[t].call == whatif::kNone) {
        gaps.push_back(t);
      } else {
        calls.push_back({t, std::exchange(gaps, {})});
      }
    }
  }
  return threads;
}

bool SameCalls(const Graph& a, const std::vector<HostCall>& calls_a, const Graph& b,
               const std::vector<HostCall>& calls_b) {
  return std::equal(calls_a.begin(), calls_a.end(), calls_b.begin(), calls_b.end(),
                    [&](const HostCall& x, const HostCall& y) {
                      return a.names[a.cpu[x.call].name] == b.names[b.cpu[y.call].name];
                    });
}

int64_t GapsNs(const Graph& graph, const HostCall& call) {
  int64_t sum_ns = 0;
  for (const uint32_t t : call.gaps) sum_ns += graph.cpu[t].duration_ns;
  return sum_ns;
}

// Gives the host of a rank the times of its peers, call by call. False: it does not make the same
// calls as any peer.
bool TakeHostOf(const std::vector<size_t>& peers, const RankRecording& recorded, Graph* graph) {
  const std::vector<std::vector<HostCall>> own = HostCallsOf(*graph);
  std::vector<std::pair<const Graph*, std::vector<std::vector<HostCall>>>> others;
  for (const size_t p : peers) {
    const Graph& other = recorded.recording.graphs[p];
    std::vector<std::vector<HostCall>> calls = HostCallsOf(other);
    bool same = calls.size() == own.size();
    for (size_t thread = 0; same && thread < own.size(); ++thread) {
      same = SameCalls(*graph, own[thread], other, calls[thread]);
    }
    if (same) others.emplace_back(&other, std::move(calls));
  }
  if (others.empty()) return false;
  for (size_t thread = 0; thread < own.size(); ++thread) {
    for (size_t i = 0; i < own[thread].size(); ++i) {
      std::vector<int64_t> call_ns, gap_ns;
      for (const auto& [other, calls] : others) {
        call_ns.push_back(other->cpu[calls[thread][i].call].duration_ns);
        gap_ns.push_back(GapsNs(*other, calls[thread][i]));
      }
      const HostCall& call = own[thread][i];
      whatif::SetDuration(/*gpu=*/false, call.call, Median(call_ns), graph);
      const int64_t before_ns = GapsNs(*graph, call), after_ns = Median(gap_ns);
      for (const uint32_t t : call.gaps) {
        CpuTask& gap = graph->cpu[t];
        gap.duration_ns = before_ns == 0 ? 0 : gap.duration_ns * after_ns / before_ns;
      }
    }
  }
  return true;
}

// Ranks that take part in as many collectives of each kind, none of which is a send or receive.
std::vector<size_t> PeersOf(size_t rank, const RankRecording& recorded) {
  std::vector<std::map<std::pair<std::string, size_t>, int>> kinds(recorded.profiles.size());
  for (const JoinedCollective& collective : recorded.collectives) {
    for (const size_t r : collective.ranks) {
      ++kinds[r][{collective.function, collective.ranks.size()}];
    }
  }
  std::vector<size_t> peers;
  const bool sends = std::any_of(kinds[rank].begin(), kinds[rank].end(),
                                 [](const auto& kind) { return kind.first.first == "SendRecv"; });
  for (size_t r = 0; !sends && r < kinds.size(); ++r) {
    if (r != rank && kinds[r] == kinds[rank]) peers.push_back(r);
  }
  return peers;
}

const RankProfile* ProfileOfRank(const RankRecording& recorded, int32_t rank) {
  for (const RankProfile& profile : recorded.profiles) {
    if (profile.rank == rank) return &profile;
  }
  return nullptr;
}

}  // namespace

absl::StatusOr<RankEffect> WithoutSlowRank(int32_t rank, Recordings recordings,
                                           std::vector<Graph>* graphs) {
  const RankRecording& recorded = *recordings[0];
  size_t at = 0;
  while (at < recorded.profiles.size() && recorded.profiles[at].rank != rank) ++at;
  if (at == recorded.profiles.size()) {
    std::vector<int32_t> ranks;
    for (const RankProfile& profile : recorded.profiles) ranks.push_back(profile.rank);
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", rank, " is none of the traced ranks: ", absl::StrJoin(ranks, ", ")));
  }
  const std::vector<size_t> peers = PeersOf(at, recorded);
  if (peers.empty()) {
    return absl::FailedPreconditionError(absl::StrCat("no other rank does the same work as rank ",
                                                      rank,
                                                      ", so nothing says how fast it should be"));
  }
  std::vector<Compared> compared;
  for (const RankRecording* one : recordings) {
    Compared& of_one = compared.emplace_back();
    of_one.rank = ProfileOfRank(*one, rank);
    for (const size_t p : peers) {
      const RankProfile* peer = ProfileOfRank(*one, recorded.profiles[p].rank);
      if (peer != nullptr) of_one.reference.push_back(peer);
    }
    if (of_one.rank == nullptr || of_one.reference.empty()) compared.pop_back();
  }
  const KernelReference reference(compared);
  std::map<std::string, double> factors;
  for (const NameDifference& name : NameDifferencesOf(compared, reference)) {
    factors[name.name] = std::exp(-name.log_factor);
  }
  Graph& graph = (*graphs)[at];
  RankEffect effect;
  effect.tasks = ScaleKernels(factors, &graph);
  effect.assumptions.push_back(absl::StrCat(
      "kernels of rank ", rank, " take as long as those of its peers at the same lengths"));
  if (TakeHostOf(peers, recorded, &graph)) {
    effect.tasks += graph.cpu.size();
    effect.assumptions.push_back("its host takes as long for each call as its peers' hosts");
  } else {
    effect.assumptions.push_back("its host stays, as it makes other calls than its peers' hosts");
  }
  return effect;
}

}  // namespace seqpoint::ranks
