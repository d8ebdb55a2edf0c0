#include "daemon/iterations/graph_period.h"

#include <cmath>
#include <numeric>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace seqpoint::iterations {
namespace {

// Natural logarithm of how unlikely an accident has to be.
constexpr double kSure = 9;
// This many returns do not all fall on even distances by accident.
constexpr size_t kFewReturns = 13;
// Iterations after which a period without evidence is no longer waited for.
constexpr size_t kPatience = 60;
constexpr size_t kMinWaits = 5;

constexpr double kFromStart = 3;
constexpr double kBetweenTwo =
    3;                            // the graph before the start and the graph at it are both special
constexpr double kBehindOne = 2;  // the last one, which holds the optimiser, is special more often
constexpr double kAtOne = 1;
constexpr double kBehindWait = 3;

// The graphs at numbers r mod some period.
struct Residue {
  uint32_t returns = 0;  // graphs that came back at the same residue
  bool mixed = false;    // one came back at another one
  bool special() const { return !mixed && returns > 0; }
};

class Search {
 public:
  explicit Search(const GraphLaunches& launches)
      : launches_(launches), size_(launches.graphs.size()) {
    absl::flat_hash_map<uint32_t, uint32_t> last;
    for (uint32_t i = 0; i < size_; ++i) {
      const auto [it, fresh] = last.try_emplace(launches.graphs[i], i);
      if (!fresh) returns_.push_back({std::exchange(it->second, i), i});
    }
    for (const auto& [first, next] : returns_) common_ = std::gcd(common_, next - first);
    FindWaitPeriod();
  }

  GraphPeriod Find() const {
    if (returns_.size() < kFewReturns) return {1, {}, size_ < kPatience * 10};
    // All graphs come back after multiples of `common_`. Three micro-batches have three kinds of
    // graphs, four in two buffers have four.
    switch (common_) {
      case 1:
      case 2:
        break;
      case 3:
      case 6:
        return Answer(3);
      case 4:
        return Answer(4);
      default:
        return {};  // the batches themselves come back in a fixed order
    }
    bool unsure = false;
    for (uint32_t period = common_ == 1 ? 2 : 3; period <= kMaxGraphPeriod; ++period) {
      const std::vector<Residue> residues = Residues(Modulus(period));
      if (size_ >= 3 * period && Evidence(period, residues) > kSure) return Answer(period);
      unsure |= size_ < kPatience * period && Possible(residues);
    }
    // Two kinds of graphs that alternate: two buffers, or two micro-batches.
    const bool two = common_ == 2 && (!launches_.prefetched || wait_period_ == 2);
    if (two && !unsure) return Answer(2);
    return {1, {}, unsure};
  }

 private:
  // Two buffers alternate, too.
  uint32_t Modulus(uint32_t period) const { return std::lcm(period, common_); }

  std::vector<Residue> Residues(uint32_t modulus) const {
    std::vector<Residue> residues(modulus);
    for (const auto& [first, next] : returns_) {
      if ((next - first) % modulus == 0) {
        ++residues[first % modulus].returns;
      } else {
        residues[first % modulus].mixed = residues[next % modulus].mixed = true;
      }
    }
    return residues;
  }

  // The log odds against graphs keeping to some numbers by accident: each return has a chance of 1
  // in `period`, and it could have been any number and any period.
  double Evidence(uint32_t period, const std::vector<Residue>& residues) const {
    const double chance = std::log(static_cast<double>(period));
    const bool expected = wait_period_ == period;
    double sum = expected ? 0 : -std::log(static_cast<double>(kMaxGraphPeriod));
    uint32_t special = 0;
    for (const Residue& residue : residues) {
      if (!residue.special()) continue;
      ++special;
      sum += (residue.returns - (expected ? 0 : 1)) * chance;
    }
    // Micro-batches in between share their graphs.
    return special <= 2 * residues.size() / period ? sum : 0;
  }

  // Whether iterations of this period are possible. Fewer are if the first launch is known to start
  // one.
  bool Possible(const std::vector<Residue>& residues) const {
    const size_t n = residues.size();
    for (size_t r = 0; r < (launches_.from_start ? 1 : n); ++r) {
      if (!residues[r].mixed && !residues[(r + n - 1) % n].mixed) return true;
    }
    return false;
  }

  // Finds the number of launches between waits, where it is always the same.
  void FindWaitPeriod() {
    const std::vector<uint32_t>& waits = launches_.waits;
    if (waits.size() < kMinWaits) return;
    wait_period_ = waits[1] - waits[0];
    for (size_t i = 1; i < waits.size(); ++i) {
      if (waits[i] - waits[i - 1] != wait_period_) wait_period_ = 0;
    }
  }

  GraphPeriod Answer(uint32_t period) const {
    GraphPeriod found{period, std::vector<double>(period, 0), false};
    const std::vector<Residue> residues = Residues(Modulus(period));
    const auto special = [&](uint32_t r) {
      for (size_t i = r % period; i < residues.size(); i += period) {
        if (residues[i].special()) return true;
      }
      return false;
    };
    for (uint32_t r = 0; r < period; ++r) {
      const bool before = special(r + period - 1), at = special(r);
      found.start_scores[r] = before && at ? kBetweenTwo : before ? kBehindOne : at ? kAtOne : 0;
    }
    if (launches_.from_start) found.start_scores[0] += kFromStart;
    for (uint32_t number : launches_.waits) {
      found.start_scores[number % period] +=
          kBehindWait / static_cast<double>(launches_.waits.size());
    }
    return found;
  }

  const GraphLaunches& launches_;
  const size_t size_;
  std::vector<std::pair<uint32_t, uint32_t>> returns_;  // numbers of two launches of one graph
  uint32_t common_ = 0;
  uint32_t wait_period_ = 0;  // 0: none
};

}  // namespace

GraphPeriod FindGraphPeriod(const GraphLaunches& launches) { return Search(launches).Find(); }

}  // namespace seqpoint::iterations
