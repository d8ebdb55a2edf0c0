#include "daemon/whatif/graph/late_starts.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "daemon/whatif/graph/tolerances.h"

namespace seqpoint::whatif {
namespace {

// Ends of work that are looked at for one late start. Real traces are far below the limit; without
// it, the graph of a hostile trace would take minutes.
constexpr ptrdiff_t kMostNear = 4096;

}  // namespace

// Some work starts later than all that explains, just when a kernel of another lane ends: the GPU
// had no room for both, or there was an event that the trace does not have. Work whose start this
// does not explain either is late.
LateStarts::LateStarts(const JoinedTrace& joined, const Gaps& gaps, Figures* figures)
    : j_(joined), gaps_(gaps) {
  shared_.assign(j_.works.size(), kNone);
  late_.assign(j_.works.size(), false);
  std::vector<std::pair<int64_t, uint32_t>> ends;
  ends.reserve(j_.works.size());
  for (uint32_t w = 0; w < j_.works.size(); ++w) ends.emplace_back(j_.works[w].end_ns, w);
  std::sort(ends.begin(), ends.end());
  for (uint32_t w = 0; w < j_.works.size(); ++w) {
    // Without a launch, and without work before it, only its start is known.
    if (!j_.HasLaunch(w) && j_.before[w] == kNone) continue;
    const Work& work = j_.works[w];
    int64_t ready_ns = gaps_.ReadyNs(w);
    if (const uint32_t wait = gaps_.LastWait(w); wait != kNone) {
      ready_ns = std::max(ready_ns, j_.works[wait].end_ns + gaps_.WaitGapOf(w));
    }
    if (work.start_ns - ready_ns <= kSoonNs || (j_.HasLaunch(w) && LateByCall(w))) {
      late_[w] = !j_.HasLaunch(w);  // nobody knows how much of it the launch was
      continue;
    }
    uint32_t best = kNone;
    auto it =
        std::lower_bound(ends.begin(), ends.end(), std::pair(work.start_ns - kSoonNs, uint32_t{0}));
    const auto far = ends.end() - it > kMostNear ? it + kMostNear : ends.end();
    for (; it != far && it->first <= work.start_ns + kLateNs; ++it) {
      const uint32_t other = it->second;
      const bool earlier =
          j_.InFlight(other) || (!j_.InFlight(w) && j_.call_of[other] < j_.call_of[w]);
      if (j_.lane_of[other] == j_.lane_of[w] || it->first <= ready_ns || !earlier ||
          j_.works[other].start_ns >= work.start_ns) {
        continue;
      }
      if (best == kNone ||
          std::abs(it->first - work.start_ns) < std::abs(j_.works[best].end_ns - work.start_ns)) {
        best = other;
      }
    }
    shared_[w] = best;
    if (best != kNone) {
      ++figures->shared;
    } else if (!j_.HasLaunch(w) || !LaunchBound(w)) {
      late_[w] = true;
      ++figures->unexplained;
      figures->unexplained_ns += work.start_ns - ready_ns;
    }
  }
}

// The call took so long itself (it loaded a module) that its work started when it was done.
bool LateStarts::LateByCall(uint32_t w) const {
  const Call& call = j_.CallAt(j_.call_of[w]);
  return !j_.IsLaterNode(w) && call.end_ns - call.begin_ns > gaps_.usual_latency_ns() + kSoonNs &&
         std::abs(j_.works[w].start_ns - call.end_ns) <= kSoonNs;
}

bool LateStarts::LaunchBound(uint32_t w) const {
  int64_t free_ns = kPast;
  if (j_.before[w] != kNone) free_ns = j_.works[j_.before[w]].end_ns + gaps_.GapOf(w);
  for (const uint32_t other : {gaps_.LastWait(w), shared_[w]}) {
    if (other != kNone) free_ns = std::max(free_ns, j_.works[other].end_ns + gaps_.WaitGapOf(w));
  }
  return j_.CallAt(j_.call_of[w]).begin_ns + gaps_.shortest_latency_ns() >= free_ns ||
         (j_.works[w].start_ns - free_ns > kSoonNs && LateByCall(w));
}

}  // namespace seqpoint::whatif
