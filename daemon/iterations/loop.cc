#include "daemon/iterations/loop.h"

#include <algorithm>

#include "absl/strings/str_join.h"
#include "daemon/iterations/common_subsequence.h"
#include "daemon/iterations/graph_loop.h"
#include "daemon/iterations/log_window.h"
#include "daemon/iterations/loop_checks.h"
#include "daemon/iterations/loop_levels.h"
#include "daemon/iterations/outer_loop.h"
#include "daemon/iterations/start_evidence.h"

namespace seqpoint::iterations {

using abi::CallRecord;

std::optional<Loop> FindLoop(const LaunchLog& stream, const Occurrences& occurrences,
                             size_t min_iterations) {
  LogWindow window{stream, occurrences};
  const std::vector<KernelGroup> groups = StrongestGroups(&window, min_iterations);
  if (groups.empty()) return std::nullopt;

  const KernelGroup* step = Base(window, groups);
  const KernelGroup* inner = step;
  const auto extend = [&] {
    double strongest = step->strength;
    while (const KernelGroup* above = ExtendToOuterLoop(window, *step, strongest, groups)) {
      // The forward pass alone is a part of the iteration, not a loop inside it.
      inner = step;
      step = above;
      strongest = std::max(strongest, step->strength);
    }
  };
  extend();
  if (step->count() < 2) return std::nullopt;

  Loop loop;
  KernelGroup batches;
  bool reads_back = false;
  // A loop with a step of its own around its parts is no part of an iteration.
  const bool small = step->weight < kWholeNetwork;
  const bool parts = inner->count() * 5 >= step->count() * 9 &&
                     CountIn(inner->at(), step->at()[1], step->at()[1] + 1) == 0;
  const OuterLoop outer = FindOuterLoop(stream, step->at());
  loop.batches_uneven = outer.batches_uneven;
  if (small && !parts) loop.iterations_per_batch = outer.iterations_per_batch;
  if (small && !parts && !outer.batches.empty() && !outer.unsure) {
    loop.copy_alone = outer.copy_alone;
    step = inner = AtBatches(outer.batches, groups, &batches);
    extend();
  } else {
    loop.shares_batches = !outer.batches.empty();
    reads_back = !parts && OnlyReadsBack(window, *step);
    loop.outer_unsure = small && !parts && (outer.unsure || reads_back);
  }
  if (step->count() < min_iterations + 1) return std::nullopt;

  loop.group_weight = step->weight;
  for (const KernelGroup& group : groups) {
    if (&group != step) loop.runner_up_weight = std::max(loop.runner_up_weight, group.weight);
  }
  if (!FindGraphIterations(*step, &window, &loop)) {
    const CommonSubsequence subsequence = FindCommonSubsequence(window, *step);
    if (subsequence.empty()) return std::nullopt;
    const std::vector<Evidence> places = JudgeStarts(window, subsequence, *step, *inner);
    size_t best = 0;
    for (size_t i = 1; i < places.size(); ++i) {
      if (places[i].score > places[best].score) best = i;
    }
    double second = 0;
    for (size_t i = 0; i < places.size(); ++i) {
      if (i != best) second = std::max(second, places[i].score);
    }
    loop.start_margin = places[best].score - second;
    loop.evidence = absl::StrJoin(places[best].words, ", ");
    for (size_t i = 0; i < places.size(); ++i) {
      if (places[i].score == 0) continue;
      loop.places.push_back(
          {subsequence[i].at.back(), places[i].score, absl::StrJoin(places[i].words, ", ")});
    }
    if (inner != step) {
      std::vector<uint32_t> counts;
      for (size_t i = 0; i + 1 < step->count(); ++i) {
        counts.push_back(CountIn(inner->at(), step->at()[i], step->at()[i + 1]));
      }
      const auto [mode, share] = Mode(counts);
      if (share >= 0.8) loop.inner_iterations = std::max(1u, mode);
    }
    for (uint32_t at : subsequence[best].all)
      loop.iterations.push_back({at, window.SegmentOf(at), true});
  }
  if (loop.iterations.size() < 2) return std::nullopt;
  // The last one starts an incomplete loop iteration.
  loop.end = loop.iterations.back().first_launch;
  loop.end_segment = loop.iterations.back().segment;
  loop.iterations.pop_back();
  if (loop.iterations.size() < min_iterations) return std::nullopt;
  MarkIrregular(groups, &loop);
  size_t with_host = 0, with_threads = 0;
  for (size_t iteration = 0; iteration < loop.iterations.size(); ++iteration) {
    const auto begin = stream.calls().begin() + loop.iterations[iteration].segment;
    const auto end = stream.calls().begin() + loop.EndSegmentOf(iteration);
    const bool threads = std::any_of(begin, end, [begin](const CallRecord& call) {
      return IsLaunch(call.op) && call.thread_id != begin->thread_id;
    });
    with_threads += threads;
    with_host += threads || std::any_of(begin, end, IsHostCall);
  }
  loop.outer_unsure = loop.outer_unsure && with_threads * 2 < loop.iterations.size();
  loop.rare_ends = RareEnds(window, loop);
  loop.first_differs = loop.graph_period == 0 && FirstIterationDiffers(window, loop);
  loop.host_share = static_cast<double>(with_host) / static_cast<double>(loop.iterations.size());
  if (loop.host_share < 0.5 || loop.outer_unsure) {
    loop.sizes_vary = !reads_back && !outer.batches_astray && SizesVary(window, loop);
    loop.others_pending = OthersPending(window, loop);
  }
  return loop;
}

}  // namespace seqpoint::iterations
