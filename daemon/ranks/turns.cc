#include "daemon/ranks/turns.h"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace seqpoint::ranks {
namespace {

// Episodes in turn that are more than chance.
constexpr size_t kInTurn = 3;
// The ends of episodes are known to this many iterations, and to a quarter of their length.
constexpr int64_t kBlur = 16;

struct Turn {
  int32_t rank;
  int64_t first, last;
  int64_t length() const { return last - first; }
};

bool Follows(const Turn& turn, const Turn& before) {
  return turn.rank != before.rank && turn.first > before.last - kBlur - before.length() / 4;
}

}  // namespace

std::set<int32_t> RanksInTurn(const Verdicts& verdicts) {
  std::vector<Turn> turns;
  for (const RankVerdict& verdict : verdicts.ranks)
    for (const Episode& episode : verdict.episodes)
      turns.push_back(
          {verdict.rank, episode.first, episode.last < 0 ? verdicts.last : episode.last});
  std::sort(turns.begin(), turns.end(),
            [](const Turn& a, const Turn& b) { return a.first < b.first; });
  size_t from = turns.empty() ? 0 : turns.size() - 1;
  while (from > 0 && Follows(turns[from], turns[from - 1])) --from;
  turns.erase(turns.begin(), turns.begin() + static_cast<ptrdiff_t>(from));
  if (turns.size() < kInTurn) return {};
  const Turn& newest = turns.back();
  const auto longest =
      std::max_element(turns.begin(), turns.end() - 1,
                       [](const Turn& a, const Turn& b) { return a.length() < b.length(); });
  if (newest.length() > 2 * longest->length() + kBlur) return {};
  std::set<int32_t> ranks;
  for (const Turn& turn : turns) ranks.insert(turn.rank);
  return ranks;
}

}  // namespace seqpoint::ranks
