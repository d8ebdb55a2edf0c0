#include "daemon/ranks/window_cost.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "daemon/base/statistics.h"

namespace seqpoint::ranks {

double CostNs(const Iteration& iteration, int32_t rank, double excess_ns) {
  double least_wait_ns = std::numeric_limits<double>::infinity();
  double own_ns = 0;
  std::vector<double> others_ns;
  for (const RankProfile& profile : iteration) {
    if (profile.rank == rank) {
      own_ns = profile.time.work_ns();
      continue;
    }
    least_wait_ns = std::min(least_wait_ns, profile.time[Spent::kWaiting]);
    others_ns.push_back(profile.time.work_ns());
  }
  if (others_ns.empty()) return 0;
  if (excess_ns < 0) excess_ns = own_ns - Median(std::move(others_ns));
  return std::clamp(excess_ns, 0.0, least_wait_ns);
}

Estimate CostShare(absl::Span<const Iteration> iterations, int32_t rank, double confidence) {
  Moments shares;
  double most = 0;
  for (const Iteration& iteration : iterations) {
    double iteration_ns = 0, least_wait_ns = std::numeric_limits<double>::infinity();
    for (const RankProfile& profile : iteration) {
      iteration_ns = std::max(iteration_ns, profile.time.iteration_ns);
      if (profile.rank != rank) {
        least_wait_ns = std::min(least_wait_ns, profile.time[Spent::kWaiting]);
      }
    }
    if (!(iteration_ns > 0)) continue;
    shares.Add(CostNs(iteration, rank) / iteration_ns);
    most = std::max(most, least_wait_ns / iteration_ns);
  }
  if (shares.count == 0) return {};
  const double mean = shares.Mean();
  if (shares.count < 2) return {mean, 0, most};
  const double half = StudentQuantile(confidence, shares.count - 1) *
                      std::sqrt(shares.Variance() / (shares.count - 1));
  return {mean, std::max(mean - half, 0.0), std::min(mean + half, 1.0)};
}

}  // namespace seqpoint::ranks
