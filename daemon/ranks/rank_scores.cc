#include "daemon/ranks/rank_scores.h"

#include <algorithm>
#include <cmath>

#include "daemon/base/statistics.h"

namespace seqpoint::ranks {
namespace {

// A model is used when it has seen so many iterations of a rank, or of each of its peers together.
constexpr double kModelCount = 16;
// Values of a bin before its mean and deviation are used.
constexpr double kBinCount = 8;
// A bin remembers so many values, and a rank's level so many iterations.
constexpr double kBinMemory = 1024, kLevelMemory = 16;
// Upper ends of the bins, as shares of the longest expected work. Where collectives overlap, a rank
// shows its gaps from about nine tenths on.
constexpr std::array<double, 7> kBinEnds = {0.5, 0.65, 0.75, 0.85, 0.92, 0.97, 0.9999};
// Work beyond this many times what is expected is a stall, in models; and logarithms beyond this,
// in bins.
constexpr double kStallFactor = 1.5;
constexpr double kStallRatio = 0.5;

// The median of `sorted` without one element that equals `value`.
double MedianWithout(const std::vector<double>& sorted, double value) {
  const auto at = std::lower_bound(sorted.begin(), sorted.end(), value) - sorted.begin();
  const auto nth = [&](int64_t i) { return sorted[static_cast<size_t>(i < at ? i : i + 1)]; };
  const auto count = static_cast<int64_t>(sorted.size()) - 1;
  return (nth((count - 1) / 2) + nth(count / 2)) / 2;
}

}  // namespace

std::vector<Score> RankScores::Add(const JoinedIteration& iteration, const Roles& roles) {
  std::vector<Row> rows = Rows(iteration, roles);
  Compare(rows);
  std::vector<Score> scores;
  for (const Row& row : rows) scores.push_back(LearnAndScore(row));
  return scores;
}

// Those ranks whose model is ready.
std::vector<RankScores::Row> RankScores::Rows(const JoinedIteration& iteration,
                                              const Roles& roles) {
  std::vector<Row> rows;
  std::vector<double> expected;
  for (const RankPart& part : iteration.ranks) {
    const auto work =
        static_cast<double>(part_ == Part::kExclusive ? part.exclusive_ns : part.outside_ns);
    if (!part.observed() || part.missed > 0 || part.distorted || !(work > 0)) continue;
    const int32_t role = roles.RoleOf(part.rank);
    Pending& pending = pending_[part.rank];
    if (pending.role != role) pending = {.role = role, .sums = {}};
    WorkModel& model = models_[role];
    const double expect = model.count() >= kModelCount ? model.Expect(part.lengths) : 0;
    if (expect > 0) {
      rows.push_back({.rank = part.rank, .role = role, .ratio = std::log(work / expect)});
      expected.push_back(expect);
    }
    // A stall is none of the lengths' doing.
    pending.sums.Add(part.lengths, expect > 0 ? std::min(work, kStallFactor * expect) : work);
    if (model.count() < kModelCount) Settle(part.rank, Finding::kOrdinary);
  }
  const double longest = expected.empty() ? 0 : *std::max_element(expected.begin(), expected.end());
  for (size_t i = 0; i < rows.size(); ++i) {
    const double share = expected[i] / longest;
    rows[i].bin = static_cast<size_t>(std::lower_bound(kBinEnds.begin(), kBinEnds.end(), share) -
                                      kBinEnds.begin());
    rows[i].ratio -= bins_[rows[i].bin].mean;
  }
  return rows;
}

// A rank with peers is compared with them. One without is compared with its own past, and with the
// other ranks without peers: as much as they all are slower has a common cause.
void RankScores::Compare(std::vector<Row>& rows) const {
  std::map<int32_t, int> sizes;
  for (const Row& row : rows) ++sizes[row.role];
  std::map<int32_t, std::vector<double>> ratios, ordinary;  // by role; -1: ranks without peers
  for (Row& row : rows) {
    row.alone = sizes[row.role] == 1;
    const int32_t group = row.alone ? -1 : row.role;
    ratios[group].push_back(row.ratio);
    if (!std::binary_search(slow_.begin(), slow_.end(), row.rank))
      ordinary[group].push_back(row.ratio);
  }
  for (auto& [role, values] : ordinary) std::sort(values.begin(), values.end());
  for (Row& row : rows) {
    const std::vector<double>& others = ordinary[row.alone ? -1 : row.role];
    const bool slow = std::binary_search(slow_.begin(), slow_.end(), row.rank);
    double common = 0;
    if (slow && !others.empty())
      common = (others[(others.size() - 1) / 2] + others[others.size() / 2]) / 2;
    if (!slow && others.size() > 1) common = MedianWithout(others, row.ratio);
    // A rank without peers is not slow because the others are fast by chance.
    if (row.alone) common = std::max(common - bins_[row.bin].deviation, 0.0);
    row.excess = row.ratio - common;
  }
}

Score RankScores::LearnAndScore(const Row& row) {
  Bin& bin = bins_[row.bin];
  Score score = {.rank = row.rank, .excess = row.excess};
  if (bin.count >= kBinCount) {
    score.deviation = bin.deviation * noise_.deviation();
    noise_.Add(row.rank, row.excess / bin.deviation);
  }
  double& level = levels_[row.rank];
  const double distance = std::abs(row.excess - level);
  level += std::clamp(row.excess - level, -kStallRatio, kStallRatio) / kLevelMemory;
  if (std::binary_search(slow_.begin(), slow_.end(), row.rank)) return score;
  bin.count = std::min(bin.count + 1, kBinMemory);
  bin.mean += std::clamp(row.ratio, -kStallRatio, kStallRatio) / bin.count;
  const double limit = bin.count > kBinCount ? kClip * bin.deviation : kStallRatio;
  bin.deviation += (1.25 * std::min(distance, limit) - bin.deviation) / bin.count;
  bin.deviation = std::max(bin.deviation, 1e-6);  // one part in a million: below any clock's
  return score;
}

void RankScores::Settle(int32_t rank, Finding finding) {
  const auto at = std::lower_bound(slow_.begin(), slow_.end(), rank);
  const bool was_slow = at != slow_.end() && *at == rank;
  if (finding == Finding::kSlow && !was_slow) slow_.insert(at, rank);
  if (finding != Finding::kSlow && was_slow) slow_.erase(at);
  if (finding == Finding::kSuspicious) return;
  Pending& pending = pending_[rank];
  if (finding == Finding::kOrdinary) models_[pending.role].Learn(pending.sums);
  pending.sums = {};
}

double RankScores::Count(int32_t role) const {
  const auto at = models_.find(role);
  return at == models_.end() ? 0 : at->second.count();
}

double RankScores::Expect(int32_t role, const Lengths& lengths) const {
  const auto at = models_.find(role);
  return at == models_.end() ? 0 : at->second.Expect(lengths);
}

}  // namespace seqpoint::ranks
