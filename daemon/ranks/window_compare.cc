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
// A share of iterations: all of three, three of four.
constexpr double kMost = 0.75;
// A kernel's mean is not known better than this, relative: GPUs of one kind differ by it.
constexpr double kLeastKernelNoise = 0.004;

template <typename Value>
double MedianOf(const std::vector<const RankProfile*>& profiles, const Value& value) {
  std::vector<double> values;
  for (const RankProfile* profile : profiles) values.push_back(value(*profile));
  return Median(std::move(values));
}

// The error of the median, by the differences of the values.
double ErrorOfMiddle(const std::vector<double>& values) {
  if (values.size() < 2) return 0;
  const double spread = MedianDeviation(values, MiddleOf(values));
  return kOfMedian * spread / std::sqrt(static_cast<double>(values.size()));
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
  if (profiles.empty()) return;
  std::vector<LengthPoint> busy;
  std::map<KernelKey, std::vector<LengthPoint>> means;
  std::map<std::string, std::vector<LengthPoint>> of_names;
  for (const RankProfile* profile : profiles) {
    const double length = profile->length();
    busy.push_back({length, profile->time[Spent::kKernels]});
    std::map<std::string, KernelUse> sums;
    for (const auto& [key, use] : profile->kernels) {
      means[key].push_back({length, use.sum_ns / use.count});
      sums[key.name].sum_ns += use.sum_ns;
      sums[key.name].count += use.count;
    }
    for (const auto& [name, use] : sums) of_names[name].push_back({length, use.sum_ns / use.count});
  }
  busy_ = FitLine(busy);
  for (const auto& [key, points] : means) means_[key] = FitLine(points);
  for (const auto& [name, points] : of_names) names_[name] = FitLine(points);
}

double KernelReference::BusyNs(const RankProfile& profile) const {
  return busy_.At(profile.length());
}

KernelReference::Mean KernelReference::MeanAt(const LengthLine& line, double length) {
  return line.Tells(length) ? Mean{std::max(line.At(length), 0.0), line.spread} : Mean{};
}

KernelReference::Mean KernelReference::MeanOf(const KernelKey& key,
                                              const Compared& compared) const {
  std::vector<double> means_ns;
  for (const RankProfile* profile : compared.reference) {
    if (profile->lengths != compared.rank->lengths) continue;
    const auto it = profile->kernels.find(key);
    if (it != profile->kernels.end()) means_ns.push_back(it->second.sum_ns / it->second.count);
  }
  if (!means_ns.empty()) {
    const double ns = Median(means_ns);
    return {ns, ns > 0 ? MedianDeviation(means_ns, ns) / ns : 0};
  }
  const auto it = means_.find(key);
  return it == means_.end() ? Mean{} : MeanAt(it->second, compared.rank->length());
}

void KernelReference::Add(const KernelUse& use, const Mean& mean, Named* named) {
  if (mean.ns <= 0) return;
  const double spread_ns = use.count * mean.ns * mean.spread;
  named->count += use.count;
  named->own_ns += use.sum_ns;
  named->expected_ns += use.count * mean.ns;
  named->variance_ns2 += use.count * use.spread_ns * use.spread_ns + spread_ns * spread_ns;
}

std::map<std::string, KernelReference::Named> KernelReference::Compare(
    const Compared& compared) const {
  std::map<std::string, KernelUse> uses;
  std::map<std::string, Named> result;
  for (const auto& [key, use] : compared.rank->kernels) {
    uses[key.name].count += use.count;
    uses[key.name].sum_ns += use.sum_ns;
    Add(use, MeanOf(key, compared), &result[key.name]);
  }
  for (const auto& [name, use] : uses) {
    Named& of_grids = result[name];
    const auto line = names_.find(name);
    if (of_grids.count == use.count || line == names_.end()) continue;
    // Grids of other lengths.
    Named of_name;
    Add(use, MeanAt(line->second, compared.rank->length()), &of_name);
    if (of_name.count > 0) of_grids = of_name;
  }
  std::erase_if(result, [](const auto& named) { return named.second.expected_ns <= 0; });
  return result;
}

WorkDifference DifferenceOf(const Compared& compared, const KernelReference& reference) {
  const RankProfile& rank = *compared.rank;
  const auto more = [&](Spent spent) {
    return rank.time[spent] - MedianOf(compared.reference, [&](const RankProfile& profile) {
             return profile.time[spent];
           });
  };
  double slower_ns = 0, sum_ns = 0;
  for (const auto& [key, use] : rank.kernels) sum_ns += use.sum_ns;
  for (const auto& [name, named] : reference.Compare(compared)) {
    slower_ns += named.own_ns - named.expected_ns;
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

UsualDifference UsualDifferenceOf(const Comparisons& comparisons,
                                  const KernelReference& reference) {
  UsualDifference result;
  if (comparisons.rank.empty()) return result;
  std::vector<double> work_ns;
  for (const Compared& one : comparisons.rank) {
    for (const RankProfile* profile : one.reference) work_ns.push_back(profile->time.work_ns());
  }
  result.work_ns = Median(std::move(work_ns));
  std::vector<WorkDifference> own, noise;
  for (const Compared& one : comparisons.rank) own.push_back(DifferenceOf(one, reference));
  for (const Compared& one : comparisons.noise) noise.push_back(DifferenceOf(one, reference));
  const double least = noise.size() < kFewNoise ? kNoiseUnknown : kLeastNoise;
  const auto value_of = [&](const auto& of) {
    std::vector<double> own_ns, noise_ns;
    for (const WorkDifference& difference : own) own_ns.push_back(of(difference));
    for (const WorkDifference& difference : noise) noise_ns.push_back(of(difference));
    const double noise_of_one_ns = noise_ns.empty() ? 0 : MedianDeviation(noise_ns, 0);
    const double least_ns = least * result.work_ns;
    const double above_ns = kSure * std::hypot(noise_of_one_ns, least_ns);
    const auto above = static_cast<double>(
        std::count_if(own_ns.begin(), own_ns.end(), [&](double ns) { return ns > above_ns; }));
    const auto count = static_cast<double>(own_ns.size());
    const double error_ns =
        std::max(kOfMedian * noise_of_one_ns / std::sqrt(count), ErrorOfMiddle(own_ns));
    return UsualDifference::Value{MiddleOf(std::move(own_ns)), std::hypot(error_ns, least_ns),
                                  noise_ns.size() >= kFewNoise && above >= kMost * count};
  };
  for (size_t i = 0; i < kWorkParts; ++i) {
    result.parts[i] = value_of([&](const WorkDifference& d) { return d.part_ns[i]; });
  }
  result.excess = value_of([](const WorkDifference& d) { return d.excess_ns(); });
  return result;
}

std::vector<NameDifference> NameDifferencesOf(absl::Span<const Compared> compared,
                                              const KernelReference& reference) {
  struct Iterations {
    KernelReference::Named sum;
    std::vector<double> log_factors, excess_ns;
  };
  std::map<std::string, Iterations> all;
  for (const Compared& one : compared) {
    for (const auto& [name, named] : reference.Compare(one)) {
      if (named.own_ns <= 0) continue;
      Iterations& of_name = all[name];
      of_name.sum.count += named.count;
      of_name.sum.own_ns += named.own_ns;
      of_name.sum.expected_ns += named.expected_ns;
      of_name.sum.variance_ns2 += named.variance_ns2;
      of_name.log_factors.push_back(std::log(named.own_ns / named.expected_ns));
      of_name.excess_ns.push_back(named.own_ns - named.expected_ns);
    }
  }
  const auto iterations = static_cast<double>(compared.size());
  std::vector<NameDifference> names;
  for (const auto& [name, of_name] : all) {
    const double told = kOfMedian * std::sqrt(of_name.sum.variance_ns2) / of_name.sum.own_ns;
    const double seen = ErrorOfMiddle(of_name.log_factors);
    names.push_back({name, MiddleOf(of_name.log_factors),
                     std::hypot(std::max(told, seen), kLeastKernelNoise),
                     of_name.sum.count / iterations, of_name.sum.expected_ns / iterations,
                     MiddleOf(of_name.excess_ns)});
  }
  std::sort(names.begin(), names.end(), [](const NameDifference& a, const NameDifference& b) {
    return a.excess_ns > b.excess_ns;
  });
  return names;
}

}  // namespace seqpoint::ranks
