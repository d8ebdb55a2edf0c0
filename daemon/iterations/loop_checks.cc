#include "daemon/iterations/loop_checks.h"

#include <algorithm>
#include <limits>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"

namespace seqpoint::iterations {
namespace {

using abi::Op;

// Time steps do not have so many different sizes, and an outer loop would have been recognised
// after so many loop iterations.
constexpr size_t kManySizes = 8;
constexpr uint32_t kOftenEnough = 12;
constexpr uint32_t kNever = std::numeric_limits<uint32_t>::max();

// Whether the values come back after the same number of loop iterations, more than one.
bool Periodic(const std::vector<uint32_t>& values) {
  constexpr size_t kMaxPeriod = 32;
  for (size_t period = 1; period <= kMaxPeriod && period * 2 < values.size(); ++period) {
    size_t same = 0;
    for (size_t i = period; i < values.size(); ++i) same += values[i] == values[i - period];
    if (same * 10 >= (values.size() - period) * 9) return period > 1;
  }
  return false;
}

}  // namespace

void MarkIrregular(const std::vector<KernelGroup>& groups, Loop* loop) {
  for (const KernelGroup& group : groups) {
    if (group.weight < 2 || group.weight * 10 < loop->group_weight) break;
    std::vector<uint32_t> counts;
    for (size_t iteration = 0; iteration < loop->iterations.size(); ++iteration) {
      counts.push_back(
          CountIn(group.at(), loop->iterations[iteration].first_launch, loop->EndOf(iteration)));
    }
    const auto [mode, share] = Mode(counts);
    if (mode == 0 || share < 0.7) continue;
    for (size_t iteration = 0; iteration < counts.size(); ++iteration) {
      loop->iterations[iteration].regular &= counts[iteration] <= mode;
    }
  }
}

uint32_t RareEnds(const LogWindow& window, const Loop& loop) {
  absl::flat_hash_map<uint32_t, uint32_t> ends;  // what -> loop iterations
  for (size_t iteration = 0; iteration < loop.iterations.size(); ++iteration) {
    const uint32_t end = loop.EndSegmentOf(iteration) - 1;
    if (window.OpAt(end) != Op::kGraphLaunch) ++ends[window.KindAt(end)];
  }
  uint32_t rare = 0;
  for (const auto& [kind, iterations] : ends) {
    if (iterations * 2 >= loop.iterations.size()) continue;
    uint32_t holding = 0;
    auto behind =
        loop.iterations.begin();  // the loop iteration after the one of the last occurrence
    for (const uint32_t at :
         window.occurrences.Of(Alphabet::kKind, kind, loop.iterations[0].first_launch, loop.end)) {
      const auto next = std::partition_point(
          behind, loop.iterations.end(),
          [at](const LoopIteration& iteration) { return iteration.first_launch <= at; });
      holding += next != behind ? 1 : 0;
      behind = next;
    }
    if (holding == iterations) rare += iterations;
  }
  return rare;
}

bool FirstIterationDiffers(const LogWindow& window, const Loop& loop) {
  constexpr size_t kEnoughIterations = 64;
  constexpr uint64_t kManyBytes = 65536;  // a memset of more than counters and scalars
  if (window.begin != 0 || !window.log.from_process_start() || loop.iterations.size() < 2)
    return true;
  const auto kind = [&window](uint32_t call) { return window.KindAt(call); };
  size_t iterations = std::min(loop.iterations.size(), kEnoughIterations);
  LoopIteration first = loop.iterations[0];
  uint32_t first_end = loop.EndSegmentOf(0);
  uint32_t later = 1;  // index of the first of the other loop iterations
  // The call that ends a loop iteration stands before the first one: that one started before, and
  // was not recognised.
  if (first.segment > 0 &&
      kind(first.segment - 1) == kind(loop.iterations[iterations - 1].segment - 1)) {
    const Positions same =
        window.occurrences.Of(Alphabet::kKind, kind(first.first_launch), 0, first.segment);
    if (same.empty()) return true;
    first_end = first.segment;
    first = {same[0], window.SegmentOf(same[0]), true};
    later = 0;
    const uint32_t usual = (loop.end_segment - loop.iterations[0].segment) /
                           static_cast<uint32_t>(loop.iterations.size());
    const uint32_t length = first_end - first.first_launch;
    if (length * 3 < usual || length > usual * 3) return true;
  }
  struct Presence {
    uint32_t iterations = 0;  // of the later ones
    uint32_t segments = 0;    // segments before their first launches
    uint32_t last_iteration = kNever, last_segment = kNever;
    bool in_first = false, in_first_segment = false;
  };
  std::vector<Presence> presence(window.log.symbol_count(Alphabet::kKind));
  for (uint32_t i = first.segment; i < first_end; ++i) {
    presence[kind(i)].in_first = true;
    presence[kind(i)].in_first_segment |= i < first.first_launch;
  }
  for (uint32_t iteration = later; iteration < iterations; ++iteration) {
    for (uint32_t i = loop.iterations[iteration].segment; i < loop.EndSegmentOf(iteration); ++i) {
      Presence& here = presence[kind(i)];
      here.iterations += here.last_iteration != iteration;
      here.last_iteration = iteration;
      if (i >= loop.iterations[iteration].first_launch) continue;
      here.segments += here.last_segment != iteration;
      here.last_segment = iteration;
    }
  }
  iterations -= later;
  const auto always = [iterations](uint32_t n) { return n * 10 >= iterations * 9; };
  const auto hardly = [iterations](uint32_t n) { return n * 10 <= iterations; };
  for (uint32_t i = first.segment; i < first_end; ++i) {
    const Op op = window.OpAt(i);
    const bool nvtx = op == Op::kNvtxPush || op == Op::kNvtxMark;
    if (!nvtx && op != Op::kMemset) continue;
    const bool in_segment = i < first.first_launch;
    if (hardly(in_segment ? presence[kind(i)].segments : presence[kind(i)].iterations) &&
        (nvtx || !in_segment || window.calls()[i].bytes > kManyBytes)) {
      return true;
    }
  }
  // Launches that initialise parameters on the GPU look like those that clear gradients.
  if (first.segment > 0 && presence[kind(first.segment - 1)].iterations == 0) return true;
  const size_t last = iterations + later - 1;
  for (uint32_t i = loop.iterations[last].segment; i < loop.EndSegmentOf(last); ++i) {
    const Op op = window.OpAt(i);
    const Presence& here = presence[kind(i)];
    const bool launches = IsLaunch(window.calls()[i].op) || op == Op::kMemset || op == Op::kCopyD2D;
    if (launches && always(here.iterations) && !here.in_first) return true;
    if (IsFeed(window.calls()[i]) && always(here.segments) && !here.in_first_segment) return true;
  }
  return false;
}

bool SizesVary(const LogWindow& window, const Loop& loop) {
  absl::flat_hash_set<double> sizes;
  size_t reversals = 0, changes = 0;
  std::vector<uint32_t> launches;
  double last = 0;
  int direction = 0;  // of the last change
  for (size_t iteration = 0; iteration < loop.iterations.size(); ++iteration) {
    double size = 0;
    for (uint32_t i = loop.iterations[iteration].first_launch; i < loop.EndOf(iteration); ++i) {
      if (window.OpAt(i) == Op::kGraphLaunch) size += window.KindAt(i);
      if (window.OpAt(i) == Op::kLaunch) size += Threads(window.calls()[i]);
    }
    sizes.insert(size);
    launches.push_back(
        window.CountLaunches(loop.iterations[iteration].first_launch, loop.EndOf(iteration)));
    const int change = (size > last) - (size < last);
    if (iteration > 0 && change != 0) {
      ++changes;
      reversals += change == -direction;
      direction = change;
    }
    last = size;
  }
  return sizes.size() >= kManySizes && reversals * 4 >= loop.iterations.size() &&
         changes * 4 >= (loop.iterations.size() - 1) * 3 && !Periodic(launches);
}

bool OthersPending(const LogWindow& window, const Loop& loop) {
  std::vector<uint32_t> iterations(window.log.symbol_count(Alphabet::kKind));
  std::vector<size_t> last(iterations.size(), SIZE_MAX);
  for (size_t iteration = 0; iteration <= loop.iterations.size(); ++iteration) {
    const bool complete = iteration < loop.iterations.size();
    const uint32_t begin = complete ? loop.iterations[iteration].first_launch : loop.end;
    const uint32_t end = complete ? loop.EndOf(iteration) : window.end;
    for (uint32_t i = begin; i < end; ++i) {
      const uint32_t kind = window.KindAt(i);
      iterations[kind] += last[kind] != iteration;
      last[kind] = iteration;
    }
  }
  const uint32_t often = std::min(kOftenEnough, static_cast<uint32_t>(loop.iterations.size()));
  return std::any_of(iterations.begin(), iterations.end(),
                     [often](uint32_t n) { return n > 0 && n < often; });
}

}  // namespace seqpoint::iterations
