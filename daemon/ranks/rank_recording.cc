#include "daemon/ranks/rank_recording.h"

#include <algorithm>
#include <map>
#include <utility>

#include "daemon/base/disjoint_sets.h"
#include "daemon/whatif/graph/repeat.h"

namespace seqpoint::ranks {
namespace {

// One number for all collectives that share a kernel.
std::vector<uint32_t> NumbersOf(const WindowJoin& join, uint32_t* count) {
  DisjointSets sets(join.collectives.size());
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> first;  // by window and work
  for (uint32_t c = 0; c < join.collectives.size(); ++c) {
    for (const CollectivePart& part : join.collectives[c].parts) {
      const auto [it, added] = first.try_emplace({part.window, part.work}, c);
      if (!added) sets.Join(it->second, c);
    }
  }
  std::map<size_t, uint32_t> numbers;
  std::vector<uint32_t> result;
  for (uint32_t c = 0; c < join.collectives.size(); ++c) {
    const auto [it, added] = numbers.try_emplace(sets.Find(c), *count);
    if (added) ++*count;
    result.push_back(it->second);
  }
  return result;
}

}  // namespace

double RankRecording::IterationNs(const std::vector<whatif::Graph>& graphs) const {
  const std::vector<double> steps = whatif::Steps(whatif::Durations(recording, graphs));
  return counted < steps.size() ? steps[counted] : 0;
}

RankRecording RecordRanks(absl::Span<const RankWindow> windows, const WindowJoin& join, int turns) {
  RankRecording recorded;
  recorded.profiles = ProfilesOf(windows, join);
  // The iteration before the last one: the last one has no next, and the first ones began idle.
  recorded.counted = static_cast<size_t>(std::max(turns - 2, 0));
  uint32_t count = 0;
  const std::vector<uint32_t> numbers = NumbersOf(join, &count);
  recorded.collectives.resize(count);
  whatif::KnownCollectives known;
  known.clock_behind_ns = join.clock_behind_ns;
  known.alone = join.alone;
  std::vector<whatif::RecordedRank> ranks;
  for (const RankWindow& window : windows) {
    ranks.push_back({*window.trace, {window.begin_ns}, 1});
    known.numbers.emplace_back(window.trace->works.size(), trace::kNone);
  }
  for (size_t c = 0; c < join.collectives.size(); ++c) {
    const WindowCollective& collective = join.collectives[c];
    JoinedCollective& joined = recorded.collectives[numbers[c]];
    joined.function = collective.function;
    joined.bytes += collective.bytes;
    joined.transfer_ns = std::max(joined.transfer_ns, collective.transfer_ns);
    for (const CollectivePart& part : collective.parts) {
      joined.ranks.push_back(part.window);
      known.numbers[part.window][part.work] = numbers[c];
    }
  }
  for (JoinedCollective& joined : recorded.collectives) {
    std::sort(joined.ranks.begin(), joined.ranks.end());
    joined.ranks.erase(std::unique(joined.ranks.begin(), joined.ranks.end()), joined.ranks.end());
  }
  recorded.recording = whatif::MakeRecording(std::move(ranks), &known);
  for (size_t r = 0; r < windows.size(); ++r) {
    const RankWindow& window = windows[r];
    whatif::Graph& graph = recorded.recording.graphs[r];
    graph = whatif::RepeatGraph(graph, *window.trace, turns, window.begin_ns, window.end_ns, count);
    recorded.recording.ranks[r] = window.rank;
    recorded.recording.measured_ns[r].assign(static_cast<size_t>(std::max(turns - 1, 1)),
                                             recorded.profiles[r].time.iteration_ns);
  }
  return recorded;
}

}  // namespace seqpoint::ranks
