#include "daemon/ranks/window_cost.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "boost/math/special_functions/beta.hpp"
#include "daemon/base/statistics.h"
#include "daemon/ranks/window_compare.h"

namespace seqpoint::ranks {
namespace {

// Costs of computed jobs of data and tensor parallelism and pipelines were off by this share of
// them beyond what the iterations differ (docs/internals/rank-windows.md): a standard deviation.
constexpr double kMethodError = 0.015;

// What the others wait for the rank where they meet: without it the second to last one
// would be waited for. Where all do equal work (`equal`), the rank would sometimes still be the
// last one, by chance. How much the last of n ranks comes later than that of n - 1 follows from how
// much the last of n - 1 does (jackknife). `exposed_ns`: of the others.
double WaitInOneNs(std::vector<double> exposed_ns, bool equal) {
  if (exposed_ns.empty()) return 0;
  std::sort(exposed_ns.begin(), exposed_ns.end());
  const auto others = static_cast<double>(exposed_ns.size());
  double chance_ns = 0;
  if (equal && others > 1) {
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
double WaitForNs(const IterationProfiles& iteration, int32_t rank, bool equal) {
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
    sum_ns += WaitInOneNs(std::move(exposed_ns), equal);
  }
  for (const RankProfile& profile : iteration) {
    if (profile.rank != rank) least_ns = std::min(least_ns, profile.time[Spent::kWaiting]);
  }
  return std::min(sum_ns, least_ns);
}

double MoreWaitNs(const Compared& compared) {
  std::vector<double> waits_ns;
  for (const RankProfile* profile : compared.reference) {
    waits_ns.push_back(profile->time[Spent::kWaiting]);
  }
  return compared.rank->time[Spent::kWaiting] - Median(std::move(waits_ns));
}

// How well few earlier iterations tell the usual one, as a share of it: half of an interval.
double EarlierErrorOf(const std::vector<const RankProfile*>& earlier, double confidence) {
  if (earlier.size() < 2) return 0;
  std::vector<double> times_ns;
  for (const RankProfile* profile : earlier) times_ns.push_back(profile->time.iteration_ns);
  const double median_ns = Median(times_ns);
  const auto count = static_cast<double>(earlier.size());
  // The median of normal values is 1.25 times as uncertain as their mean.
  return StudentQuantile(confidence, count - 1) * 1.25 * MedianDeviation(times_ns, median_ns) /
         std::sqrt(count) / median_ns;
}

// Where lengths differ, most of a slow rank's cost is in the iterations in which it has the
// longest, and few windows may hold none of those. The cost of an iteration is between nothing and
// the rank's excess, so at most as uncertain as the share of a yes-or-no question of as many
// answers (Clopper and Pearson).
std::pair<double, double> ShareBounds(double share, double count, double confidence) {
  using boost::math::ibeta_inv;
  const double yes = share * count, no = count - yes, tail = (1 - confidence) / 2;
  return {yes > 0 ? ibeta_inv(yes, no + 1, tail) : 0,
          no > 0 ? ibeta_inv(yes + 1, no, 1 - tail) : 1};
}

}  // namespace

Estimate CostShare(const RankQuestion& question, double confidence) {
  const Comparisons comparisons = ComparisonsOf(question);
  if (comparisons.rank.empty()) return {};
  const KernelReference reference(comparisons.rank);
  const bool equal = !question.peers.empty() && !reference.Varies();
  std::vector<std::pair<double, double>> costs;  // and the iteration's time, nanoseconds
  double cost_sum = 0, excess_sum = 0, time_sum = 0, wait_sum = 0;
  for (const IterationProfiles& iteration : question.iterations) {
    const auto compared = std::find_if(
        comparisons.rank.begin(), comparisons.rank.end(),
        [&](const Compared& one) { return one.rank == ProfileOf(iteration, question.rank); });
    if (compared == comparisons.rank.end()) continue;
    double iteration_ns = 0;
    for (const RankProfile& profile : iteration) {
      iteration_ns = std::max(iteration_ns, profile.time.iteration_ns);
    }
    const WorkDifference difference = DifferenceOf(*compared, reference);
    double excess_ns = difference.excess_ns();
    // Against earlier iterations, what the rank waited then and does not now costs nothing.
    if (question.peers.empty()) excess_ns += std::min(MoreWaitNs(*compared), 0.0);
    const double wait_ns = WaitForNs(iteration, question.rank, equal);
    costs.emplace_back(std::clamp(excess_ns, 0.0, wait_ns), iteration_ns);
    cost_sum += costs.back().first;
    excess_sum += std::max(excess_ns, 0.0);
    time_sum += iteration_ns;
    wait_sum += wait_ns;
  }
  if (costs.empty()) return {};
  const double share = cost_sum / time_sum;
  if (costs.size() < 2) return {share, 0, wait_sum / time_sum};
  // Of a ratio of two sums.
  double squares = 0;
  for (const auto& [cost_ns, time_ns] : costs) {
    squares += (cost_ns - share * time_ns) * (cost_ns - share * time_ns);
  }
  const auto count = static_cast<double>(costs.size());
  const double spread = std::sqrt(squares / (count - 1) * count) / time_sum;
  const double half = std::hypot(
      StudentQuantile(confidence, count - 1) * spread,
      NormalQuantile(confidence) * kMethodError * share,
      question.peers.empty() ? EarlierErrorOf(comparisons.rank[0].reference, confidence) : 0);
  // Where none of the iterations had a cost, up to this share of all iterations may have one.
  const double unseen = 1 - std::pow(1 - confidence, 1 / count);
  const double excess = excess_sum / time_sum;
  Estimate cost = {share, std::max(share - half, 0.0),
                   std::min(std::max(share + half, unseen * excess), 1.0)};
  if (!question.peers.empty() && !equal && excess > 0) {
    const auto [low, high] = ShareBounds(share / excess, count, confidence);
    cost.low = std::min(cost.low, low * excess);
    cost.high = std::max(cost.high, high * excess);
  }
  return cost;
}

}  // namespace seqpoint::ranks
