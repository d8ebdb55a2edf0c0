#include "daemon/ranks/window_profile.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "daemon/base/statistics.h"

namespace seqpoint::ranks {
namespace {

template <typename Use>
void SetMedianAndSpread(const std::vector<double>& durations_ns, Use* use) {
  use->count = static_cast<double>(durations_ns.size());
  use->median_ns = Median(durations_ns);
  use->spread_ns = MedianDeviation(durations_ns, use->median_ns);
}

std::map<KernelKey, KernelUse> UsesOf(const trace::Trace& trace) {
  // By name as the trace numbers them, which is cheaper to look up than the text.
  using Id = std::tuple<uint32_t, std::array<uint32_t, 3>, std::array<uint16_t, 3>>;
  std::map<Id, std::vector<double>> durations_ns;
  for (const trace::Work& work : trace.works) {
    if (work.kind != trace::WorkKind::kKernel) continue;
    durations_ns[{work.name,
                  {work.grid[0], work.grid[1], work.grid[2]},
                  {work.block[0], work.block[1], work.block[2]}}]
        .push_back(static_cast<double>(work.end_ns - work.start_ns));
  }
  std::map<KernelKey, KernelUse> uses;
  for (const auto& [id, all_ns] : durations_ns) {
    const auto& [name, grid, block] = id;
    KernelUse& use = uses[{trace.names[name], grid, block}];
    SetMedianAndSpread(all_ns, &use);
    for (const double ns : all_ns) use.sum_ns += ns;
  }
  return uses;
}

}  // namespace

std::vector<RankProfile> ProfilesOf(absl::Span<const RankWindow> windows, const WindowJoin& join) {
  std::vector<RankTime> times = TimesOf(windows, join);
  std::vector<RankProfile> profiles;
  for (size_t w = 0; w < windows.size(); ++w) {
    profiles.push_back({windows[w].rank, windows[w].iteration, windows[w].lengths,
                        windows[w].disturbed, times[w], UsesOf(*windows[w].trace)});
  }
  std::map<TransferKey, std::vector<double>> transfers_ns;
  std::map<std::pair<std::vector<int32_t>, std::string>, uint32_t> unknown;
  for (const WindowCollective& collective : join.collectives) {
    TransferKey key = {collective.RanksOf(windows), collective.function, collective.bytes};
    if (key.bytes == 0) key.order = unknown[{key.ranks, key.function}]++;
    transfers_ns[std::move(key)].push_back(static_cast<double>(collective.transfer_ns));
  }
  for (const auto& [key, all_ns] : transfers_ns) {
    TransferUse use;
    SetMedianAndSpread(all_ns, &use);
    for (RankProfile& profile : profiles) {
      const bool takes_part = std::binary_search(key.ranks.begin(), key.ranks.end(), profile.rank);
      if (takes_part) profile.transfers[key] = use;
    }
  }
  return profiles;
}

}  // namespace seqpoint::ranks
