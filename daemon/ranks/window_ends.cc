#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/base/statistics.h"
#include "daemon/ranks/collective_kernels.h"

namespace seqpoint::ranks {
namespace {

constexpr size_t kVotes = 512;          // kernels of a lane that vote on the difference of clocks
constexpr int64_t kLeastApartNs = 500;  // two ends: stamps are not more exact
constexpr double kMissing = 0.05;       // of the records of a collective are lost, at most
constexpr double kLeastTogether = 0.4;  // of a lane's collectives, end with those of another lane

bool IsSend(const CollectiveKernel& kernel) { return FunctionOf(kernel.name) == "SendRecv"; }

// The kernels of one stream, in the order of their ends.
using Lane = std::vector<const CollectiveKernel*>;

std::vector<Lane> LanesOf(const WindowKernels& kernels) {
  std::map<uint32_t, Lane> by_stream;
  for (const CollectiveKernel& kernel : kernels) by_stream[kernel.stream].push_back(&kernel);
  std::vector<Lane> lanes;
  for (auto& [stream, lane] : by_stream) {
    std::stable_sort(lane.begin(), lane.end(),
                     [](const auto* a, const auto* b) { return a->end_ns < b->end_ns; });
    lanes.push_back(std::move(lane));
  }
  return lanes;
}

// Pairs of kernels of the same name that end together. `end_ns`: of a kernel, on a common clock. Of
// several that a kernel could be paired with, the next one is taken where it is nearer.
template <typename End>
std::vector<std::pair<size_t, size_t>> EndTogether(const Lane& a, const Lane& b,
                                                   const End& end_ns) {
  const auto apart_ns = [&](size_t i, size_t k) {
    const bool both = i < a.size() && k < b.size() && a[i]->name == b[k]->name;
    return both ? std::abs(end_ns(*b[k]) - end_ns(*a[i])) : std::numeric_limits<int64_t>::max();
  };
  std::vector<std::pair<size_t, size_t>> pairs;
  for (size_t i = 0, k = 0; i < a.size() && k < b.size();) {
    const int64_t here_ns = apart_ns(i, k);
    const bool together = here_ns <= kSameEndNs;
    if (together && apart_ns(i + 1, k) < here_ns) {
      ++i;
    } else if (together && apart_ns(i, k + 1) < here_ns) {
      ++k;
    } else if (together) {
      pairs.emplace_back(i++, k++);
    } else if (end_ns(*b[k]) > end_ns(*a[i])) {
      ++i;
    } else {
      ++k;
    }
  }
  return pairs;
}

// Candidates for how much later the clock of `a` is: where both have the same kernels in the same
// order, the median difference of their ends; and the differences that most ends have, nearly or
// more exactly.
std::vector<int64_t> ClockDifferences(const Lane& a, const Lane& b) {
  const bool same = a.size() == b.size() &&
                    std::equal(a.begin(), a.end(), b.begin(),
                               [](const auto* x, const auto* y) { return x->name == y->name; });
  std::vector<int64_t> candidates, differences;
  if (same) {
    for (size_t i = 0; i < a.size(); ++i) differences.push_back(a[i]->end_ns - b[i]->end_ns);
    candidates.push_back(Median(std::exchange(differences, {})));
  }
  for (size_t i = 0; i < std::min(a.size(), kVotes); ++i) {
    for (size_t k = 0; k < std::min(b.size(), kVotes); ++k) {
      if (a[i]->name == b[k]->name) differences.push_back(a[i]->end_ns - b[k]->end_ns);
    }
  }
  if (differences.empty()) return candidates;
  std::sort(differences.begin(), differences.end());
  for (const int64_t width_ns : {kSameEndNs, kSameEndNs / 4, kSameEndNs / 16}) {
    candidates.push_back(Densest(differences, width_ns).first);
  }
  return candidates;
}

// Whether two lanes are of one communicator, by one difference of their clocks.
struct Agreement {
  using Pairs = std::vector<std::pair<size_t, size_t>>;
  Pairs pairs;
  // Logarithm of how much more probable the ends are if they are. Ends that happen to be near to
  // each other are at any distance within kSameEndNs; those of one collective are all at a small
  // one. A collective that only one rank has speaks against it, a send does not.
  double score = 0;
  int64_t later_ns = 0;
};

template <typename End>
Agreement AgreementOf(const Lane& a, const Lane& b, const End& end_ns) {
  Agreement agreement = {EndTogether(a, b, end_ns)};
  const auto count = static_cast<double>(agreement.pairs.size());
  const auto shorter = static_cast<double>(std::min(a.size(), b.size()));
  if (count < kLeastTogether * shorter) return agreement;
  std::vector<int64_t> apart_ns;
  for (const auto& [i, k] : agreement.pairs) {
    apart_ns.push_back(std::abs(end_ns(*a[i]) - end_ns(*b[k])));
  }
  const auto usual_ns = static_cast<double>(std::max(Median(apart_ns), kLeastApartNs));
  agreement.score = count * std::log(kSameEndNs / usual_ns);
  if (!IsSend(*a[0])) agreement.score += (shorter - count) * std::log(kMissing);
  return agreement;
}

// The surest difference of the clocks of two windows, as two of their lanes say.
Agreement ClocksOf(const std::vector<Lane>& to, const std::vector<Lane>& from) {
  Agreement best;
  for (const Lane& a : to) {
    for (const Lane& b : from) {
      for (const int64_t later_ns : ClockDifferences(a, b)) {
        Agreement agreement = AgreementOf(a, b, [&](const CollectiveKernel& kernel) {
          return kernel.end_ns + (kernel.window == b[0]->window ? later_ns : 0);
        });
        if (agreement.score <= best.score) continue;
        best = std::move(agreement);
        best.later_ns = later_ns;
      }
    }
  }
  return best;
}

class EndMatcher {
 public:
  EndMatcher(absl::Span<const RankWindow> windows, const std::vector<WindowKernels>& kernels,
             WindowJoin* join)
      : windows_(windows), join_(*join) {
    for (const WindowKernels& of_window : kernels) lanes_.push_back(LanesOf(of_window));
  }

  std::vector<JoinedKernels> Run() {
    AlignClocks();
    for (uint32_t w = 0; w < windows_.size(); ++w) {
      for (const Lane& lane : lanes_[w]) AddLane(w, lane);
    }
    std::vector<JoinedKernels> result;
    for (const Communicator& communicator : communicators_) {
      SayMissing(communicator);
      for (const Item& item : communicator.items) {
        if (item.kernels.size() > 1) result.push_back({item.kernels, nullptr, 0});
      }
    }
    return result;
  }

 private:
  struct Item {
    const CollectiveKernel* first = nullptr;
    std::vector<const CollectiveKernel*> kernels;
  };
  struct Communicator {
    std::vector<Item> items;        // by aligned end
    std::vector<uint32_t> windows;  // that take part
    Lane Ends() const {
      Lane lane;
      for (const Item& item : items) lane.push_back(item.first);
      return lane;
    }
  };

  // The windows become connected one by one, the surest first.
  void AlignClocks() {
    const size_t count = windows_.size();
    join_.clock_behind_ns.assign(count, 0);
    std::vector<bool> aligned(count);
    std::map<std::pair<size_t, size_t>, Agreement> agreements;
    aligned[0] = true;
    for (size_t round = 1; round < count; ++round) {
      Agreement best;
      size_t best_window = count;
      for (size_t to = 0; to < count; ++to) {
        for (size_t w = 0; aligned[to] && w < count; ++w) {
          if (aligned[w]) continue;
          const auto [it, missing] = agreements.try_emplace({to, w});
          if (missing) it->second = ClocksOf(lanes_[to], lanes_[w]);
          if (it->second.score <= best.score) continue;
          best = it->second;
          best.later_ns += join_.clock_behind_ns[to];
          best_window = w;
        }
      }
      if (best_window == count) break;
      aligned[best_window] = true;
      join_.clock_behind_ns[best_window] = best.later_ns;
    }
    for (size_t w = 0; w < count; ++w) {
      if (aligned[w]) continue;
      unconnected_.push_back(w);
      join_.mismatches.push_back(absl::StrCat("rank ", windows_[w].rank,
                                              ": its collectives end with those of no other rank"));
    }
  }

  bool IsConnected(uint32_t w) const {
    return std::find(unconnected_.begin(), unconnected_.end(), w) == unconnected_.end();
  }
  int64_t EndOf(const CollectiveKernel& kernel) const {
    return kernel.end_ns + join_.clock_behind_ns[kernel.window];
  }

  // To the communicator with which most of it ends together; else it is one of its own.
  void AddLane(uint32_t w, const Lane& lane) {
    Communicator* best = nullptr;
    Agreement best_agreement;
    for (Communicator& communicator : communicators_) {
      if (!IsConnected(w) || communicator.windows.back() == w) continue;
      Agreement agreement = AgreementOf(
          communicator.Ends(), lane, [&](const CollectiveKernel& kernel) { return EndOf(kernel); });
      if (agreement.score <= best_agreement.score) continue;
      best = &communicator;
      best_agreement = std::move(agreement);
    }
    if (best == nullptr) {
      communicators_.push_back({{}, {w}});
      for (const CollectiveKernel* kernel : lane) {
        communicators_.back().items.push_back({kernel, {kernel}});
      }
      return;
    }
    best->windows.push_back(w);
    std::vector<bool> joined(lane.size());
    for (const auto& [i, k] : best_agreement.pairs) {
      best->items[i].kernels.push_back(lane[k]);
      joined[k] = true;
    }
    for (size_t k = 0; k < lane.size(); ++k) {
      if (!joined[k]) best->items.push_back({lane[k], {lane[k]}});
    }
    std::stable_sort(best->items.begin(), best->items.end(), [&](const Item& a, const Item& b) {
      return EndOf(*a.first) < EndOf(*b.first);
    });
  }

  void SayMissing(const Communicator& communicator) {
    if (communicator.windows.size() < 2) return;
    for (const uint32_t w : communicator.windows) {
      size_t missing = 0;
      for (const Item& item : communicator.items) {
        // Sends and receives are of two of the ranks.
        if (IsSend(*item.first)) continue;
        missing += std::none_of(item.kernels.begin(), item.kernels.end(),
                                [&](const auto* kernel) { return kernel->window == w; });
      }
      if (missing == 0) continue;
      join_.mismatches.push_back(absl::StrCat("rank ", windows_[w].rank, ": ", missing, " of ",
                                              communicator.items.size(),
                                              " collectives of others are not in its window"));
    }
  }

  const absl::Span<const RankWindow> windows_;
  std::vector<std::vector<Lane>> lanes_;  // by window
  std::vector<Communicator> communicators_;
  std::vector<size_t> unconnected_;  // windows
  WindowJoin& join_;
};

}  // namespace

std::vector<JoinedKernels> JoinByEnds(absl::Span<const RankWindow> windows,
                                      const std::vector<WindowKernels>& kernels, WindowJoin* join) {
  return EndMatcher(windows, kernels, join).Run();
}

}  // namespace seqpoint::ranks
