#include "daemon/iterations/common_subsequence.h"

#include <algorithm>
#include <utility>

namespace seqpoint::iterations {

using abi::Op;

std::vector<uint32_t> BatchCopies(const LogWindow& window, Positions anchors) {
  const Positions all =
      window.occurrences.Of(Alphabet::kKind, window.log.SymbolOf(Alphabet::kKind, Op::kCopyH2D),
                            window.begin, window.end);
  uint64_t threshold = UINT64_MAX;
  auto next = std::lower_bound(all.begin(), all.end(), anchors[0]);
  for (size_t iteration = 0; iteration + 1 < anchors.size(); ++iteration) {
    uint64_t largest = 0;
    for (; next != all.end() && *next < anchors[iteration + 1]; ++next) {
      largest = std::max(largest, window.calls()[*next].bytes);
    }
    threshold = std::min(threshold, largest);
  }
  threshold /= 4;
  std::vector<uint32_t> copies;
  if (threshold == 0) return copies;
  const uint32_t group =
      (anchors.back() - anchors[0]) / static_cast<uint32_t>(anchors.size() - 1) / 20;
  uint32_t last = 0;
  for (uint32_t i : all) {
    if (window.calls()[i].bytes < threshold) continue;
    if (copies.empty() || i - last > group) {
      // Before the first anchor only the last copy counts: the others are evaluation's.
      if (i <= anchors[0]) copies.clear();
      copies.push_back(i);
    }
    last = i;
  }
  return copies;
}

CommonSubsequence FindCommonSubsequence(const LogWindow& window, const KernelGroup& group) {
  const Positions anchors = group.at();
  const size_t iterations = anchors.size() - 1;
  CommonSubsequence places;
  const auto add = [&](const Member& member, Positions at) {
    Place place{member, {}, {}};
    // The launch at or after each call. In ascending order each call is looked at once.
    uint32_t next = window.begin;
    for (uint32_t call : at) {
      next = std::max(next, call);
      while (next < window.end && !IsLaunch(window.calls()[next].op)) ++next;
      if (next == window.end) break;
      place.all.push_back(next);
    }
    size_t iteration = 0;
    for (uint32_t launch : place.all) {
      if (launch < anchors[iteration]) continue;
      if (launch >= anchors[iteration + 1]) return;
      place.at.push_back(launch);
      if (++iteration == iterations) break;
    }
    if (place.at.size() == iterations) places.push_back(std::move(place));
  };
  for (const Member& member : group.members) add(member, member.at);
  const std::vector<uint32_t> copies = BatchCopies(window, anchors);
  if (Interleave(copies, anchors)) add(Member{Alphabet::kKind, 0, {}}, copies);

  const size_t middle = iterations / 2;
  std::stable_sort(places.begin(), places.end(), [middle](const Place& a, const Place& b) {
    return a.at[middle] < b.at[middle];
  });
  CommonSubsequence subsequence;
  for (Place& place : places) {
    if (!subsequence.empty()) {
      // It is another symbol of the same launch, or one whose order changes from loop iteration to
      // loop iteration.
      bool ascending = true;
      for (size_t iteration = 0; iteration < iterations; ++iteration) {
        ascending &= place.at[iteration] > subsequence.back().at[iteration];
      }
      if (!ascending) continue;
    }
    subsequence.push_back(std::move(place));
  }
  return subsequence;
}

}  // namespace seqpoint::iterations
