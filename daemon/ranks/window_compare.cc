#include "daemon/ranks/window_compare.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "daemon/base/statistics.h"

namespace seqpoint::ranks {
namespace {

// Differences that a robust estimate from few values may miss: of the work, a standard deviation.
// With one window and no other source of noise, clocks and caches of equal GPUs differ by as much.
constexpr double kLeastNoise = 0.002;
constexpr double kNoiseUnknown = 0.01;
constexpr size_t kFewNoise = 3;  // values that tell no spread
// A kernel's mean is not known better than this, relative: GPUs of one kind differ by it.
constexpr double kLeastKernelNoise = 0.004;

template <typename Value>
double MedianOf(const std::vector<const RankProfile*>& profiles, const Value& value) {
  std::vector<double> values;
  for (const RankProfile* profile : profiles) values.push_back(value(*profile));
  return Median(std::move(values));
}

}  // namespace

double WorkDifference::total_ns() const {
  return std::accumulate(part_ns.begin(), part_ns.end(), 0.0);
}

KernelReference::KernelReference(absl::Span<const Compared> compared) {
  std::set<const RankProfile*> profiles;
  for (const Compared& one : compared) {
    profiles.insert(one.reference.begin(), one.reference.end());
  }
  std::vector<LengthPoint> busy;
  std::map<KernelKey, std::vector<LengthPoint>> means;
  std::set<double> lengths;
  for (const RankProfile* profile : profiles) {
    const double length = profile->length();
    lengths.insert(length);
    busy.push_back({length, profile->time[Spent::kKernels]});
    for (const auto& [key, use] : profile->kernels) {
      means[key].push_back({length, use.sum_ns / use.count});
    }
  }
  varies_ = lengths.size() > 1;
  busy_ = FitLine(busy);
  for (const auto& [key, points] : means) means_[key] = FitLine(points);
}

double KernelReference::BusyNs(const RankProfile& profile) const {
  return busy_.At(profile.length());
}

double KernelReference::MeanNs(const KernelKey& key, const RankProfile& profile) const {
  const auto it = means_.find(key);
  return it == means_.end() ? 0 : std::max(it->second.At(profile.length()), 0.0);
}

double KernelReference::SpreadOf(const KernelKey& key) const {
  const auto it = means_.find(key);
  return it == means_.end() ? 0 : it->second.spread;
}

WorkDifference DifferenceOf(const Compared& compared, const KernelReference& reference) {
  const RankProfile& rank = *compared.rank;
  const auto more = [&](Spent spent) {
    return rank.time[spent] - MedianOf(compared.reference, [&](const RankProfile& profile) {
             return profile.time[spent];
           });
  };
  double slower_ns = 0, sum_ns = 0;
  for (const auto& [key, use] : rank.kernels) {
    sum_ns += use.sum_ns;
    const double mean_ns = reference.MeanNs(key, rank);
    if (mean_ns > 0) slower_ns += use.sum_ns - use.count * mean_ns;
  }
  // Kernels of several streams run at the same time.
  if (sum_ns > 0) slower_ns *= std::min(1.0, rank.time[Spent::kKernels] / sum_ns);
  const double kernels_ns = more(Spent::kKernels);
  const double lengths_ns =
      reference.BusyNs(rank) - MedianOf(compared.reference, [&](const RankProfile& profile) {
        return reference.BusyNs(profile);
      });
  WorkDifference difference;
  const auto set = [&](WorkPart part, double ns) {
    difference.part_ns[static_cast<size_t>(part)] = ns;
  };
  set(WorkPart::kSameKernels, slower_ns);
  set(WorkPart::kLengths, lengths_ns);
  set(WorkPart::kMoreKernels, kernels_ns - lengths_ns - slower_ns);
  set(WorkPart::kLaunch, more(Spent::kLaunch));
  set(WorkPart::kLoader, more(Spent::kLoader));
  set(WorkPart::kTransfer, more(Spent::kTransfer));
  set(WorkPart::kRest, more(Spent::kCopies) + more(Spent::kOther));
  return difference;
}

MeanDifference MeanDifferenceOf(const Comparisons& comparisons, const KernelReference& reference) {
  MeanDifference result;
  std::vector<double> work_ns;
  if (comparisons.rank.empty()) return result;
  const auto count = static_cast<double>(comparisons.rank.size());
  for (const Compared& one : comparisons.rank) {
    const WorkDifference difference = DifferenceOf(one, reference);
    for (size_t i = 0; i < kWorkParts; ++i) {
      result.mean.part_ns[i] += difference.part_ns[i] / count;
    }
    for (const RankProfile* profile : one.reference) work_ns.push_back(profile->time.work_ns());
  }
  result.work_ns = Median(std::move(work_ns));
  std::vector<std::vector<double>> values(kWorkParts + 1);
  for (const Compared& one : comparisons.noise) {
    const WorkDifference difference = DifferenceOf(one, reference);
    for (size_t i = 0; i < kWorkParts; ++i) values[i].push_back(difference.part_ns[i]);
    values[kWorkParts].push_back(difference.total_ns() - difference[WorkPart::kLengths]);
    // That of lengths is known: the reference's lengths differ, too.
    values[static_cast<size_t>(WorkPart::kLengths)].back() = 0;
  }
  const double least = values[0].size() < kFewNoise ? kNoiseUnknown : kLeastNoise;
  const auto error_of = [&](const std::vector<double>& of_part) {
    const double spread_ns = MedianDeviation(of_part, 0) / std::sqrt(count);
    return std::hypot(of_part.empty() ? 0 : spread_ns, least * result.work_ns);
  };
  for (size_t i = 0; i < kWorkParts; ++i) result.error_ns[i] = error_of(values[i]);
  result.total_error_ns = error_of(values[kWorkParts]);
  return result;
}

std::vector<NameDifference> NameDifferencesOf(absl::Span<const Compared> compared,
                                              const KernelReference& reference) {
  struct Sum {
    double count = 0, time_ns = 0, own_ns = 0, variance_ns2 = 0;
  };
  std::map<std::string, Sum> sums;
  for (const Compared& one : compared) {
    for (const auto& [key, use] : one.rank->kernels) {
      const double mean_ns = reference.MeanNs(key, *one.rank);
      if (mean_ns <= 0) continue;
      Sum& sum = sums[key.name];
      sum.count += use.count;
      sum.time_ns += use.count * mean_ns;
      sum.own_ns += use.sum_ns;
      const double spread_ns = use.count * mean_ns * reference.SpreadOf(key);
      sum.variance_ns2 += use.count * use.spread_ns * use.spread_ns + spread_ns * spread_ns;
    }
  }
  const auto iterations = static_cast<double>(compared.size());
  std::vector<NameDifference> names;
  for (const auto& [name, sum] : sums) {
    if (sum.own_ns <= 0) continue;
    names.push_back({name, std::log(sum.own_ns / sum.time_ns),
                     std::hypot(std::sqrt(sum.variance_ns2) / sum.own_ns, kLeastKernelNoise),
                     sum.count / iterations, sum.time_ns / iterations,
                     (sum.own_ns - sum.time_ns) / iterations});
  }
  std::sort(names.begin(), names.end(), [](const NameDifference& a, const NameDifference& b) {
    return a.excess_ns > b.excess_ns;
  });
  return names;
}

}  // namespace seqpoint::ranks
