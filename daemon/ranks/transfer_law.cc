#include "daemon/ranks/transfer_law.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "daemon/ranks/length_line.h"

namespace seqpoint::ranks {
namespace {

// Messages that each rank sends one after the other in a ring of `ranks`, and how often the bytes
// pass each link.
struct RingShape {
  double steps = 1;
  double share = 1;
};
RingShape RingOf(const std::string& function, double ranks) {
  if (function == "AllReduce") return {2 * (ranks - 1), 2 * (ranks - 1) / ranks};
  if (function == "AllGather" || function == "ReduceScatter") {
    return {ranks - 1, (ranks - 1) / ranks};
  }
  if (function == "Broadcast" || function == "Reduce") return {ranks - 1, 1};
  return {};
}

TransferLaw LawOf(const std::vector<LengthPoint>& points) {
  TransferLaw law;
  law.least_bytes = UINT64_MAX;
  // Two sizes make a line, too.
  double slope_sum = 0, weight = 0;
  for (size_t i = 0; i < points.size(); ++i) {
    const auto bytes = static_cast<uint64_t>(points[i].length);
    law.least_bytes = std::min(law.least_bytes, bytes);
    law.most_bytes = std::max(law.most_bytes, bytes);
    for (size_t k = i + 1; k < points.size(); ++k) {
      const double by = points[k].length - points[i].length;
      slope_sum += by * (points[k].value - points[i].value);
      weight += by * by;
    }
  }
  law.ns_per_byte = std::max(0.0, slope_sum / weight);
  double fixed_sum = 0;
  for (const LengthPoint& point : points) fixed_sum += point.value - law.ns_per_byte * point.length;
  law.fixed_ns = std::max(0.0, fixed_sum / static_cast<double>(points.size()));
  double squares = 0;
  for (const LengthPoint& point : points) {
    const double off = law.At(point.length) / point.value - 1;
    squares += off * off;
  }
  law.error = std::sqrt(squares / static_cast<double>(points.size()));
  return law;
}

}  // namespace

TransferLaws::TransferLaws(absl::Span<const RankRecording* const> recordings) {
  std::map<std::pair<std::string, size_t>, std::map<uint64_t, LengthPoint>> sums;
  for (const RankRecording* recording : recordings) {
    for (const JoinedCollective& collective : recording->collectives) {
      if (collective.bytes == 0 || collective.transfer_ns <= 0) continue;
      LengthPoint& sum = sums[{collective.function, collective.ranks.size()}][collective.bytes];
      sum.length += 1;
      sum.value += static_cast<double>(collective.transfer_ns);
    }
  }
  for (const auto& [kind, by_bytes] : sums) {
    if (by_bytes.size() < 2) continue;
    std::vector<LengthPoint> points;
    for (const auto& [bytes, sum] : by_bytes) {
      points.push_back({static_cast<double>(bytes), sum.value / sum.length});
    }
    laws_[kind] = LawOf(points);
  }
}

std::optional<TransferLaw> TransferLaws::Of(const std::string& function, size_t ranks) const {
  const auto it = laws_.find({function, ranks});
  if (it == laws_.end()) return std::nullopt;
  return it->second;
}

TransferLaw Scaled(TransferLaw law, const std::string& function, size_t from, size_t to) {
  const RingShape now = RingOf(function, static_cast<double>(from));
  const RingShape then = RingOf(function, static_cast<double>(to));
  law.fixed_ns *= then.steps / now.steps;
  law.ns_per_byte *= then.share / now.share;
  return law;
}

}  // namespace seqpoint::ranks
