#include "daemon/ranks/window_reason.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "daemon/base/statistics.h"
#include "daemon/ranks/window_compare.h"

namespace seqpoint::ranks {
namespace {

// A difference counts from this share of the work on: less is no reason to look for.
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
  bool against_earlier = false;
};

// Transfers of one iteration are no independent values: they overlap with each other, or are one
// message to and fro. Iterations are, so each has one factor, of all its transfers together.
class Links {
 public:
  explicit Links(const RankQuestion& question)
      : rank_(question.rank),
        now_(TransfersOf(question.iterations)),
        earlier_(TransfersOf(question.earlier)) {}

  // The ranks, `question.rank` among them, whose transfers have become slowest; nothing where none
  // is slow beyond noise.
  std::optional<SlowLink> Slowest() const {
    std::set<std::vector<int32_t>> links;
    for (const Transfers& iteration : now_) {
      for (const auto& [key, use] : iteration) {
        if (!IsTold(key)) continue;
        if (std::binary_search(key.ranks.begin(), key.ranks.end(), rank_)) links.insert(key.ranks);
      }
    }
    std::optional<SlowLink> slowest;
    for (const std::vector<int32_t>& ranks : links) {
      std::optional<SlowLink> link = SlowLinkOf(ranks);
      if (link && (!slowest || link->excess_ns > slowest->excess_ns)) slowest = std::move(link);
    }
    return slowest;
  }

 private:
  using Transfers = std::map<TransferKey, TransferUse>;  // of an iteration
  struct Compared {
    double own_ns = 0, usual_ns = 0, count = 0;
    double factor() const { return own_ns / usual_ns; }
  };

  // Sends and receives of a pair that were joined by their ends may be off by one, and then contain
  // what the other one waits.
  static bool IsTold(const TransferKey& key) { return key.bytes > 0 || key.function != "SendRecv"; }

  static std::vector<Transfers> TransfersOf(absl::Span<const IterationProfiles> iterations) {
    std::vector<Transfers> all;
    for (const IterationProfiles& iteration : iterations) {
      Transfers& of_iteration = all.emplace_back();
      for (const RankProfile& profile : iteration) {
        of_iteration.insert(profile.transfers.begin(), profile.transfers.end());
      }
    }
    return all;
  }

  // Not of the iteration `except` itself. 0: there are none.
  double UsualNs(const TransferKey& key, const Transfers* except) const {
    std::vector<double> medians_ns;
    for (const Transfers& iteration : earlier_) {
      const auto it = iteration.find(key);
      if (&iteration != except && it != iteration.end()) {
        medians_ns.push_back(it->second.median_ns);
      }
    }
    return Median(std::move(medians_ns));
  }

  double OthersNs(const TransferKey& key) const {
    std::vector<double> medians_ns;
    for (const Transfers& iteration : now_) {
      for (const auto& [other, use] : iteration) {
        const bool alike = other.ranks != key.ranks && other.ranks.size() == key.ranks.size() &&
                           other.function == key.function && other.bytes == key.bytes &&
                           other.order == key.order;
        if (alike) medians_ns.push_back(use.median_ns);
      }
    }
    return Median(std::move(medians_ns));
  }

  template <typename Usual>
  static Compared Compare(const std::vector<int32_t>& ranks, const Transfers& iteration,
                          const Usual& usual) {
    Compared compared;
    for (const auto& [key, use] : iteration) {
      const double usual_ns = key.ranks == ranks ? usual(key) : 0;
      if (usual_ns <= 0) continue;
      compared.own_ns += use.count * use.median_ns;
      compared.usual_ns += use.count * usual_ns;
      compared.count += use.count;
    }
    return compared;
  }

  std::optional<SlowLink> SlowLinkOf(const std::vector<int32_t>& ranks) const {
    SlowLink link = {.ranks = ranks, .against_earlier = !earlier_.empty()};
    std::vector<double> factors, excesses_ns, noise;
    double stamps = 0;
    for (const Transfers& iteration : now_) {
      const Compared compared = Compare(ranks, iteration, [&](const TransferKey& key) {
        return link.against_earlier ? UsualNs(key, nullptr) : OthersNs(key);
      });
      if (compared.usual_ns <= 0) continue;
      factors.push_back(compared.factor());
      excesses_ns.push_back(compared.own_ns - compared.usual_ns);
      stamps = std::max(stamps, kStampNs * compared.count / compared.usual_ns);
    }
    if (factors.empty()) return std::nullopt;
    for (const Transfers& iteration : earlier_) {
      const Compared compared = Compare(
          ranks, iteration, [&](const TransferKey& key) { return UsualNs(key, &iteration); });
      if (compared.usual_ns > 0) noise.push_back(compared.factor());
    }
    const double factor = MiddleOf(factors);
    const double spread =
        std::max(MedianDeviation(factors, factor), noise.empty() ? 0 : MedianDeviation(noise, 1));
    const double error =
        std::hypot(kOfMedian * spread / std::sqrt(static_cast<double>(factors.size())), stamps);
    if (factor < 1 + kLeastSlowLink || factor - 1 < kSure * error) return std::nullopt;
    const double half = kInterval * error;
    link.factor = {factor, factor - half, factor + half};
    link.excess_ns = MiddleOf(excesses_ns);
    return link;
  }

  const int32_t rank_;
  const std::vector<Transfers> now_, earlier_;
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
      if (name.log_factor < kSure * name.error || name.log_factor < overall() / 2) {
        others_.Add(name);
        continue;
      }
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

  bool AllAreSlow() const { return IsSure(all_) && IsOneFactor(); }
  // ... and the others are slower by less than half of that, for sure.
  bool FewAreSlow() const {
    if (!IsSure(slow_)) return false;
    const double half = slow_.excess_ns / slow_.time_ns / 2;
    return half * others_.time_ns - others_.excess_ns > kSure * others_.error_ns;
  }

 private:
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

  double overall() const { return std::log1p(all_.excess_ns / all_.time_ns); }
  bool IsSure(const Sum& sum) const {
    return sum.excess_ns > kSure * sum.error_ns && sum.excess_ns > kLeastShare * work_ns_;
  }

  const std::vector<NameDifference> names_;
  const double work_ns_;
  Sum all_, slow_, others_;
  std::vector<NameDifference> slow_names_;
};

class ReasonFinder {
 public:
  explicit ReasonFinder(const RankQuestion& question)
      : question_(question),
        comparisons_(ComparisonsOf(question)),
        reference_(comparisons_.rank),
        difference_(UsualDifferenceOf(comparisons_, reference_)),
        kernels_(NameDifferencesOf(comparisons_.rank, reference_), difference_.work_ns) {}

  ReasonVerdict Run() {
    if (comparisons_.rank.empty()) {
      verdict_.text = question_.peers.empty()
                          ? "no other rank does the same work, and no earlier window is there"
                          : "no window has this rank and a peer of it";
      return verdict_;
    }
    if (comparisons_.first_times) {
      CompareWithFirstTimes();
      return verdict_;
    }
    verdict_.excess_ns = difference_.excess.ns;
    verdict_.error_ns = difference_.excess.error_ns;
    const WorkPart part = LargestPart();
    const bool longer = IsSure(difference_.excess);
    const std::optional<SlowLink> link = Links(question_).Slowest();
    if (link && (!longer || link->excess_ns > verdict_.excess_ns || part == WorkPart::kTransfer)) {
      SayLink(*link);
    } else if ((!longer || part == WorkPart::kSameKernels) &&
               (kernels_.AllAreSlow() || kernels_.FewAreSlow())) {
      SayKernels();
    } else if (!longer && IsFromLengths()) {
      verdict_.explained_ns = difference_[WorkPart::kLengths].ns;
      verdict_.excess_ns += verdict_.explained_ns;
      Say(WorkPart::kLengths);
    } else if (!longer && !IsLate(part)) {
      verdict_.text =
          absl::StrFormat("its work is not longer than %s beyond noise: %s, +- %s",
                          comparisons_.with, Ms(verdict_.excess_ns), Ms(kSure * verdict_.error_ns));
    } else if (verdict_.explained_ns < kMostOfIt * verdict_.excess_ns ||
               !IsSure(difference_[part])) {
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
  bool IsSure(const UsualDifference::Value& value) const {
    return (value.ns > kSure * value.error_ns || value.in_most) &&
           value.ns > kLeastShare * difference_.work_ns;
  }
  // The GPU waits longer for its host, for sure. All its work, whose noise is mostly that of its
  // kernels, need not be.
  bool IsLate(WorkPart part) const {
    return (part == WorkPart::kLaunch || part == WorkPart::kLoader) && IsSure(difference_[part]);
  }
  // Most of what its iterations are longer. Against its own earlier ones longer sequences say
  // nothing of the rank.
  bool IsFromLengths() const {
    const double lengths_ns = difference_[WorkPart::kLengths].ns;
    const double total_ns = difference_.excess.ns + lengths_ns;
    return !question_.peers.empty() && IsSure({total_ns, difference_.excess.error_ns}) &&
           lengths_ns >= kMostOfIt * total_ns;
  }

  // Among the parts that sum to the excess.
  WorkPart LargestPart() {
    auto largest = WorkPart::kSameKernels;
    for (size_t i = 0; i < kWorkParts; ++i) {
      const auto part = static_cast<WorkPart>(i);
      if (part != WorkPart::kLengths && difference_[part].ns > difference_[largest].ns) {
        largest = part;
      }
    }
    verdict_.explained_ns = difference_[largest].ns;
    return largest;
  }

  std::string PartsInWords() const {
    static constexpr const char* kNames[kWorkParts] = {
        "equal kernels", "more kernels",       "lengths", "launches", "the batch",
        "transfers",     "copies and the rest"};
    std::vector<std::string> parts;
    for (size_t i = 0; i < kWorkParts; ++i) {
      const double ns = difference_.parts[i].ns;
      if (std::abs(ns) < kLeastShare * difference_.work_ns) continue;
      parts.push_back(absl::StrCat(kNames[i], " ", Ms(ns)));
    }
    return absl::StrJoin(parts, ", ");
  }

  void Say(WorkPart part) {
    const double error = kInterval * difference_[part].error_ns / difference_.work_ns;
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
    if (kernels_.AllAreSlow()) {
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

  // Their hosts and their sums are longer than usual ones, by nobody knows how much.
  void CompareWithFirstTimes() {
    verdict_.first_times = true;
    const WorkPart late = difference_[WorkPart::kLoader].ns > difference_[WorkPart::kLaunch].ns
                              ? WorkPart::kLoader
                              : WorkPart::kLaunch;
    if (kernels_.AllAreSlow() || kernels_.FewAreSlow()) {
      SayKernels();
    } else if (IsLate(late)) {
      verdict_.explained_ns = difference_[late].ns;
      Say(late);
    } else {
      verdict_.text = absl::StrCat("neither its kernels nor its host are slower than ",
                                   comparisons_.with, ", and there is no other earlier window");
    }
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
  const UsualDifference difference_;
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
