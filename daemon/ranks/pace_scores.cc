#include "daemon/ranks/pace_scores.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "daemon/base/statistics.h"

namespace seqpoint::ranks {
namespace {

// Times of a piece before its model is used: two for each of the model's terms.
constexpr size_t kFirstTimes = 2 * WorkSums::kTerms;
// A piece that is shorter than this share of the mean piece tells nothing of the work: most are
// the microsecond between two collectives of one stream.
constexpr double kLeastPiece = 0.5;
// Pieces, so that the median is none that the first time of a length made longer.
constexpr size_t kLeastPieces = 3;
// More pieces are added up to so many.
constexpr size_t kMostPieces = 32;
// Another number of pieces in so many iterations in a row: the job has changed.
constexpr int64_t kChanged = 16;
// Work that is so much longer than expected, and longer by kClip deviations, is a stall.
constexpr double kPieceStall = 0.05;

std::vector<double> PiecesOf(const RankPart& part) {
  const size_t gaps = part.gaps_ns.size();
  std::vector<double> pieces(1 + std::min(gaps, kMostPieces - 1));
  pieces[0] = static_cast<double>(part.outside_ns);
  for (size_t i = 0; i < gaps; ++i)
    pieces[1 + i * (pieces.size() - 1) / gaps] += static_cast<double>(part.gaps_ns[i]);
  return pieces;
}

// The median of times / expected times, where there are enough.
std::optional<double> MedianRatio(const std::vector<double>& times,
                                  const std::vector<double>& expected) {
  const double mean =
      std::accumulate(expected.begin(), expected.end(), 0.0) / static_cast<double>(expected.size());
  std::vector<double> ratios;
  for (size_t i = 0; i < times.size(); ++i)
    if (expected[i] > kLeastPiece * mean) ratios.push_back(times[i] / expected[i]);
  if (ratios.size() < kLeastPieces) return std::nullopt;
  const double middle = MiddleOf(std::move(ratios));
  return middle > 0 ? std::optional(middle) : std::nullopt;
}

bool AreAlike(const std::vector<const RankPart*>& parts) {
  return HaveEqualLengths(parts) &&
         std::all_of(parts.begin(), parts.end(), [&](const RankPart* part) {
           return part->gaps_ns.size() == parts.front()->gaps_ns.size();
         });
}

bool TellsOfPieces(const RankPart& part) {
  return part.observed() && part.missed + part.unmatched == 0 && !part.distorted &&
         part.duration_ns > 0;
}

}  // namespace

std::vector<Score> PaceScores::Add(const JoinedIteration& iteration, const Roles& roles) {
  std::map<int32_t, std::vector<const RankPart*>> peers;  // by role
  for (const RankPart& part : iteration.ranks)
    if (TellsOfPieces(part) && roles.HasPeers(part.rank))
      peers[roles.RoleOf(part.rank)].push_back(&part);
  std::vector<Score> scores;
  for (const auto& [number, parts] : peers) {
    Role& role = roles_[number];
    if (AreAlike(parts)) {
      CompareAlike(parts, role, scores);
      continue;
    }
    for (const RankPart* part : parts)
      if (part->hardly_waited()) CompareWithModel(*part, role, scores);
  }
  return scores;
}

// Equal lengths in one iteration need no model.
void PaceScores::CompareAlike(const std::vector<const RankPart*>& parts, Role& role,
                              std::vector<Score>& scores) {
  std::vector<Pieces> times;
  for (const RankPart* part : parts) times.push_back(PiecesOf(*part));
  std::vector<Pieces> expected(parts.size());
  for (size_t piece = 0; piece < times.front().size(); ++piece) {
    std::vector<double> of_ranks;
    for (const Pieces& of_rank : times) of_ranks.push_back(of_rank[piece]);
    const std::vector<double> middles = MiddlesOfOthers(of_ranks);
    for (size_t rank = 0; rank < parts.size(); ++rank) expected[rank].push_back(middles[rank]);
  }
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    const std::optional<double> pace = MedianRatio(times[rank], expected[rank]);
    if (!pace) continue;
    scores.push_back({.rank = parts[rank]->rank,
                      .excess = std::log(*pace),
                      .deviation = role.alike.deviation(),
                      .penalties = role.alike.penalties()});
    role.alike.Add(parts[rank]->rank, std::log(*pace));
  }
}

void PaceScores::CompareWithModel(const RankPart& part, Role& role, std::vector<Score>& scores) {
  const Pieces times = PiecesOf(part);
  const bool fits = role.pieces.size() == times.size();
  if (!fits && !role.pieces.empty() && ++role.unlike < kChanged) return;
  if (!fits) role = {.pieces = std::vector<Piece>(times.size())};
  role.unlike = 0;
  Pieces expected = ExpectSurely(part.lengths, role);
  for (size_t i = 0; i < times.size(); ++i) Learn(part.lengths, times[i], role.pieces[i]);
  if (const std::optional<double> pace = MedianRatio(times, expected))
    scores.push_back(role.scores.Add(part.rank, *pace));
}

// 0 where a fit is less sure than one time is: the lengths are unlike those it has learned from.
PaceScores::Pieces PaceScores::ExpectSurely(const Lengths& lengths, const Role& role) {
  const LengthTerms terms = TermsOf(lengths);
  Pieces expected;
  for (const Piece& piece : role.pieces) {
    const double time_ns = piece.model.Expect(terms);
    const bool sure = piece.model.Variance(terms) < time_ns * time_ns;
    expected.push_back(sure ? time_ns : 0);
  }
  return expected;
}

void PaceScores::Learn(const Lengths& lengths, double time_ns, Piece& piece) {
  if (!(time_ns > 0)) return;
  if (piece.model.count() > 0) {
    const double expected_ns = piece.model.Expect(lengths);
    // A stall is none of the lengths' doing.
    const double limit = 1 + std::max(kPieceStall, kClip * piece.deviation);
    if (expected_ns > 0) time_ns = std::clamp(time_ns, expected_ns / limit, expected_ns * limit);
    piece.pending.Add(lengths, time_ns);
    return;
  }
  piece.first.push_back({lengths, time_ns});
  if (piece.first.size() < kFirstTimes) return;
  piece.deviation = piece.model.Start(piece.first);
  piece.first.clear();
}

void PaceScores::Settle(bool slow) {
  for (auto& [number, role] : roles_) {
    for (Piece& piece : role.pieces) {
      if (!slow && piece.pending.count > 0) piece.model.Learn(piece.pending);
      piece.pending = {};
    }
  }
}

}  // namespace seqpoint::ranks
