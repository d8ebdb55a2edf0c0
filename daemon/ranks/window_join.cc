#include "daemon/ranks/window_join.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "daemon/base/statistics.h"
#include "daemon/ranks/collective_kernels.h"

namespace seqpoint::ranks {
namespace {

WindowCollective CollectiveOf(const JoinedKernels& joined) {
  WindowCollective collective;
  collective.function = FunctionOf(joined.kernels[0]->name);
  collective.bytes = joined.bytes;
  if (joined.record != nullptr) {
    collective.communicator = joined.record->communicator;
    collective.sequence = joined.record->sequence;
    if (joined.record->peer < 0) collective.function = joined.record->function;
  }
  for (const CollectiveKernel* kernel : joined.kernels) {
    collective.parts.push_back({kernel->window, kernel->work, kernel->end_ns - kernel->start_ns});
  }
  std::sort(collective.parts.begin(), collective.parts.end(),
            [](const CollectivePart& a, const CollectivePart& b) { return a.window < b.window; });
  const auto last = std::min_element(collective.parts.begin(), collective.parts.end(),
                                     [](const CollectivePart& a, const CollectivePart& b) {
                                       return a.duration_ns < b.duration_ns;
                                     });
  collective.last = static_cast<size_t>(last - collective.parts.begin());
  collective.transfer_ns = last->duration_ns;
  return collective;
}

// A kernel that carries out several sends and receives waits for the last of its peers.
void SetWaits(WindowJoin* join) {
  absl::flat_hash_map<std::pair<uint32_t, uint32_t>, int64_t> transfer_ns;  // by window and work
  for (const WindowCollective& collective : join->collectives) {
    for (const CollectivePart& part : collective.parts) {
      const auto [it, added] =
          transfer_ns.try_emplace({part.window, part.work}, collective.transfer_ns);
      if (!added) it->second = std::min(it->second, collective.transfer_ns);
    }
  }
  for (WindowCollective& collective : join->collectives) {
    for (CollectivePart& part : collective.parts) {
      part.wait_ns = part.duration_ns - transfer_ns[{part.window, part.work}];
    }
  }
}

// Where NCCL told what belongs together, the ends say how the clocks differ: the median, from one
// window to the next that shares collectives with it.
void AlignClocks(absl::Span<const RankWindow> windows, WindowJoin* join) {
  const auto end_ns = [&](const CollectivePart& part) {
    return windows[part.window].trace->works[part.work].end_ns;
  };
  std::map<std::pair<uint32_t, uint32_t>, std::vector<int64_t>> later;  // of the first's clock
  for (const WindowCollective& collective : join->collectives) {
    for (const CollectivePart& a : collective.parts) {
      for (const CollectivePart& b : collective.parts) {
        if (a.window != b.window) later[{a.window, b.window}].push_back(end_ns(a) - end_ns(b));
      }
    }
  }
  join->clock_behind_ns.assign(windows.size(), 0);
  std::vector<uint32_t> reached = {0};
  for (size_t i = 0; i < reached.size(); ++i) {
    for (auto& [pair, differences] : later) {
      const auto& [from, to] = pair;
      if (from != reached[i] || std::find(reached.begin(), reached.end(), to) != reached.end()) {
        continue;
      }
      join->clock_behind_ns[to] = join->clock_behind_ns[from] + Median(differences);
      reached.push_back(to);
    }
  }
}

void SetOrderAndSpread(absl::Span<const RankWindow> windows, WindowJoin* join) {
  const auto end_ns = [&](const CollectivePart& part) {
    return windows[part.window].trace->works[part.work].end_ns + join->clock_behind_ns[part.window];
  };
  std::stable_sort(join->collectives.begin(), join->collectives.end(),
                   [&](const WindowCollective& a, const WindowCollective& b) {
                     return end_ns(a.parts[0]) < end_ns(b.parts[0]);
                   });
  for (const WindowCollective& collective : join->collectives) {
    int64_t first_ns = std::numeric_limits<int64_t>::max();
    int64_t last_ns = std::numeric_limits<int64_t>::min();
    for (const CollectivePart& part : collective.parts) {
      first_ns = std::min(first_ns, end_ns(part));
      last_ns = std::max(last_ns, end_ns(part));
    }
    join->spread_ns = std::max(join->spread_ns, last_ns - first_ns);
  }
}

void CountAlone(const std::vector<WindowKernels>& kernels, WindowJoin* join) {
  absl::flat_hash_set<std::pair<uint32_t, uint32_t>> joined;  // window and work
  for (const WindowCollective& collective : join->collectives) {
    for (const CollectivePart& part : collective.parts) joined.insert({part.window, part.work});
  }
  for (const WindowKernels& of_window : kernels) join->kernels += of_window.size();
  join->alone = join->kernels - joined.size();
}

}  // namespace

std::vector<int32_t> WindowCollective::RanksOf(absl::Span<const RankWindow> windows) const {
  std::vector<int32_t> ranks;
  for (const CollectivePart& part : parts) ranks.push_back(windows[part.window].rank);
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

WindowJoin JoinWindows(absl::Span<const RankWindow> windows) {
  WindowJoin join;
  std::vector<WindowKernels> kernels = KernelsOf(windows);
  join.told = true;
  for (size_t w = 0; w < windows.size(); ++w) {
    if (kernels[w].empty()) continue;
    const std::string why = AssignRecords(windows[w], &kernels[w]);
    if (why.empty()) continue;
    join.told = false;
    if (!windows[w].records.empty()) join.mismatches.push_back(why);
  }
  const std::vector<JoinedKernels> joined =
      join.told ? JoinByRecords(windows, kernels, &join) : JoinByEnds(windows, kernels, &join);
  for (const JoinedKernels& one : joined) join.collectives.push_back(CollectiveOf(one));
  SetWaits(&join);
  if (join.told) AlignClocks(windows, &join);
  SetOrderAndSpread(windows, &join);
  CountAlone(kernels, &join);
  return join;
}

}  // namespace seqpoint::ranks
