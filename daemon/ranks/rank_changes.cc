#include "daemon/ranks/rank_changes.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "daemon/ranks/change_kinds.h"
#include "daemon/whatif/language/units.h"

namespace seqpoint::ranks {
namespace {

using whatif::GpuTask;
using whatif::Graph;

struct KindName {
  const char* name;
  const char* parameter;  // empty: none
  RankChangeKind kind;
  double least;
};
constexpr KindName kKinds[] = {
    {"without-slow-rank", "rank", RankChangeKind::kWithoutSlowRank, 0},
    {"balance-lengths", "", RankChangeKind::kBalanceLengths, 0},
    {"bucket-size", "bytes", RankChangeKind::kBucketSize, 1024},
    {"bandwidth", "factor", RankChangeKind::kBandwidth, 1e-3},
    {"ranks", "count", RankChangeKind::kRanks, 2},
};

constexpr double kMostValue = 1e15;

RankEffect SetBandwidth(double factor, const RankRecording& recorded, const TransferLaws& laws,
                        std::vector<Graph>* graphs) {
  bool all_known = true;
  RankEffect effect;
  effect.tasks = SetTransfers(
      recorded,
      [&](const JoinedCollective& collective) {
        const auto law = laws.Of(collective.function, collective.ranks.size());
        all_known &= law.has_value();
        const auto now_ns = static_cast<double>(collective.transfer_ns);
        const double fixed_ns = law ? std::min(law->fixed_ns, now_ns) : 0;
        return fixed_ns + (now_ns - fixed_ns) / factor;
      },
      graphs);
  effect.assumptions.push_back(
      "the latency of collectives stays, the time that depends on their bytes changes");
  if (!all_known) {
    effect.assumptions.push_back(
        "collectives of which only one size was seen, or whose bytes are not known, are taken to "
        "have no latency");
  }
  return effect;
}

}  // namespace

absl::StatusOr<RankChange> ParseRankChange(const std::string& text) {
  const std::string name = text.substr(0, text.find(','));
  for (const KindName& kind : kKinds) {
    if (name != kind.name) continue;
    const std::string parameter = kind.parameter;
    if (parameter.empty()) {
      if (text == name) return RankChange{kind.kind, 0};
      return absl::InvalidArgumentError(absl::StrCat(name, " has no parameter"));
    }
    const std::string before = absl::StrCat(name, ",", parameter, "=");
    const bool bytes = kind.kind == RankChangeKind::kBucketSize;
    const bool whole =
        kind.kind == RankChangeKind::kWithoutSlowRank || kind.kind == RankChangeKind::kRanks;
    absl::StatusOr<double> number = absl::InvalidArgumentError("no value");
    if (text.starts_with(before)) {
      const whatif::Unit unit = bytes ? whatif::Unit::kBytes : whatif::Unit::kNumber;
      number = whatif::ParseNumber(text.substr(before.size()), whatif::UnitsOf(unit));
    }
    if (!number.ok() || *number < kind.least || *number > kMostValue ||
        (whole && *number != std::floor(*number))) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", text, "\" lacks a value that can be used; for example: ", before,
                       bytes ? "50MB" : "2"));
    }
    return RankChange{kind.kind, *number};
  }
  return absl::InvalidArgumentError(
      absl::StrCat("\"", text,
                   "\" is none of without-slow-rank, balance-lengths, bucket-size, bandwidth, "
                   "ranks"));
}

absl::StatusOr<RankEffect> ApplyToRanks(const RankChange& change, const RankRecording& recorded,
                                        absl::Span<const RankRecording* const> others,
                                        std::vector<Graph>* graphs) {
  std::vector<const RankRecording*> all = {&recorded};
  all.insert(all.end(), others.begin(), others.end());
  switch (change.kind) {
    case RankChangeKind::kWithoutSlowRank:
      return WithoutSlowRank(static_cast<int32_t>(change.value), all, graphs);
    case RankChangeKind::kBalanceLengths:
      return absl::InvalidArgumentError(
          "balance-lengths is no change of windows: the lengths of all iterations tell it");
    case RankChangeKind::kBucketSize:
      return SetBucketSize(change.value, recorded, TransferLaws(all), graphs);
    case RankChangeKind::kBandwidth:
      return SetBandwidth(change.value, recorded, TransferLaws(all), graphs);
    case RankChangeKind::kRanks:
      return SetRanks(static_cast<size_t>(change.value), all, TransferLaws(all), graphs);
  }
  return absl::InvalidArgumentError("no such change");
}

}  // namespace seqpoint::ranks
