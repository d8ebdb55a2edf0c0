#include "daemon/iterations/rule_choice.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "daemon/iterations/boundary_rules.h"
#include "daemon/iterations/clock_choice.h"
#include "daemon/iterations/decision_rules.h"
#include "daemon/iterations/rule_context.h"

namespace seqpoint::iterations {
namespace {

using abi::CallRecord;
using abi::EventPattern;
using abi::Op;
using abi::Rule;

// Each loop iteration must hold exactly one iteration with the same number of micro-batches. It
// must start before the loop iteration's first launch, or, after evaluation, anywhere in the loop
// iteration. Only warm-up loop iterations may differ.
std::optional<ChosenRule> Verify(const RuleContext& rules, const Rule& rule, uint32_t micro_batches,
                                 int launches_late) {
  ChosenRule chosen;
  chosen.rule = rule;
  chosen.iterations =
      Replay(rules.log, rules.occurrences, rule, static_cast<uint32_t>(rules.log.after_hole()));
  chosen.micro_batches = micro_batches;
  size_t next = 0;
  const auto& found = chosen.iterations;
  const bool has_step = rule.step.op != 0;
  for (size_t iteration = 0; iteration < rules.loop.iterations.size(); ++iteration) {
    const uint32_t from = rules.loop.iterations[iteration].segment;
    const uint32_t to = rules.loop.EndSegmentOf(iteration);
    const auto place = [&](const ReplayedIteration& it) { return has_step ? it.step : it.begin; };
    while (next < found.size() && place(found[next]) < from) ++next;
    size_t here = 0;
    bool exact = true;
    for (; next < found.size() && place(found[next]) < to; ++next) {
      ++here;
      const ReplayedIteration& it = found[next];
      const uint32_t latest =
          rules.loop.iterations[iteration].regular
              ? rules.LaunchAfter(rules.loop.iterations[iteration].first_launch, launches_late)
              : to;
      exact &= it.begin >= from && it.begin <= latest && it.micro_batches.size() == micro_batches;
    }
    // The last one has no end yet when the stream ends before the next candidate.
    if (here == 0 && iteration + 1 == rules.loop.iterations.size() &&
        !rules.loop.iterations.empty())
      break;
    if (here == 1 && exact) {
      ++chosen.verified_iterations;
    } else if (iteration * 4 >= rules.loop.iterations.size()) {
      return std::nullopt;
    }
  }
  if (chosen.verified_iterations == 0) return std::nullopt;
  return chosen;
}

std::optional<ChosenRule> Try(const RuleContext& rules, const BoundaryChoice& boundary,
                              const EndChoice& step) {
  Rule rule{};
  rule.generation = 1;
  rule.boundary = boundary.pattern;
  rule.step = step.pattern;
  rule.watched_ops = WatchedOps(rule);
  const auto from = static_cast<uint32_t>(rules.log.after_hole());
  const std::vector<uint32_t> candidates = Candidates(rules.log, rules.occurrences, rule, from);
  // Each loop iteration must have the same number of candidates, the first of them before the first
  // launch.
  uint32_t micro_batches = 0;
  for (size_t iteration : rules.RegularIterations()) {
    const auto first = std::lower_bound(candidates.begin(), candidates.end(),
                                        rules.loop.iterations[iteration].segment);
    const auto last =
        std::lower_bound(candidates.begin(), candidates.end(), rules.loop.EndSegmentOf(iteration));
    const auto n = static_cast<uint32_t>(last - first);
    if (n == 0 || *first > rules.LaunchAfter(rules.loop.iterations[iteration].first_launch,
                                             boundary.launches_late)) {
      return std::nullopt;
    }
    if (micro_batches != 0 && n != micro_batches) return std::nullopt;
    micro_batches = n;
    if (boundary.first_in_segment) {
      for (uint32_t i = rules.loop.iterations[iteration].segment; i < *first; ++i) {
        if (rules.calls[i].op == boundary.pattern.op) return std::nullopt;
      }
    }
  }
  if (micro_batches == 0 || micro_batches > 64) return std::nullopt;

  std::vector<EventPattern> confirms;
  if (rules.loop.graph_period > 1) {
    confirms.push_back(On(Op::kGraphLaunch));
  } else if (step.example != kNoCall) {
    for (const EndChoice& confirm : ConfirmChoices(rules, candidates, step)) {
      confirms.push_back(confirm.pattern);
    }
  }
  if (micro_batches == 1) confirms.push_back(EventPattern{});
  for (const EventPattern& confirm : confirms) {
    rule.confirm = confirm;
    rule.watched_ops = WatchedOps(rule);
    rule.micro_batches = micro_batches;
    if (auto chosen = Verify(rules, rule, micro_batches, boundary.launches_late)) {
      chosen->boundary_words = boundary.words;
      return chosen;
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<ChosenRule> ChooseRule(const LaunchLog& stream, const Occurrences& occurrences,
                                     const Loop& loop) {
  const RuleContext rules(stream, occurrences, loop);
  if (rules.loop.iterations.empty() || rules.RegularIterations().empty()) return std::nullopt;
  Steps ends = StepChoices(rules);
  const std::vector<EndChoice> steps =
      loop.graph_period > 1 ? GraphStepChoices(rules) : std::move(ends.launches);
  const std::vector<EndChoice>& nvtx_steps = ends.nvtx;
  const bool evaluation_seen =
      std::any_of(rules.loop.iterations.begin(), rules.loop.iterations.end(),
                  [](const LoopIteration& t) { return !t.regular; });
  std::vector<BoundaryChoice> boundaries = BoundaryChoices(rules);
  // A boundary at each micro-batch lets their lengths add up; a boundary at each step is second
  // best.
  const size_t choices = boundaries.size();
  if (rules.inner_iterations > 1) {
    for (size_t i = 0; i < choices; ++i) boundaries.push_back(boundaries[i]);
  }
  for (size_t i = 0; i < boundaries.size(); ++i) {
    const BoundaryChoice& boundary = boundaries[i];
    const bool each_micro_batch = rules.inner_iterations > 1 && i < choices;
    std::vector<EndChoice> tried;
    const bool nvtx = IsNvtxStart(static_cast<Op>(boundary.pattern.op));
    // Evaluation was seen without it: nothing more is needed.
    if (nvtx && evaluation_seen) tried.push_back({});
    if (nvtx) tried.insert(tried.end(), nvtx_steps.begin(), nvtx_steps.end());
    tried.insert(tried.end(), steps.begin(), steps.end());
    // A graph that holds the whole iteration is its step, too.
    const uint32_t first = rules.loop.iterations[rules.RegularIterations().back()].first_launch;
    if (steps.empty() && rules.OpAt(first) == Op::kGraphLaunch)
      tried.push_back({rules.PatternOf(first), first});
    if (steps.empty()) tried.push_back({});
    for (const EndChoice& step : tried) {
      std::optional<ChosenRule> chosen = Try(rules, boundary, step);
      if (!chosen || (each_micro_batch && chosen->micro_batches != rules.inner_iterations))
        continue;
      chosen->evaluation_seen = evaluation_seen;
      ChooseClock(stream, occurrences, &*chosen);
      return chosen;
    }
  }
  return std::nullopt;
}

std::optional<ChosenRule> ChooseMarkRule(const LaunchLog& stream, size_t min_marks) {
  ChosenRule chosen;
  chosen.rule.generation = 1;
  chosen.rule.boundary = On(Op::kMark);
  chosen.rule.micro_batches = 1;
  chosen.rule.watched_ops = WatchedOps(chosen.rule);
  chosen.boundary_words = "framework mark";
  chosen.iterations =
      Replay(stream, Occurrences(stream), chosen.rule, static_cast<uint32_t>(stream.after_hole()));
  chosen.verified_iterations = static_cast<uint32_t>(chosen.iterations.size());
  if (chosen.iterations.size() + 1 < min_marks || chosen.iterations.empty()) return std::nullopt;
  return chosen;
}

std::optional<ChosenRule> ChooseFrameworkRule(const LaunchLog& stream) {
  ChosenRule chosen;
  chosen.rule.generation = 1;
  chosen.rule.boundary = On(Op::kForward);
  // An evaluation batch ends an iteration as well, but is never one.
  chosen.rule.confirm = On(Op::kForward);
  chosen.rule.confirm.match = abi::kMatchName;
  chosen.rule.confirm.name_hash = abi::NameHash(abi::kForwardName, strlen(abi::kForwardName));
  chosen.rule.step = On(Op::kStep);
  chosen.rule.micro_batches = 1;
  chosen.rule.watched_ops = WatchedOps(chosen.rule);
  chosen.boundary_words = "forward pass of the root module";
  const Occurrences occurrences(stream);
  chosen.iterations =
      Replay(stream, occurrences, chosen.rule, static_cast<uint32_t>(stream.after_hole()));
  if (chosen.iterations.size() < 2) return std::nullopt;
  chosen.verified_iterations = static_cast<uint32_t>(chosen.iterations.size());
  // The most frequent number; the last iteration of an epoch may have fewer.
  std::map<size_t, size_t> micro_batches;
  for (const ReplayedIteration& it : chosen.iterations) ++micro_batches[it.micro_batches.size()];
  chosen.micro_batches = static_cast<uint32_t>(
      std::max_element(micro_batches.begin(), micro_batches.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; })
          ->first);
  // Where the number changes all the time, lengths are summed even if one is the most frequent.
  if (micro_batches[1] * 4 < chosen.iterations.size() * 3) {
    chosen.micro_batches = std::max(chosen.micro_batches, 2u);
  }
  chosen.rule.micro_batches = chosen.micro_batches;
  chosen.evaluation_seen =
      std::any_of(stream.calls().begin(), stream.calls().end(), [&](const CallRecord& call) {
        return call.op == static_cast<uint8_t>(Op::kForward) &&
               stream.names().Get(call.name_id).hash != chosen.rule.confirm.name_hash;
      });
  ChooseClock(stream, occurrences, &chosen);
  return chosen;
}

}  // namespace seqpoint::iterations
