#include "daemon/ranks/rank_scores.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "daemon/base/statistics.h"
#include "daemon/ranks/stage_scores.h"

namespace seqpoint::ranks {
namespace {

// A model is used when it has seen so many iterations of a rank, or of each of its peers together.
constexpr size_t kModelCount = 16;
// Values of a bin before its mean and deviation are used.
constexpr double kBinCount = 8;
// A bin remembers so many values, and a rank's level so many iterations.
constexpr double kBinMemory = 1024, kLevelMemory = 16;
// Upper ends of the bins, as shares of the longest expected work. Where collectives overlap, a rank
// shows its gaps from about nine tenths on.
constexpr std::array<double, 7> kBinEnds = {0.5, 0.65, 0.75, 0.85, 0.92, 0.97, 0.9999};
// Work that is so much longer than expected, and longer by kClip deviations, is a stall, in models;
// and logarithms beyond this, in bins.
constexpr double kStallExcess = 0.05;
constexpr double kStallRatio = 0.5;
// A distance beyond this many deviations counts as that many, so that a fifth of values that are
// far off make the deviation larger by two fifths. The standard deviation of normal values is so
// many times the mean of such distances.
constexpr double kDistance = 1.5, kOfDistances = 1.353;
// A rank without values for so many iterations is gone.
constexpr int64_t kForgotten = 1024;

}  // namespace

std::vector<Score> RankScores::Add(const JoinedIteration& iteration, const Roles& roles) {
  std::vector<Row> rows = Rows(iteration, roles);
  Compare(iteration.number, rows);
  std::vector<Score> scores;
  for (const Row& row : rows)
    if (row.compared) scores.push_back(LearnAndScore(row));
  return scores;
}

double RankScores::ExpectSurely(int32_t role, const Lengths& lengths) const {
  const auto at = roles_.find(role);
  if (at == roles_.end()) return 0;
  const WorkModel& model = at->second.model;
  const double expected = model.Expect(lengths);
  return model.Variance(TermsOf(lengths)) < expected * expected ? expected : 0;
}

size_t RankScores::BinOf(double expected, double longest) const {
  if (time_ == RankPart::Time::kOutside) return 0;
  const auto bin = std::lower_bound(kBinEnds.begin(), kBinEnds.end(), expected / longest);
  return static_cast<size_t>(bin - kBinEnds.begin());
}

// Those ranks whose expected work is known.
std::vector<RankScores::Row> RankScores::Rows(const JoinedIteration& iteration,
                                              const Roles& roles) {
  std::vector<Row> rows;
  if (!iteration.observed()) return rows;
  double longest = 0;
  for (const RankPart& part : iteration.ranks) {
    const double work = part.Ns(time_);
    const int32_t role = roles.RoleOf(part.rank);
    const double expected = ExpectSurely(role, part.lengths);
    longest = std::max(longest, expected);
    if (!part.observed() || part.missed > 0 || part.disturbed() || !(work > 0)) continue;
    Rank& rank = ranks_[part.rank];
    if (rank.role != role) rank.pending = {};
    rank.role = role;
    rank.group = roles.HasPeers(part.rank) ? role : kAlone;
    Learn(part, work, expected, rank);
    if (!(expected > 0)) {
      Settle(part.rank, rank.finding, rank.common);
      continue;
    }
    Row& row = rows.emplace_back();
    row.rank = part.rank;
    row.role = role;
    row.group = rank.group;
    row.expected = expected;
    row.ratio = std::log(work / expected);
  }
  for (Row& row : rows) {
    row.bin = BinOf(row.expected, longest);
    if (row.group != kAlone) row.ratio -= roles_[row.role].bins[row.bin].mean;
    Rank& rank = ranks_[row.rank];
    rank.ratio = row.ratio;
    rank.number = iteration.number;
  }
  return rows;
}

void RankScores::Learn(const RankPart& part, double work, double expected, Rank& rank) {
  Role& role = roles_[rank.role];
  if (role.model.count() > 0) {
    // A stall is none of the lengths' doing.
    const double limit = 1 + std::max(kStallExcess, kClip * role.deviation);
    if (expected > 0) work = std::clamp(work, expected / limit, expected * limit);
    rank.pending.Add(part.lengths, work);
    return;
  }
  role.first.push_back({part.lengths, work});
  if (role.first.size() < kModelCount) return;
  role.deviation = role.model.Start(role.first);
  role.first.clear();
}

// A rank shares the median of the others' ratios with them.
std::optional<double> RankScores::Common(int64_t number, const Row& row) const {
  return row.group == kAlone ? CommonOfStages(number, row) : CommonOfPeers(row);
}

// The latest ratios of the peers that are not slow, since the rank was last compared.
std::optional<double> RankScores::CommonOfPeers(const Row& row) const {
  const int64_t since = ranks_.at(row.rank).compared;
  std::vector<double> ratios;
  for (const auto& [other, rank] : ranks_)
    if (other != row.rank && rank.group == row.group && rank.number > since &&
        rank.finding != Finding::kSlow)
      ratios.push_back(rank.ratio);
  if (ratios.empty()) return std::nullopt;
  return MiddleOf(std::move(ratios));
}

// Stages of a pipeline work on the same batches, which differ by more than their lengths tell, on
// all stages alike. Each one is compared with its own past, less what the others share in the same
// iteration: their median, or where one of them would decide it, what they are slower by for sure.
std::optional<double> RankScores::CommonOfStages(int64_t number, const Row& row) const {
  size_t stages = 1;
  std::vector<double> ratios;
  for (const auto& [other, rank] : ranks_) {
    if (other == row.rank || rank.group != kAlone || rank.number < 0) continue;
    stages += rank.number + kForgotten > number;
    if (rank.number == number) ratios.push_back(rank.ratio);
  }
  const bool enough = ratios.size() + 1 >= StageScores::kLeast;
  if (time_ == RankPart::Time::kOutside && enough) return MiddleOf(std::move(ratios));
  // StageScores tells of their exclusive times.
  if (stages >= StageScores::kLeast) return std::nullopt;
  const double deviation = roles_.at(row.role).bins[row.bin].deviation;
  return ratios.empty() ? 0 : std::max(MiddleOf(std::move(ratios)) - deviation, 0.0);
}

void RankScores::Compare(int64_t number, std::vector<Row>& rows) {
  for (Row& row : rows) {
    const std::optional<double> common = Common(number, row);
    row.compared = common.has_value();
    row.excess = row.ratio - common.value_or(0);
  }
  for (const Row& row : rows)
    if (row.compared) ranks_[row.rank].compared = number;
}

Score RankScores::LearnAndScore(const Row& row) {
  Role& role = roles_[row.role];
  Bin& bin = role.bins[row.bin];
  Score score = {.rank = row.rank, .excess = row.excess};
  const bool binned = time_ == RankPart::Time::kExclusive;
  if (!binned || bin.count >= kBinCount) {
    const double scale = binned ? bin.deviation : 1;
    NoiseEstimate& noise = noises_[binned ? row.group : row.role];
    score.deviation = scale * noise.deviation();
    score.penalties = noise.penalties();
    noise.Add(row.rank, row.excess / scale);
  }
  if (binned) LearnBin(row, bin);
  return score;
}

void RankScores::LearnBin(const Row& row, Bin& bin) {
  Rank& rank = ranks_[row.rank];
  const double distance = std::abs(row.excess - rank.level);
  rank.level += std::clamp(row.excess - rank.level, -kStallRatio, kStallRatio) / kLevelMemory;
  if (rank.finding == Finding::kSlow) return;
  bin.count = std::min(bin.count + 1, kBinMemory);
  bin.mean += std::clamp(row.ratio, -kStallRatio, kStallRatio) / bin.count;
  const bool known = bin.count > kBinCount;
  const double limit = known ? kDistance * bin.deviation : kStallRatio;
  bin.deviation +=
      ((known ? kOfDistances : 1.25) * std::min(distance, limit) - bin.deviation) / bin.count;
  bin.deviation = std::max(bin.deviation, 1e-6);  // one part in a million: below any clock's
}

void RankScores::Settle(int32_t number, Finding finding, Finding common) {
  Rank& rank = ranks_[number];
  rank.finding = finding;
  rank.common = common;
  if (common == Finding::kSuspicious) return;
  if (common == Finding::kOrdinary) roles_[rank.role].model.Learn(rank.pending);
  rank.pending = {};
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
