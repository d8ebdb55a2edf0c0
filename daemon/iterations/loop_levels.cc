#include "daemon/iterations/loop_levels.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "daemon/base/statistics.h"

namespace seqpoint::iterations {
namespace {

using abi::CallRecord;
using abi::Op;

// A launch over all parameters of a model has at least this many.
constexpr double kManyThreads = 16384;

struct Stretch {
  uint32_t begin, end;
};

// Share of the stream, from the first occurrence to its end, in which occurrences follow each other
// at a usual distance. The larger of the shares in time and in calls counts: a host that runs
// before the GPU is fast at first and then waits at each launch.
double Coverage(const LogWindow& window, Positions at, uint32_t end) {
  if (at.size() < 2) return 0;
  constexpr size_t kSample = 128;  // gives the median well enough
  std::vector<uint64_t> distances(at.size() - 1), sample;
  const auto covered = [&](uint64_t all) {
    sample.clear();
    const size_t stride = distances.size() / kSample + 1;
    for (size_t i = 0; i < distances.size(); i += stride) sample.push_back(distances[i]);
    const uint64_t median = Median(sample);
    uint64_t sum = 0;
    for (uint64_t distance : distances) sum += distance <= 8 * median ? distance : median;
    return all > 0 ? static_cast<double>(sum) / static_cast<double>(all) : 0;
  };
  for (size_t i = 0; i < distances.size(); ++i) distances[i] = window.TimeBetween(at[i], at[i + 1]);
  const double in_time = covered(window.TimeBetween(at.front(), end - 1));
  for (size_t i = 0; i < distances.size(); ++i) distances[i] = at[i + 1] - at[i];
  return std::max(in_time, covered(end - 1 - at.front()));
}

// Share of graph launches that follow one another without another launch in between.
double GraphShare(const LogWindow& window, uint32_t begin, uint32_t end) {
  const Positions at = window.occurrences.Of(
      Alphabet::kSized, window.log.SymbolOf(Alphabet::kSized, Op::kGraphLaunch), begin, end);
  uint32_t alone = 0;
  for (size_t i = 1; i < at.size(); ++i) alone += window.CountLaunches(at[i - 1], at[i]) == 1;
  return at.size() < 2 ? 0 : static_cast<double>(alone) / static_cast<double>(at.size() - 1);
}

// Stretches between consecutive occurrences, those that hold an occurrence of `special` or those
// that hold none. A few suffice.
std::vector<Stretch> Stretches(const LogWindow& window, Positions at, Positions special,
                               bool want_special) {
  constexpr size_t kEnough = 8;
  std::vector<Stretch> stretches;
  for (size_t i = at.size() - 1; i-- > 0 && stretches.size() < kEnough;) {
    if ((CountIn(special, at[i], at[i + 1]) > 0) == want_special) {
      stretches.push_back({at[i], at[i + 1]});
    }
  }
  return stretches;
}

double MeanLaunches(const LogWindow& window, const std::vector<Stretch>& stretches) {
  double launches = 0;
  for (const Stretch& stretch : stretches)
    launches += window.CountLaunches(stretch.begin, stretch.end);
  return launches / static_cast<double>(stretches.size());
}

// Host-to-device copies of at least so many bytes.
double BatchCopies(const LogWindow& window, const Stretch& stretch, uint64_t least_bytes) {
  double copies = 0;
  for (uint32_t i = stretch.begin; i < stretch.end; ++i) {
    copies += window.OpAt(i) == Op::kCopyH2D && window.calls()[i].bytes >= least_bytes;
  }
  return copies;
}

// In the mean.
double BatchCopiesIn(const LogWindow& window, const std::vector<Stretch>& stretches,
                     uint64_t least_bytes) {
  double copies = 0;
  for (const Stretch& stretch : stretches) copies += BatchCopies(window, stretch, least_bytes);
  return copies / static_cast<double>(stretches.size());
}

double MostBatchCopies(const LogWindow& window, const std::vector<Stretch>& stretches,
                       uint64_t least_bytes) {
  double most = 0;
  for (const Stretch& stretch : stretches) {
    most = std::max(most, BatchCopies(window, stretch, least_bytes));
  }
  return most;
}

absl::flat_hash_map<uint32_t, uint32_t> CountKinds(const LogWindow& window,
                                                   const Stretch& stretch) {
  absl::flat_hash_map<uint32_t, uint32_t> counts;
  for (uint32_t i = stretch.begin; i < stretch.end; ++i) {
    if (IsLaunch(window.calls()[i].op)) ++counts[window.KindAt(i)];
  }
  return counts;
}

// Is `step` the loop of which `inner` is only a part? `strongest`: the strength of the strongest
// loop found within so far. Cheap questions first.
bool IsStepOf(const LogWindow& window, const KernelGroup& step, const KernelGroup& inner,
              double strongest) {
  if (step.count() >= inner.count()) return false;
  if (std::none_of(step.members.begin(), step.members.end(),
                   [&](const Member& m) { return IsOwnLaunch(window, m); })) {
    return false;
  }
  const Positions at = step.at();
  // A kernel that is picked for some lengths only comes and goes; a loop spans its parts.
  const size_t spanned = CountIn(inner.at(), at.front(), at.back());
  if (spanned * 10 < inner.count() * 6) return false;
  std::vector<uint32_t> inner_counts;
  for (size_t i = 0; i + 1 < at.size(); ++i) {
    inner_counts.push_back(CountIn(inner.at(), at[i], at[i + 1]));
  }
  if (inner_counts.size() < 2) return false;
  const auto [mode, share] = Mode(inner_counts);
  if (mode == 0) return false;

  const bool regular = mode > 1 && share >= 0.8 && inner_counts.size() >= 3;
  const bool comparable = step.strength * (mode == 1 ? 2 : 4) >= strongest;
  if (!regular && !comparable) return false;
  const std::vector<Stretch> special = Stretches(window, inner.at(), at, true);
  const std::vector<Stretch> plain = Stretches(window, inner.at(), at, false);
  if (special.size() < 2 || plain.empty()) return false;
  // Forward passes without a step are evaluation, which shares the forward calls of training and is
  // shorter. A kernel that is picked for some lengths only is absent now and then, too.
  if (mode == 1) return MeanLaunches(window, plain) < 0.75 * MeanLaunches(window, special);

  // Batches are copied in an evaluation phase between iterations, and not for a step.
  uint64_t batch_bytes = 0;
  for (const Stretch& stretch : plain) {
    for (uint32_t i = stretch.begin; i < stretch.end; ++i) {
      if (window.OpAt(i) == Op::kCopyH2D)
        batch_bytes = std::max(batch_bytes, window.calls()[i].bytes);
    }
  }
  const double copies = BatchCopiesIn(window, plain, batch_bytes / 4);
  // A step does not have few batches now and many then.
  if (copies > 0 && !regular) return false;
  // The first stages of a pipeline take several batches at the start of a step and none at its end:
  // no more than one for each part of it.
  if (copies > 0 && BatchCopiesIn(window, special, batch_bytes / 4) >= 2 * copies &&
      BatchCopiesIn(window, Stretches(window, at, inner.at(), true), batch_bytes / 4) >
          mode * MostBatchCopies(window, plain, batch_bytes / 4)) {
    return false;
  }

  std::vector<absl::flat_hash_map<uint32_t, uint32_t>> in_special, in_plain;
  for (const Stretch& stretch : special) in_special.push_back(CountKinds(window, stretch));
  for (const Stretch& stretch : plain) in_plain.push_back(CountKinds(window, stretch));

  // Most kinds of launches happen only around the step: `inner` repeats within a loop iteration
  // (time steps, layers).
  absl::flat_hash_set<uint32_t> all, repeated;
  for (const auto& counts : in_special) {
    for (const auto& [symbol, count] : counts) all.insert(symbol);
  }
  for (const auto& counts : in_plain) {
    for (const auto& [symbol, count] : counts) {
      all.insert(symbol);
      repeated.insert(symbol);
    }
  }
  if (comparable && repeated.size() * 10 <= all.size() * 7) return true;

  // Calls that happen once in each plain stretch, and twice in each special one, are an evaluation
  // phase between iterations, not a step over several of them.
  if (!regular) return false;
  uint32_t again = 0;
  for (const auto& [symbol, count] : in_plain[0]) {
    const auto happens = [symbol = symbol](const auto& counts) {
      auto it = counts.find(symbol);
      return it == counts.end() ? 0u : it->second;
    };
    again += std::all_of(in_plain.begin(), in_plain.end(),
                         [&](const auto& counts) { return happens(counts) == 1; }) &&
             std::all_of(in_special.begin(), in_special.end(),
                         [&](const auto& counts) { return happens(counts) >= 2; });
  }
  if (again >= std::max<uint32_t>(2, inner.weight / 5)) return false;

  // Gradient accumulation and several optimisers have launches over all parameters. A loss that is
  // logged every n-th iteration has none.
  std::vector<double> inner_threads;
  for (const Member& member : inner.members) {
    if (IsOwnLaunch(window, member)) inner_threads.push_back(Threads(window.calls()[member.at[0]]));
  }
  const double median = Median(std::move(inner_threads));
  uint32_t own_launches = 0;
  bool large = false;
  for (const Member& member : step.members) {
    if (!IsOwnLaunch(window, member)) continue;
    if (member.alphabet == Alphabet::kSized) ++own_launches;
    const CallRecord& call = window.calls()[member.at[0]];
    large |= call.op == static_cast<uint8_t>(Op::kGraphLaunch) ||
             Threads(call) >= std::min(median, kManyThreads);
  }
  return large || own_launches >= 3;
}

}  // namespace

bool IsOwnLaunch(const LogWindow& window, const Member& member) {
  return IsLaunch(window.calls()[member.at[0]].op) &&
         (member.alphabet == Alphabet::kKind || member.alphabet == Alphabet::kSized);
}

std::vector<KernelGroup> StrongestGroups(LogWindow* window, size_t min_iterations) {
  const auto size = static_cast<uint32_t>(window->log.size());
  const auto hole = static_cast<uint32_t>(window->log.after_hole());
  // Start-up and warm-up calls hide the groups at the start of the stream. As little of it is
  // dropped as gives about the best score.
  std::vector<KernelGroup> groups;
  for (uint32_t part : {0u, 1u, 2u}) {
    const uint32_t begin = hole + (size - hole) / 4 * part;
    std::vector<KernelGroup> found = FindKernelGroups(window->log, window->occurrences, begin, size,
                                                      std::max<size_t>(3, min_iterations));
    // Calls that only evaluation makes alternate as well, but not all the time.
    double strongest = 0;
    for (const KernelGroup& group : found) strongest = std::max(strongest, group.strength);
    // They are not stronger than the graphs that training launches, either.
    if (GraphShare(*window, begin, size) >= 0.6) {
      for (KernelGroup& group : found) group.strength += group.graphs ? strongest : 0;
      strongest *= 2;
    }
    for (KernelGroup& group : found) {
      if (group.strength < strongest / 8) continue;
      group.score = group.strength * Coverage(*window, group.at(), size);
    }
    std::stable_sort(found.begin(), found.end(),
                     [](const KernelGroup& a, const KernelGroup& b) { return a.score > b.score; });
    if (found.empty() || (!groups.empty() && found[0].score * 3 <= groups[0].score * 4)) {
      continue;
    }
    groups = std::move(found);
    window->begin = begin;
    // Little of a group like this is hidden.
    if (groups[0].strength >= 8 && groups[0].score >= 0.8 * groups[0].strength) break;
  }
  window->end = size;
  return groups;
}

const KernelGroup* Base(const LogWindow& window, const std::vector<KernelGroup>& groups) {
  const KernelGroup* base = &groups[0];
  for (int i = 0; i < 4; ++i) {
    const KernelGroup* finer = nullptr;
    for (const KernelGroup& group : groups) {
      if (group.score < 0.5 * base->score) break;
      if (group.count() * 5 < base->count() * 6 || IsStepOf(window, *base, group, group.strength))
        continue;
      finer = &group;
      break;
    }
    if (finer == nullptr) break;
    base = finer;
  }
  return base;
}

const KernelGroup* ExtendToOuterLoop(const LogWindow& window, const KernelGroup& from,
                                     double strongest, const std::vector<KernelGroup>& groups) {
  const KernelGroup* best = nullptr;
  for (const KernelGroup& group : groups) {
    if (&group == &from || group.count() < 3) continue;
    // The smallest step up comes first: forward pass to training iteration, then micro-batches to
    // steps.
    if (best != nullptr && group.count() <= best->count()) continue;
    if (IsStepOf(window, group, from, strongest)) best = &group;
  }
  return best;
}

bool OnlyReadsBack(const LogWindow& window, const KernelGroup& group) {
  return std::all_of(group.members.begin(), group.members.end(), [&window](const Member& member) {
    const Op op = window.OpAt(member.at[0]);
    return !IsOwnLaunch(window, member) &&
           (op == Op::kLaunch || op == Op::kCopyD2H || BlocksHost(op) || op == Op::kEventRecord ||
            op == Op::kStreamWait);
  });
}

const KernelGroup* AtBatches(const std::vector<uint32_t>& batches,
                             const std::vector<KernelGroup>& groups, KernelGroup* own) {
  const KernelGroup* best = nullptr;
  for (const KernelGroup& group : groups) {
    if (best != nullptr && group.strength <= best->strength) continue;
    // The loop may go on a little before the first batch that is counted, and after the last.
    const Positions at = group.at();
    const auto first = std::lower_bound(at.begin(), at.end(), batches.front());
    const auto end = std::upper_bound(first, at.end(), batches.back());
    const Positions between(first, static_cast<size_t>(end - first));
    if (at.size() <= batches.size() + 2 && Interleave(batches, between)) best = &group;
  }
  if (best != nullptr) return best;
  own->members.push_back({Alphabet::kKind, 0, batches});
  own->weight = 1;
  own->strength = 1;
  return own;
}

}  // namespace seqpoint::iterations
