#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "daemon/iterations/start_evidence.h"

namespace seqpoint::iterations {

void JudgeStepCalls(const LogWindow& window, const CommonSubsequence& subsequence,
                    const KernelGroup& step, const KernelGroup& inner,
                    std::vector<Evidence>* places) {
  if (&step == &inner) return;
  absl::flat_hash_set<uint32_t> step_only;
  for (const Member& member : step.members) {
    if (member.alphabet == Alphabet::kKind) step_only.insert(member.symbol);
  }
  const auto kind = [&window](uint32_t call) { return window.KindAt(call); };
  const auto times = [&](uint32_t call) {
    return window.occurrences.Of(Alphabet::kKind, kind(call), window.begin, window.end).size();
  };
  // The launch before `segment` belongs to the step.
  const auto after_step = [&](uint32_t segment) {
    if (segment == 0) return false;
    const size_t n = times(segment - 1);
    return step_only.contains(kind(segment - 1)) || (n >= step.count() && n < inner.count());
  };
  // Whether it is launched in (almost) every loop iteration of `inner`, not many times in each
  // step.
  const auto in_each = [&](uint32_t call) {
    const Positions at =
        window.occurrences.Of(Alphabet::kKind, kind(call), window.begin, window.end);
    const Positions iterations = inner.at();
    size_t holding = 0;
    for (auto it = at.begin(); it != at.end();) {
      const auto end = std::upper_bound(iterations.begin(), iterations.end(), *it);
      ++holding;
      it = end == iterations.end() ? at.end() : std::lower_bound(it, at.end(), *end);
    }
    return holding + 2 >= iterations.size();
  };
  const size_t middle = subsequence[0].at.size() / 2;
  for (size_t i = 0; i < subsequence.size(); ++i) {
    const uint32_t launch = subsequence[i].at[middle];
    if (step_only.contains(kind(launch)) || !after_step(window.SegmentOf(launch)) ||
        !in_each(launch)) {
      continue;
    }
    // A launch after the batch's copy that only the step has clears the gradients: the start lies
    // before it.
    size_t place = i;
    for (size_t before = i; before > 0 && place == i; --before) {
      const uint32_t clears = subsequence[before - 1].at[middle];
      if (!step_only.contains(kind(clears))) break;
      const uint32_t segment = window.SegmentOf(clears);
      const bool fed =
          std::any_of(window.calls().begin() + segment, window.calls().begin() + clears, IsFeed);
      if (fed && after_step(segment)) place = before - 1;
    }
    (*places)[place].score += 3;
    (*places)[place].words.push_back("follows what only the step launches");
  }
}

}  // namespace seqpoint::iterations
