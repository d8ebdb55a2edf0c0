#include "daemon/ranks/rank_scores.h"

#include <algorithm>
#include <cmath>

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

double MiddleOf(const std::vector<double>& sorted) {
  return (sorted[(sorted.size() - 1) / 2] + sorted[sorted.size() / 2]) / 2;
}

}  // namespace

std::vector<Score> RankScores::Add(const JoinedIteration& iteration, const Roles& roles) {
  std::vector<Row> rows = Rows(iteration, roles);
  Compare(rows);
  std::vector<Score> scores;
  for (const Row& row : rows)
    if (row.compared) scores.push_back(LearnAndScore(row));
  return scores;
}

// Those ranks whose expected work is known.
std::vector<RankScores::Row> RankScores::Rows(const JoinedIteration& iteration,
                                              const Roles& roles) {
  std::vector<Row> rows;
  double longest = 0;
  for (const RankPart& part : iteration.ranks) {
    const auto work =
        static_cast<double>(part_ == Part::kExclusive ? part.exclusive_ns : part.outside_ns);
    if (!part.observed() || part.missed > 0 || part.distorted || !(work > 0)) continue;
    const int32_t role = roles.RoleOf(part.rank);
    Pending& pending = pending_[part.rank];
    if (pending.role != role) pending = {.role = role, .sums = {}};
    const WorkModel& model = roles_[role].model;
    const double expected = model.count() >= kModelCount ? model.Expect(part.lengths) : 0;
    // A stall is none of the lengths' doing.
    pending.sums.Add(part.lengths, expected > 0 ? std::min(work, kStallFactor * expected) : work);
    if (model.count() < kModelCount) Settle(part.rank, Finding::kOrdinary);
    if (!(expected > 0)) continue;
    Row& row = rows.emplace_back();
    row.rank = part.rank;
    row.role = role;
    row.alone = !roles.HasPeers(part.rank);
    row.slow = std::binary_search(slow_.begin(), slow_.end(), part.rank);
    row.expected = expected;
    row.ratio = std::log(work / expected);
    longest = std::max(longest, expected);
  }
  for (Row& row : rows) {
    const auto bin = std::lower_bound(kBinEnds.begin(), kBinEnds.end(), row.expected / longest);
    row.bin = static_cast<size_t>(bin - kBinEnds.begin());
    if (!row.alone) row.ratio -= roles_[row.role].bins[row.bin].mean;
  }
  return rows;
}

// A rank with peers is compared with those of them that are not slow. One without is compared with
// its own past, and with the other ranks without peers: as much as they all are slower has a common
// cause.
void RankScores::Compare(std::vector<Row>& rows) const {
  const auto group = [](const Row& row) { return row.alone ? -1 : row.role; };
  std::map<int32_t, std::vector<double>> ordinary;  // ratios, by group
  for (const Row& row : rows)
    if (!row.slow) ordinary[group(row)].push_back(row.ratio);
  for (auto& [role, ratios] : ordinary) std::sort(ratios.begin(), ratios.end());
  for (Row& row : rows) {
    std::vector<double> others = ordinary[group(row)];
    if (!row.slow) others.erase(std::lower_bound(others.begin(), others.end(), row.ratio));
    row.compared = row.alone || !others.empty();
    double common = others.empty() ? 0 : MiddleOf(others);
    // A rank without peers is not slow because the others are fast by chance.
    if (row.alone) common = std::max(common - roles_.at(row.role).bins[row.bin].deviation, 0.0);
    row.excess = row.ratio - common;
  }
}

Score RankScores::LearnAndScore(const Row& row) {
  Bin& bin = roles_[row.role].bins[row.bin];
  Score score = {.rank = row.rank, .excess = row.excess};
  if (bin.count >= kBinCount) {
    score.deviation = bin.deviation * noise_.deviation();
    noise_.Add(row.rank, row.excess / bin.deviation);
  }
  double& level = levels_[row.rank];
  const double distance = std::abs(row.excess - level);
  level += std::clamp(row.excess - level, -kStallRatio, kStallRatio) / kLevelMemory;
  if (row.slow) return score;
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
  if (finding == Finding::kOrdinary) roles_[pending.role].model.Learn(pending.sums);
  pending.sums = {};
}

double RankScores::Count(int32_t role) const {
  const auto at = roles_.find(role);
  return at == roles_.end() ? 0 : at->second.model.count();
}

double RankScores::Expect(int32_t role, const Lengths& lengths) const {
  const auto at = roles_.find(role);
  return at == roles_.end() ? 0 : at->second.model.Expect(lengths);
}

}  // namespace seqpoint::ranks
