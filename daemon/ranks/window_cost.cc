#include "daemon/ranks/window_cost.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "daemon/ranks/window_compare.h"

namespace seqpoint::ranks {
namespace {

// Costs of whole jobs were off by this share of them, whatever their windows differed by
// (docs/internals/rank-windows.md): a standard deviation.
constexpr double kMethodError = 0.05;

// What the others wait for the rank where they meet: without it the second to last one would be
// waited for. The rank would sometimes still be the last one, by chance: how much the last of n
// ranks comes later than that of n - 1 follows from how much the last of n - 1 does (jackknife).
// `exposed_ns`: of the others.
double WaitInOneNs(std::vector<double> exposed_ns) {
  if (exposed_ns.empty()) return 0;
  std::sort(exposed_ns.begin(), exposed_ns.end());
  const auto others = static_cast<double>(exposed_ns.size());
  double chance_ns = 0;
  if (others > 1) {
    chance_ns = (exposed_ns[1] - exposed_ns[0]) / others * (others - 1) / others;
  }
  return std::max(exposed_ns[0] - chance_ns, 0.0);
}

// Collectives at which the ranks meet: one, and those behind it that a rank of them had reached
// before it was over. Such a rank waits for all of them in one go.
std::vector<std::vector<size_t>> MeetingsOf(const IterationProfiles& iteration,
                                            const RankTime& own) {
  std::vector<std::vector<size_t>> meetings;
  for (size_t c = 0; c < own.collectives.size(); ++c) {
    if (!own.collectives[c].takes_part) continue;
    const bool behind =
        std::any_of(iteration.begin(), iteration.end(),
                    [&](const RankProfile& profile) { return profile.time.collectives[c].behind; });
    if (meetings.empty() || !behind) meetings.emplace_back();
    meetings.back().push_back(c);
  }
  return meetings;
}

// No more than any other waits in all.
double WaitForNs(const IterationProfiles& iteration, int32_t rank) {
  double sum_ns = 0, least_ns = std::numeric_limits<double>::infinity();
  for (const std::vector<size_t>& meeting :
       MeetingsOf(iteration, ProfileOf(iteration, rank)->time)) {
    std::vector<double> exposed_ns;
    for (const RankProfile& profile : iteration) {
      double ns = 0;
      bool takes_part = false;
      for (const size_t c : meeting) {
        takes_part |= profile.time.collectives[c].takes_part;
        ns += profile.time.collectives[c].exposed_ns;
      }
      if (takes_part && profile.rank != rank) exposed_ns.push_back(ns);
    }
    sum_ns += WaitInOneNs(std::move(exposed_ns));
  }
  for (const RankProfile& profile : iteration) {
    if (profile.rank != rank) least_ns = std::min(least_ns, profile.time[Spent::kWaiting]);
  }
  return std::min(sum_ns, least_ns);
}

bool EqualLengths(const IterationProfiles& iteration) {
  return std::all_of(iteration.begin(), iteration.end(), [&](const RankProfile& profile) {
    return profile.lengths == iteration.front().lengths;
  });
}

}  // namespace

std::optional<Estimate> CostShare(const RankQuestion& question, double confidence) {
  const Comparisons comparisons = ComparisonsOf(question);
  if (question.peers.empty() || comparisons.rank.empty()) return std::nullopt;
  const KernelReference reference(comparisons.rank);
  std::vector<std::pair<double, double>> costs;  // and the iteration's time, nanoseconds
  double cost_sum = 0, time_sum = 0;
  for (const IterationProfiles& iteration : question.iterations) {
    const auto compared = std::find_if(
        comparisons.rank.begin(), comparisons.rank.end(),
        [&](const Compared& one) { return one.rank == ProfileOf(iteration, question.rank); });
    if (compared == comparisons.rank.end()) continue;
    if (!EqualLengths(iteration)) return std::nullopt;
    double iteration_ns = 0;
    for (const RankProfile& profile : iteration) {
      iteration_ns = std::max(iteration_ns, profile.time.iteration_ns);
    }
    const double excess_ns = DifferenceOf(*compared, reference).excess_ns();
    const double wait_ns = WaitForNs(iteration, question.rank);
    costs.emplace_back(std::clamp(excess_ns, 0.0, wait_ns), iteration_ns);
    cost_sum += costs.back().first;
    time_sum += iteration_ns;
  }
  if (costs.size() < 2) return std::nullopt;
  const double share = cost_sum / time_sum;
  // Of a ratio of two sums.
  double squares = 0;
  for (const auto& [cost_ns, time_ns] : costs) {
    squares += (cost_ns - share * time_ns) * (cost_ns - share * time_ns);
  }
  const auto count = static_cast<double>(costs.size());
  const double spread = std::sqrt(squares / (count - 1) * count) / time_sum;
  const double half = std::hypot(StudentQuantile(confidence, count - 1) * spread,
                                 NormalQuantile(confidence) * kMethodError * share);
  return Estimate{share, std::max(share - half, 0.0), std::min(share + half, 1.0)};
}

}  // namespace seqpoint::ranks
