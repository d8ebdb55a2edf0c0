#include "daemon/ranks/link_test.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace seqpoint::ranks {
namespace {

// Iterations that make a baseline, and those that it remembers.
constexpr double kBaseline = 16, kBaselineMemory = 1024;
// Transfers that are slower by less are not called slow: they share links and memory with others.
constexpr double kLinkTolerance = 0.03;

std::vector<int32_t> RanksOf(const Link& link, const JoinedIteration& iteration) {
  if (link.low >= 0) return {link.low, link.high};
  for (const auto& [hash, ranks] : iteration.communicators)
    if (hash == link.communicator) return ranks;
  return {};
}

}  // namespace

bool LinkTest::Add(const JoinedIteration& iteration, std::vector<LinkVerdict>& verdicts) {
  std::map<Link, std::vector<const TransferPart*>> parts;
  for (const TransferPart& part : iteration.transfers)
    if (part.complete && part.transfer_ns > 0)
      parts[{part.communicator, std::min(part.from, part.to), std::max(part.from, part.to)}]
          .push_back(&part);
  bool changed = false;
  for (const auto& [link, of_link] : parts) {
    const size_t kinds = std::accumulate(
        links_.begin(), links_.end(), size_t{0},
        [](size_t sum, const auto& entry) { return sum + entry.second.kinds.size(); });
    // Communicators were created again and again: those of the past are not told apart.
    if (kinds + of_link.size() > kMostKinds) links_.clear();
    changed |= Test(link, links_[link], iteration, of_link, verdicts);
  }
  return changed;
}

bool LinkTest::Test(const Link& link, State& state, const JoinedIteration& iteration,
                    const std::vector<const TransferPart*>& parts,
                    std::vector<LinkVerdict>& verdicts) {
  double seen_ns = 0, expected_ns = 0;
  std::vector<std::pair<Baseline*, double>> news;
  for (const TransferPart* part : parts) {
    Baseline& baseline = state.kinds[part->kind];
    const double each = std::log(static_cast<double>(part->transfer_ns) / part->count);
    if (baseline.count >= kBaseline) {
      seen_ns += static_cast<double>(part->transfer_ns);
      expected_ns += part->count * std::exp(baseline.mean);
    }
    news.emplace_back(&baseline, each);
  }
  const auto learn = [&] {
    for (const auto& [baseline, each] : news) {
      baseline->count = std::min(baseline->count + 1, kBaselineMemory);
      const double limit = baseline->count > kBaseline ? 0.2 : 100;
      baseline->mean += std::clamp(each - baseline->mean, -limit, limit) / baseline->count;
    }
  };
  if (!(seen_ns > 0)) {
    learn();
    return false;
  }
  const Evidence evidence = {std::log(seen_ns / expected_ns), state.noise.deviation()};
  state.noise.Add(0, evidence.excess);
  if (!(evidence.deviation > 0)) {
    learn();
    return false;
  }
  const double threshold = Threshold(links_.size());
  if (!state.slow) {
    const double tolerance = std::max(kLinkTolerance, kNoiseTolerance * evidence.deviation);
    state.rise.Add(iteration.number, (evidence.excess - tolerance) / evidence.deviation,
                   state.noise.penalties());
    if (state.rise.quiet()) learn();
    if (state.rise.evidence() < threshold) return false;
    state.slow = true;
    state.excess = {};
    state.excess.Add(evidence);
    state.fall.Reset();
    if (verdicts.size() >= Verdicts::kMostLinks) verdicts.erase(verdicts.begin());
    verdicts.push_back({.communicator = link.communicator,
                        .ranks = RanksOf(link, iteration),
                        .pair = link.low >= 0,
                        .first = state.rise.onset(),
                        .named = iteration.number});
  } else {
    state.excess.Add(evidence);
    state.fall.Add(iteration.number, (state.excess.mean / 2 - evidence.excess) / evidence.deviation,
                   state.noise.penalties());
  }
  const auto verdict = std::find_if(verdicts.rbegin(), verdicts.rend(), [&](const LinkVerdict& v) {
    return v.communicator == link.communicator && v.pair == (link.low >= 0) &&
           v.ranks == RanksOf(link, iteration);
  });
  if (verdict == verdicts.rend()) return false;
  const double error = 1.96 * state.excess.deviation / std::sqrt(state.excess.count);
  verdict->factor = {std::exp(state.excess.mean), std::exp(state.excess.mean - error),
                     std::exp(state.excess.mean + error)};
  if (verdict->named == iteration.number) return true;
  if (state.fall.evidence() < threshold) return false;
  verdict->last = state.fall.onset() - 1;
  state.slow = false;
  state.rise.Reset();
  return true;
}

bool LinkTest::wants_more() const {
  return std::any_of(links_.begin(), links_.end(), [](const auto& entry) {
    const State& state = entry.second;
    return state.slow ? state.fall.evidence() > kSuspicion || state.excess.count < kSizeCount
                      : state.rise.evidence() > kSuspicion;
  });
}

bool LinkTest::slow() const {
  return std::any_of(links_.begin(), links_.end(),
                     [](const auto& entry) { return entry.second.slow; });
}

}  // namespace seqpoint::ranks
