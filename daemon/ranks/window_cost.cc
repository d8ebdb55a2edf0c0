#include "daemon/ranks/window_cost.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "daemon/base/statistics.h"
#include "daemon/ranks/window_compare.h"

namespace seqpoint::ranks {
namespace {

// What the others wait for the rank in one of its collectives: without it the second to last one
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

// No more than any other waits in all.
double WaitForNs(const IterationProfiles& iteration, int32_t rank, bool equal) {
  const RankTime& own = ProfileOf(iteration, rank)->time;
  double sum_ns = 0, least_ns = std::numeric_limits<double>::infinity();
  for (size_t c = 0; c < own.exposed_ns.size(); ++c) {
    if (own.exposed_ns[c] < 0) continue;
    std::vector<double> exposed_ns;
    for (const RankProfile& profile : iteration) {
      if (profile.rank == rank || profile.time.exposed_ns[c] < 0) continue;
      exposed_ns.push_back(profile.time.exposed_ns[c]);
    }
    sum_ns += WaitInOneNs(std::move(exposed_ns), equal);
  }
  for (const RankProfile& profile : iteration) {
    if (profile.rank != rank) least_ns = std::min(least_ns, profile.time[Spent::kWaiting]);
  }
  return std::min(sum_ns, least_ns);
}

}  // namespace

Estimate CostShare(const RankQuestion& question, double confidence) {
  const Comparisons comparisons = ComparisonsOf(question);
  if (comparisons.rank.empty()) return {};
  const KernelReference reference(comparisons.rank);
  const bool equal = !question.peers.empty() && !reference.Varies();
  Moments shares;
  double most = 0;
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
    const double excess_ns = difference.total_ns() - difference[WorkPart::kLengths];
    const double wait_ns = WaitForNs(iteration, question.rank, equal);
    shares.Add(std::clamp(excess_ns, 0.0, wait_ns) / iteration_ns);
    most = std::max(most, wait_ns / iteration_ns);
  }
  const double mean = shares.Mean();
  if (shares.count < 2) return {mean, 0, most};
  const double half = StudentQuantile(confidence, shares.count - 1) *
                      std::sqrt(shares.Variance() / (shares.count - 1));
  return {mean, std::max(mean - half, 0.0), std::min(mean + half, 1.0)};
}

}  // namespace seqpoint::ranks
