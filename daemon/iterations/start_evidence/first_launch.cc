#include <algorithm>
#include <utility>

#include "daemon/iterations/loop_levels.h"
#include "daemon/iterations/start_evidence.h"

namespace seqpoint::iterations {

void JudgeFirstEver(const LogWindow& window, const CommonSubsequence& subsequence,
                    std::vector<Evidence>* places) {
  const size_t n = subsequence.size();
  std::vector<std::pair<uint32_t, size_t>> first;
  for (size_t i = 0; i < n; ++i) {
    const Member& member = subsequence[i].member;
    if (member.symbol == 0 || !IsLaunch(window.calls()[member.at[0]].op)) continue;
    const Positions ever = window.occurrences.Of(member.alphabet, member.symbol, 0, window.end);
    // A symbol that was also used while parameters were made says nothing.
    if (ever.size() > member.at.size() + 1) continue;
    first.push_back({ever[0], i});
  }
  if (first.size() < 2 || n < 2) return;
  std::sort(first.begin(), first.end());
  // In cyclic order the sequence descends exactly once, at the start.
  size_t descents = 0;
  for (size_t i = 0; i + 1 < first.size(); ++i) descents += first[i + 1].second < first[i].second;
  if (descents > 1 + first.size() / 10) return;
  // A place that is recognised by the call before it is missing from the first loop iteration. If
  // its launch is there all the same, the loop started with it.
  size_t begin = first[0].second;
  while (true) {
    const size_t before = begin == 0 ? n - 1 : begin - 1;
    const Member& member = subsequence[before].member;
    if (member.symbol != 0 && IsOwnLaunch(window, member)) break;
    const uint32_t kind = window.KindAt(subsequence[before].at[0]);
    const Positions ever = window.occurrences.Of(Alphabet::kKind, kind, 0, window.end);
    if (ever.empty() || ever[0] >= first[0].first || before == first[0].second) break;
    begin = before;
  }
  Evidence& place = (*places)[begin];
  if (window.log.from_process_start()) {
    place.score += 3;
    place.words.push_back("the process' first launch of the loop");
  } else {
    place.score += 0.5;
    place.words.push_back("first launch of the recorded stream");
  }
}

}  // namespace seqpoint::iterations
