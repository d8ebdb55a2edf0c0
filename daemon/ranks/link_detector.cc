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

Lengths LengthsOf(uint64_t elements) {
  constexpr uint64_t kMost = uint64_t{1} << 62;
  return {static_cast<int64_t>(std::min(elements, kMost)), 0};
}

// Leaves the `most` that came most often.
template <typename Values, typename CountOf>
void Trim(Values& values, size_t most, CountOf count_of) {
  while (values.size() > most)
    values.erase(std::min_element(values.begin(), values.end(), [&](const auto& a, const auto& b) {
      return count_of(a.second) < count_of(b.second);
    }));
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
    // Others have to be forgotten before.
    if (links_.size() >= kMostLinks && !links_.contains(link)) continue;
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

// The time of one transfer; 0: not known.
double LinkDetector::ExpectNs(const State& state, uint32_t kind, const KindSizes& sizes) {
  const auto baseline = state.kinds.find(kind);
  if (baseline != state.kinds.end() && baseline->second.count >= kBaseline)
    return std::exp(baseline->second.mean);
  const auto size = sizes.find(kind);
  if (size == sizes.end()) return 0;
  const auto curve = state.functions.find(size->second.function);
  return curve == state.functions.end() ? 0 : curve->second.ExpectNs(size->second.elements);
}

// A curve that knows less of a size than one transfer of it would tell does not know it.
double LinkDetector::Curve::ExpectNs(uint64_t elements) const {
  if (model.count() < kBaseline || elements < smallest || elements > largest) return 0;
  const LengthTerms terms = TermsOf(LengthsOf(elements));
  const double expected_ns = model.Expect(terms);
  return model.Variance(terms) < expected_ns * expected_ns ? expected_ns : 0;
}

bool LinkDetector::Curve::Learn(uint64_t elements, double ns) {
  WorkSums sums;
  sums.Add(LengthsOf(elements), ns);
  const auto learn = [&](WorkModel& to, uint64_t& least, uint64_t& most) {
    least = to.count() > 0 ? std::min(least, elements) : elements;
    most = to.count() > 0 ? std::max(most, elements) : elements;
    to.Learn(sums);
  };
  const bool outside = elements < smallest || elements > largest;
  if (model.count() < kBaseline || !outside)
    learn(model, smallest, largest);
  else
    ++beyond;
  if (beyond > 0) learn(next, next_smallest, next_largest);
  if (beyond < kBaseline) return false;
  model = next;
  smallest = next_smallest;
  largest = next_largest;
  next = {};
  beyond = 0;
  return true;
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

void LinkDetector::Learn(State& state, const Parts& parts, const KindSizes& sizes) const {
  const size_t most_functions = std::min(kMostFunctions, most_of_link_);
  for (const TransferPart* part : parts) {
    const auto size = sizes.find(part->kind);
    if (size != sizes.end() && (state.functions.size() < most_functions ||
                                state.functions.contains(size->second.function))) {
      if (state.functions[size->second.function].Learn(size->second.elements, EachNs(*part)))
        state.noise = {};  // that was the other curve's
    }
    if (state.kinds.size() < most_of_link_ || state.kinds.contains(part->kind))
      state.kinds[part->kind].Add(std::log(EachNs(*part)));
  }
}

void LinkDetector::Baseline::Add(double value) {
  count = std::min(count + 1, kBaselineMemory);
  const double limit = count > kBaseline ? 0.2 : 1e9;  // of a logarithm: a stall is no new level
  mean += std::clamp(value - mean, -limit, limit) / count;
}

// Links that are not used any more are forgotten: communicators may be created again and again.
// Where there are many links, each one keeps less.
void LinkDetector::MakeRoom(int64_t number, std::vector<LinkVerdict>& verdicts) {
  for (auto at = links_.begin(); at != links_.end();) {
    if (at->second.seen >= number - kForget) {
      ++at;
      continue;
    }
    LinkVerdict* const verdict = FindVerdict(at->first, verdicts);
    if (verdict && verdict->last < 0) verdict->last = at->second.seen;
    at = links_.erase(at);
  }
  const auto kept = [this] {
    size_t count = 0;
    for (const auto& [link, state] : links_) count += state.kinds.size() + state.functions.size();
    return count;
  };
  while (most_of_link_ > 1 && kept() > kMostKinds) {
    most_of_link_ /= 2;
    for (auto& [link, state] : links_) {
      Trim(state.kinds, most_of_link_, [](const Baseline& kind) { return kind.count; });
      Trim(state.functions, most_of_link_, [](const Curve& curve) { return curve.model.count(); });
    }
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
