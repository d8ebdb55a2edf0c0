#include "daemon/ranks/link_detector.h"

#include <algorithm>
#include <cmath>

#include "daemon/ranks/rank_scores.h"

namespace seqpoint::ranks {
namespace {

// Iterations that make a baseline, and those that it remembers.
constexpr double kBaseline = 16, kBaselineMemory = 1024;
// Iterations without a transfer.
constexpr int64_t kForget = 1024;
// StragglerDetector tolerates 1 % of excess times weight: 3 % here.
constexpr double kLinkWeight = 1.0 / 3;

// Kinds of a link that have baselines beside the curve.
constexpr size_t kMostOfLink = 256;

Lengths LengthsOf(const KindSize& size) {
  constexpr uint64_t kMost = uint64_t{1} << 62;
  return {static_cast<int64_t>(std::min(size.elements, kMost)), 0};
}

double EachNs(const TransferPart& part) {
  return static_cast<double>(part.transfer_ns) / part.count;
}

std::vector<int32_t> RanksOf(const Link& link, const JoinedIteration& iteration) {
  if (link.is_pair()) return {link.low, link.high};
  for (const auto& [hash, ranks] : iteration.communicators)
    if (hash == link.communicator) return ranks;
  return {};
}

LinkVerdict& AddVerdict(const Link& link, const JoinedIteration& iteration, int64_t first,
                        std::vector<LinkVerdict>& verdicts) {
  if (verdicts.size() >= Verdicts::kMostLinks) verdicts.erase(verdicts.begin());
  LinkVerdict& verdict = verdicts.emplace_back();
  verdict.communicator = link.communicator;
  verdict.ranks = RanksOf(link, iteration);
  verdict.pair = link.is_pair();
  verdict.first = first;
  verdict.named = iteration.number;
  return verdict;
}

// The newest about the link; null: it was dropped for newer ones.
LinkVerdict* FindVerdict(const Link& link, std::vector<LinkVerdict>& verdicts) {
  const auto at = std::find_if(verdicts.rbegin(), verdicts.rend(), [&](const LinkVerdict& v) {
    if (v.communicator != link.communicator || v.pair != link.is_pair()) return false;
    return !v.pair || v.ranks == std::vector<int32_t>{link.low, link.high};
  });
  return at == verdicts.rend() ? nullptr : &*at;
}

}  // namespace

bool LinkDetector::Add(const JoinedIteration& iteration, const KindSizes& sizes,
                       std::vector<LinkVerdict>& verdicts) {
  std::map<Link, Parts> parts;
  for (const TransferPart& part : iteration.transfers)
    if (part.complete && part.transfer_ns > 0)
      parts[{part.communicator, std::min(part.from, part.to), std::max(part.from, part.to)}]
          .push_back(&part);
  if (parts.empty()) return false;
  MakeRoom(iteration.number, verdicts);
  bool changed = false;
  for (const auto& [link, of_link] : parts) {
    State& state = links_[link];
    state.seen = iteration.number;
    const Evidence evidence = Compare(state, of_link, sizes);
    const auto event = state.test.Add(iteration.number, {evidence}, Threshold(links_.size()));
    if (state.test.finding() == RankScores::Finding::kOrdinary) Learn(state, of_link, sizes);
    changed |= event != StragglerDetector::Event::kNone;
    if (event == StragglerDetector::Event::kBecameSlow)
      AddVerdict(link, iteration, state.test.since(), verdicts);
    LinkVerdict* const verdict = FindVerdict(link, verdicts);
    if (verdict && event == StragglerDetector::Event::kRecovered)
      verdict->last = state.test.since() - 1;
    if (verdict && state.test.slow()) verdict->factor = state.test.excess()[kExclusive].Factor();
  }
  return changed;
}

// The time of one transfer; 0: not known. A curve that knows less of a size than one transfer of
// it would tell does not know it.
double LinkDetector::ExpectNs(const State& state, uint32_t kind, const KindSizes& sizes) {
  const auto baseline = state.kinds.find(kind);
  if (baseline != state.kinds.end() && baseline->second.count >= kBaseline)
    return std::exp(baseline->second.mean);
  const auto size = sizes.find(kind);
  if (size == sizes.end()) return 0;
  const auto curve = state.functions.find(size->second.function);
  if (curve == state.functions.end() || curve->second.count() < kBaseline) return 0;
  const LengthTerms terms = TermsOf(LengthsOf(size->second));
  const double expected_ns = curve->second.Expect(terms);
  return curve->second.Variance(terms) < expected_ns * expected_ns ? expected_ns : 0;
}

// How much longer the transfers took than expected.
Evidence LinkDetector::Compare(State& state, const Parts& parts, const KindSizes& sizes) {
  double seen_ns = 0, expected_ns = 0;
  for (const TransferPart* part : parts) {
    const double each_ns = ExpectNs(state, part->kind, sizes);
    if (!(each_ns > 0)) continue;
    seen_ns += static_cast<double>(part->transfer_ns);
    expected_ns += part->count * each_ns;
  }
  if (!(seen_ns > 0)) return {};
  const Evidence evidence = {std::log(seen_ns / expected_ns), state.noise.deviation(), kLinkWeight,
                             state.noise.penalties()};
  state.noise.Add(0, evidence.excess);
  return evidence;
}

void LinkDetector::Learn(State& state, const Parts& parts, const KindSizes& sizes) {
  for (const TransferPart* part : parts) {
    const auto size = sizes.find(part->kind);
    if (size != sizes.end()) {
      WorkSums sums;
      sums.Add(LengthsOf(size->second), EachNs(*part));
      state.functions[size->second.function].Learn(sums);
    }
    const bool room = size == sizes.end() || state.kinds.size() < kMostOfLink;
    if (room || state.kinds.contains(part->kind))
      state.kinds[part->kind].Add(std::log(EachNs(*part)));
  }
}

void LinkDetector::Baseline::Add(double value) {
  count = std::min(count + 1, kBaselineMemory);
  const double limit = count > kBaseline ? 0.2 : 1e9;  // of a logarithm: a stall is no new level
  mean += std::clamp(value - mean, -limit, limit) / count;
}

// Links that are not used any more are forgotten, and all where there are too many: communicators
// may be created again and again.
void LinkDetector::MakeRoom(int64_t number, std::vector<LinkVerdict>& verdicts) {
  size_t kinds = 0;
  for (const auto& [link, state] : links_) kinds += state.kinds.size();
  for (auto at = links_.begin(); at != links_.end();) {
    if (kinds <= kMostKinds && at->second.seen >= number - kForget) {
      ++at;
      continue;
    }
    LinkVerdict* const verdict = FindVerdict(at->first, verdicts);
    if (verdict && verdict->last < 0) verdict->last = at->second.seen;
    at = links_.erase(at);
  }
}

bool LinkDetector::slow() const {
  return std::any_of(links_.begin(), links_.end(),
                     [](const auto& entry) { return entry.second.test.slow(); });
}

bool LinkDetector::wants_more() const {
  return std::any_of(links_.begin(), links_.end(),
                     [](const auto& entry) { return entry.second.test.wants_more(); });
}

}  // namespace seqpoint::ranks
