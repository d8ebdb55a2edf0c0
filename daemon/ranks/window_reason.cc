#include "daemon/ranks/window_reason.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "daemon/base/statistics.h"
#include "daemon/ranks/window_compare.h"

namespace seqpoint::ranks {
namespace {

// A difference counts from so many standard deviations on: 1 in 30,000 is larger without a fault.
constexpr double kSure = 4;
// ... and from this share of the work on: less is no reason to look for.
constexpr double kLeastShare = 0.005;
// The reason holds at least this share of the excess; otherwise there are several.
constexpr double kMostOfIt = 0.5;
// Transfers that are longer by less are not slow.
constexpr double kLeastSlowLink = 0.05;
// The ends of a collective differ between ranks by a few microseconds, and so does what the
// shortest duration says of its transfer.
constexpr double kStampNs = 2000;
// Names that take less than this share of the kernels' time do not decide.
constexpr double kSmallName = 0.002;
// Counts and lengths that differ by less are the same.
constexpr double kLeastMore = 0.005;
constexpr double kInterval = 2.576;  // 99 %
constexpr size_t kMostNamed = 8, kMostSaid = 2;

std::string Ms(double ns) { return absl::StrFormat("%.3g ms", ns / 1e6); }

// The transfers of the same ranks earlier; else those of as many other ranks at the same time.
struct SlowLink {
  std::vector<int32_t> ranks;
  Estimate factor = {1, 1, 1};
  double excess_ns = 0;  // of an iteration
  double count = 0;      // transfers
  bool against_earlier = false;
};

struct Durations {
  std::vector<double> medians_ns;
  double spread_ns = 0;  // of one
  double count = 0;
  void Add(double median_ns, double one_spread_ns, double more) {
    medians_ns.push_back(median_ns);
    spread_ns = std::max(spread_ns, one_spread_ns);
    count += more;
  }
  // Of the median, a standard deviation.
  double ErrorNs() const { return std::hypot(1.25 * spread_ns / std::sqrt(count), kStampNs); }
};

class Links {
 public:
  explicit Links(const RankQuestion& question) : question_(question) {
    Collect(question.iterations, &now_);
    Collect(question.earlier, &earlier_);
  }

  // The ranks, `question.rank` among them, whose transfers have become slowest; nothing where none
  // is slow beyond noise.
  std::optional<SlowLink> Slowest() const {
    std::map<std::vector<int32_t>, SlowLink> links;
    std::map<std::vector<int32_t>, std::pair<double, double>> sums;  // log factor * weight, weight
    for (const auto& [key, durations] : now_) {
      if (!std::binary_search(key.ranks.begin(), key.ranks.end(), question_.rank)) continue;
      SlowLink& link = links[key.ranks];
      const Durations reference = ReferenceOf(key, &link.against_earlier);
      if (reference.medians_ns.empty()) continue;
      const double own_ns = Median(durations.medians_ns);
      const double usual_ns = Median(reference.medians_ns);
      const double noise = std::hypot(durations.ErrorNs(), reference.ErrorNs()) / usual_ns;
      const double factor = own_ns / usual_ns;
      if (factor < 1 + kLeastSlowLink || factor - 1 < kSure * noise) continue;
      auto& [sum, weight] = sums[key.ranks];
      sum += std::log(factor) * own_ns;
      weight += own_ns;
      link.count += 1;
      link.excess_ns += own_ns - usual_ns;
      const double half = kInterval * noise;
      link.factor.low = link.count > 1 ? std::min(link.factor.low, factor - half) : factor - half;
      link.factor.high = std::max(link.factor.high, factor + half);
    }
    std::optional<SlowLink> slowest;
    for (auto& [ranks, link] : links) {
      if (link.count == 0 || (slowest && link.excess_ns <= slowest->excess_ns)) continue;
      slowest = link;
      slowest->ranks = ranks;
      slowest->factor.value = std::exp(sums[ranks].first / sums[ranks].second);
    }
    return slowest;
  }

 private:
  using ByKey = std::map<TransferKey, Durations>;

  static void Collect(absl::Span<const IterationProfiles> iterations, ByKey* to) {
    for (const IterationProfiles& iteration : iterations) {
      for (const RankProfile& profile : iteration) {
        for (const auto& [key, use] : profile.transfers) {
          if (profile.rank == key.ranks.front())
            (*to)[key].Add(use.median_ns, use.spread_ns, use.count);
        }
      }
    }
  }

  Durations ReferenceOf(const TransferKey& key, bool* against_earlier) const {
    if (const auto it = earlier_.find(key); it != earlier_.end()) {
      *against_earlier = true;
      return it->second;
    }
    Durations others;
    for (const auto& [other, durations] : now_) {
      if (other.ranks == key.ranks || other.ranks.size() != key.ranks.size() ||
          other.function != key.function || other.bytes != key.bytes || other.order != key.order) {
        continue;
      }
      others.Add(Median(durations.medians_ns), durations.spread_ns, durations.count);
    }
    return others;
  }

  const RankQuestion& question_;
  ByKey now_, earlier_;
};

// Kernels that the rank and its reference both have. Their names tell more surely than all the work
// whether they are slower.
class SlowKernels {
 public:
  // `work_ns`: of the reference.
  SlowKernels(std::vector<NameDifference> names, double work_ns)
      : names_(std::move(names)), work_ns_(work_ns) {
    for (const NameDifference& name : names_) all_.Add(name);
    for (const NameDifference& name : names_) {
      if (name.log_factor < kSure * name.error || name.log_factor < overall() / 2) continue;
      slow_.Add(name);
      slow_names_.push_back(name);
    }
  }

  struct Sum {
    double count = 0, time_ns = 0, excess_ns = 0, error_ns = 0;
    void Add(const NameDifference& name) {
      count += name.count;
      time_ns += name.time_ns;
      excess_ns += name.excess_ns;
      error_ns = std::hypot(error_ns, name.error * name.time_ns);
    }
    Estimate Factor() const {
      const double factor = 1 + excess_ns / time_ns, half = kInterval * error_ns / time_ns;
      return {factor, factor - half, factor + half};
    }
  };
  const Sum& all() const { return all_; }
  const Sum& slow() const { return slow_; }
  const std::vector<NameDifference>& slow_names() const { return slow_names_; }
  size_t names() const { return names_.size(); }

  bool IsSlow() const { return IsSure(slow_) || (IsSure(all_) && IsOneFactor()); }

  // Kernels of nearly all names are slower, not only of few.
  bool IsOneFactor() const {
    std::vector<double> factors;
    for (const NameDifference& name : names_) {
      if (name.time_ns >= kSmallName * all_.time_ns) factors.push_back(name.log_factor);
    }
    if (factors.empty()) return false;
    std::sort(factors.begin(), factors.end());
    // The lower of the middle two: of two names of which one is slow, few are.
    return factors[(factors.size() - 1) / 2] >= overall() / 2;
  }

 private:
  double overall() const { return std::log1p(all_.excess_ns / all_.time_ns); }
  bool IsSure(const Sum& sum) const {
    return sum.excess_ns > kSure * sum.error_ns && sum.excess_ns > kLeastShare * work_ns_;
  }

  const std::vector<NameDifference> names_;
  const double work_ns_;
  Sum all_, slow_;
  std::vector<NameDifference> slow_names_;
};

class ReasonFinder {
 public:
  explicit ReasonFinder(const RankQuestion& question)
      : question_(question),
        comparisons_(ComparisonsOf(question)),
        reference_(comparisons_.rank),
        difference_(MeanDifferenceOf(comparisons_, reference_)),
        kernels_(NameDifferencesOf(comparisons_.rank, reference_), difference_.work_ns) {}

  ReasonVerdict Run() {
    if (comparisons_.rank.empty()) {
      verdict_.text = question_.peers.empty()
                          ? "no other rank does the same work, and no earlier window is there"
                          : "no window has this rank and a peer of it";
      return verdict_;
    }
    // Against its own earlier iterations longer sequences say nothing of the rank.
    if (question_.peers.empty()) {
      difference_.mean.part_ns[static_cast<size_t>(WorkPart::kLengths)] = 0;
    }
    verdict_.excess_ns = difference_.mean.total_ns();
    verdict_.error_ns = difference_.total_error_ns;
    const WorkPart part = LargestPart();
    const bool longer = IsSure(verdict_.excess_ns, verdict_.error_ns);
    const std::optional<SlowLink> link = Links(question_).Slowest();
    if (link && (!longer || link->excess_ns > verdict_.excess_ns || part == WorkPart::kTransfer)) {
      SayLink(*link);
    } else if ((!longer || part == WorkPart::kSameKernels) && kernels_.IsSlow()) {
      SayKernels();
    } else if (!longer) {
      verdict_.text =
          absl::StrFormat("its work is not longer than %s beyond noise: %s, +- %s",
                          comparisons_.with, Ms(verdict_.excess_ns), Ms(kSure * verdict_.error_ns));
    } else if (verdict_.explained_ns < kMostOfIt * verdict_.excess_ns ||
               !IsSure(verdict_.explained_ns, ErrorOf(part))) {
      verdict_.text =
          absl::StrCat("its work is ", Ms(verdict_.excess_ns), " longer than ", comparisons_.with,
                       ", and no part of it holds most of that: ", PartsInWords());
      verdict_.explained_ns = 0;
    } else {
      Say(part);
    }
    return verdict_;
  }

 private:
  bool IsSure(double ns, double error_ns) const {
    return ns > kSure * error_ns && ns > kLeastShare * difference_.work_ns;
  }
  double ErrorOf(WorkPart part) const { return difference_.error_ns[static_cast<size_t>(part)]; }

  WorkPart LargestPart() {
    size_t largest = 0;
    for (size_t i = 0; i < kWorkParts; ++i) {
      if (difference_.mean.part_ns[i] > difference_.mean.part_ns[largest]) largest = i;
    }
    verdict_.explained_ns = difference_.mean.part_ns[largest];
    return static_cast<WorkPart>(largest);
  }

  std::string PartsInWords() const {
    static constexpr const char* kNames[kWorkParts] = {
        "equal kernels", "more kernels",       "lengths", "launches", "the batch",
        "transfers",     "copies and the rest"};
    std::vector<std::string> parts;
    for (size_t i = 0; i < kWorkParts; ++i) {
      const double ns = difference_.mean.part_ns[i];
      if (std::abs(ns) < kLeastShare * difference_.work_ns) continue;
      parts.push_back(absl::StrCat(kNames[i], " ", Ms(ns)));
    }
    return absl::StrJoin(parts, ", ");
  }

  void Say(WorkPart part) {
    const double error = kInterval * ErrorOf(part) / difference_.work_ns;
    const double factor = 1 + verdict_.explained_ns / difference_.work_ns;
    verdict_.factor = {factor, factor - error, factor + error};
    switch (part) {
      case WorkPart::kSameKernels:
        verdict_.text =
            absl::StrCat("its kernels take ", Ms(verdict_.explained_ns), " longer than ",
                         comparisons_.with, ", but no name stands out of its noise");
        verdict_.explained_ns = 0;
        break;
      case WorkPart::kMoreKernels:
        if (CountOf(true) < CountOf(false) * (1 + kLeastMore)) {
          SayOtherKernels();
          break;
        }
        verdict_.reason = Reason::kMoreWork;
        verdict_.text = absl::StrFormat(
            "it runs %.0f kernels, %.0f run %s: %s more of an iteration's work", CountOf(true),
            CountOf(false), comparisons_.with, Ms(verdict_.explained_ns));
        break;
      case WorkPart::kLengths:
        verdict_.reason = Reason::kImbalance;
        verdict_.text = absl::StrFormat(
            "its sequences are longer: %.0f in the mean, %.0f %s; kernels of such lengths take %s "
            "more",
            LengthOf(true), LengthOf(false), comparisons_.with, Ms(verdict_.explained_ns));
        break;
      case WorkPart::kLaunch:
        verdict_.reason = Reason::kHost;
        verdict_.text = absl::StrFormat(
            "its host launches late: the GPU waits %s of an iteration for launches, %s %s",
            Ms(SpentOf(Spent::kLaunch, true)), Ms(SpentOf(Spent::kLaunch, false)),
            comparisons_.with);
        break;
      case WorkPart::kLoader:
        verdict_.reason = Reason::kLoader;
        verdict_.text = absl::StrFormat(
            "its batch comes late: the GPU waits %s of an iteration before the batch's copy, %s %s",
            Ms(SpentOf(Spent::kLoader, true)), Ms(SpentOf(Spent::kLoader, false)),
            comparisons_.with);
        break;
      default:
        verdict_.text =
            absl::StrCat("its work is ", Ms(verdict_.excess_ns), " longer than ", comparisons_.with,
                         ", most of it in no kernel: ", PartsInWords());
        verdict_.explained_ns = 0;
    }
  }

  void SayKernels() {
    if (kernels_.IsOneFactor()) {
      verdict_.reason = Reason::kClocks;
      verdict_.factor = kernels_.all().Factor();
      verdict_.explained_ns = kernels_.all().excess_ns;
      verdict_.text = absl::StrFormat(
          "%.0f kernels of %d names are %.2f times as long as %s: clocks, heat or power",
          kernels_.all().count, kernels_.names(), verdict_.factor.value, comparisons_.with);
      return;
    }
    verdict_.reason = Reason::kKernels;
    verdict_.factor = kernels_.slow().Factor();
    verdict_.explained_ns = kernels_.slow().excess_ns;
    std::vector<std::string> said;
    for (const NameDifference& name : kernels_.slow_names()) {
      if (said.size() < kMostSaid) said.push_back(name.name);
      if (verdict_.kernels.size() < kMostNamed) {
        verdict_.kernels.push_back({name.name, std::exp(name.log_factor), name.excess_ns});
      }
    }
    verdict_.text = absl::StrFormat(
        "%.0f kernels (%s%s) are %.2f times as long as %s, the other %.0f are not",
        kernels_.slow().count, absl::StrJoin(said, ", "),
        kernels_.slow_names().size() > said.size() ? ", ..." : "", verdict_.factor.value,
        comparisons_.with, kernels_.all().count - kernels_.slow().count);
  }

  // As many kernels, but of other shapes or names.
  void SayOtherKernels() {
    if (LengthOf(true) > LengthOf(false) * (1 + kLeastMore)) {
      verdict_.reason = Reason::kImbalance;
      verdict_.text = absl::StrFormat(
          "its sequences are longer: %.0f in the mean, %.0f %s; its work is %s longer, and too few "
          "lengths were seen to say how much of that they explain",
          LengthOf(true), LengthOf(false), comparisons_.with, Ms(verdict_.explained_ns));
      return;
    }
    verdict_.text =
        absl::StrFormat("it runs as many kernels as %s, but others: %s more of an iteration's work",
                        comparisons_.with, Ms(verdict_.explained_ns));
    verdict_.explained_ns = 0;
  }

  void SayLink(const SlowLink& link) {
    verdict_.reason = Reason::kLink;
    verdict_.factor = link.factor;
    verdict_.explained_ns = link.excess_ns;
    verdict_.link = link.ranks;
    verdict_.text = absl::StrFormat(
        "transfers between %s take %.2f times as long as %s although all ranks have come",
        RanksInWords(link.ranks), link.factor.value,
        link.against_earlier ? "earlier" : "those of as many other ranks");
  }

  template <typename Value>
  double MeanOf(bool own, const Value& value) const {
    double sum = 0;
    for (const Compared& one : comparisons_.rank) {
      if (own) {
        sum += value(*one.rank);
        continue;
      }
      std::vector<double> values;
      for (const RankProfile* profile : one.reference) values.push_back(value(*profile));
      sum += Median(std::move(values));
    }
    return sum / static_cast<double>(comparisons_.rank.size());
  }
  double SpentOf(Spent spent, bool own) const {
    return MeanOf(own, [&](const RankProfile& profile) { return profile.time[spent]; });
  }
  double CountOf(bool own) const {
    return MeanOf(own, [](const RankProfile& profile) {
      double count = 0;
      for (const auto& [key, use] : profile.kernels) count += use.count;
      return count;
    });
  }
  double LengthOf(bool own) const {
    return MeanOf(own, [](const RankProfile& profile) { return profile.length(); });
  }

  const RankQuestion& question_;
  const Comparisons comparisons_;
  const KernelReference reference_;
  MeanDifference difference_;
  const SlowKernels kernels_;
  ReasonVerdict verdict_;
};

}  // namespace

const char* ReasonName(Reason reason) {
  static constexpr const char* kNames[] = {"unknown", "clocks", "kernels",   "host",
                                           "loader",  "link",   "more work", "imbalance"};
  return kNames[static_cast<size_t>(reason)];
}

ReasonVerdict FindReason(const RankQuestion& question) { return ReasonFinder(question).Run(); }

}  // namespace seqpoint::ranks
