#include "daemon/iterations/decision_rules.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace seqpoint::iterations {
namespace {

using abi::EventPattern;
using abi::Op;

// Forward pass and loss take less than this share of a training step's launches. Evaluation does
// not launch the kinds that come first after it.
constexpr double kLate = 0.55;

struct Segment {
  uint32_t begin, end;
};

// The places of one kind of call within the loop iterations.
struct Usage {
  uint32_t iterations = 0;
  uint32_t last_iteration = kNoCall;
  double earliest = 1;  // as a share of the loop iteration's launches
  bool same_geometry = true;
  uint64_t geometry = 0;  // order-free sum over the calls of the first loop iteration
  uint64_t geometry_in_iteration = 0;
  uint32_t count = 0;  // calls in the first loop iteration
  uint32_t count_in_iteration = 0;
  bool same_count = true;
  uint64_t last_geometry = 0;
  uint32_t changes = 0;  // loop iterations with another geometry than the loop iteration before
  uint32_t example = 0;  // index of a call
};

// The kinds of calls that appear only late in each of the stretches.
std::vector<Usage> LateCalls(const RuleContext& rules, const std::vector<Segment>& stretches,
                             double least = kLate) {
  std::vector<Usage> usages(rules.log.symbol_count(Alphabet::kKind));
  std::vector<uint32_t> touched;
  const auto close = [](Usage* usage) {
    if (usage->iterations == 1) {
      usage->geometry = usage->geometry_in_iteration;
      usage->count = usage->count_in_iteration;
    } else {
      usage->same_geometry &= usage->geometry == usage->geometry_in_iteration;
      usage->same_count &= usage->count == usage->count_in_iteration;
      usage->changes += usage->last_geometry != usage->geometry_in_iteration;
    }
    usage->last_geometry = usage->geometry_in_iteration;
  };
  for (uint32_t s = 0; s < stretches.size(); ++s) {
    const auto [begin, end] = stretches[s];
    const double launches = std::max(1u, CountLaunches(rules.calls, begin, end));
    uint32_t launched = 0;
    for (uint32_t i = begin; i < end; ++i) {
      const Op op = rules.OpAt(i);
      const bool launch = IsLaunch(rules.calls[i].op);
      if (launch || IsNvtxStart(op)) {
        Usage& usage = usages[rules.KindAt(i)];
        if (usage.last_iteration != s) {
          if (usage.iterations > 0) close(&usage);
          if (usage.iterations++ == 0) touched.push_back(rules.KindAt(i));
          usage.last_iteration = s;
          usage.geometry_in_iteration = 0;
          usage.count_in_iteration = 0;
        }
        usage.earliest = std::min(usage.earliest, launched / launches);
        usage.geometry_in_iteration += rules.log.symbols()[i].of[1] * 0x9e3779b97f4a7c15ull;
        ++usage.count_in_iteration;
        usage.example = i;
      }
      launched += launch;
    }
  }
  std::vector<Usage> late;
  for (uint32_t symbol : touched) {
    Usage& usage = usages[symbol];
    if (usage.iterations != stretches.size() || usage.earliest < least) continue;
    close(&usage);
    late.push_back(usage);
  }
  return late;
}

// Whether some loop iteration holds more of it than any regular one: evaluation launches it, too.
bool InEvaluation(const RuleContext& rules, const Usage& usage) {
  size_t most = 0, most_irregular = 0;
  for (size_t iteration = 0; iteration < rules.loop.iterations.size(); ++iteration) {
    const size_t count =
        rules.occurrences
            .Of(Alphabet::kKind, rules.KindAt(usage.example),
                rules.loop.iterations[iteration].first_launch, rules.loop.EndOf(iteration))
            .size();
    size_t& so_far = rules.loop.iterations[iteration].regular ? most : most_irregular;
    so_far = std::max(so_far, count);
  }
  return most_irregular > most;
}

std::vector<EndChoice> BestOf(const RuleContext& rules, std::vector<Usage> late,
                              double (*rank)(const Usage&)) {
  std::stable_sort(late.begin(), late.end(),
                   [&](const Usage& a, const Usage& b) { return rank(a) > rank(b); });
  std::vector<EndChoice> choices;
  for (size_t i = 0; i < late.size() && i < 3; ++i) {
    choices.push_back({rules.PatternOf(late[i].example), late[i].example});
  }
  return choices;
}

}  // namespace

Steps StepChoices(const RuleContext& rules) {
  std::vector<Segment> stretches;
  for (size_t iteration : rules.RegularIterations()) {
    stretches.push_back(
        {rules.loop.iterations[iteration].segment, rules.loop.EndSegmentOf(iteration)});
  }
  const std::vector<Usage> all = LateCalls(rules, stretches);
  const auto best = [&](bool nvtx) {
    std::vector<Usage> late = all;
    std::erase_if(late, [&](const Usage& usage) {
      return IsNvtxStart(rules.OpAt(usage.example)) != nvtx || InEvaluation(rules, usage);
    });
    return BestOf(rules, std::move(late), [](const Usage& usage) {
      return (usage.same_geometry ? 1 : 0) + usage.earliest;
    });
  };
  return {best(false), best(true)};
}

std::vector<EndChoice> GraphStepChoices(const RuleContext& rules) {
  const uint32_t period = rules.loop.graph_period;
  std::vector<EndChoice> choices;
  // The loss is read back after each step: that needs no counting.
  const size_t last = rules.RegularIterations().back();
  for (uint32_t i = rules.loop.EndSegmentOf(last); i < rules.loop.EndOf(last); ++i) {
    if (rules.OpAt(i) == Op::kCopyD2H) choices.push_back({On(Op::kCopyD2H), i});
  }
  if (choices.size() > 1) choices.clear();
  // Otherwise the launches are counted, from the process' start or from a graph that is known to be
  // the last of its step.
  EndChoice counted{On(Op::kGraphLaunch), rules.loop.iterations[last].first_launch};
  counted.pattern.match = abi::kMatchAnchored;
  counted.pattern.every = period;
  counted.pattern.phase = period - 1;
  absl::flat_hash_map<uint64_t, uint32_t> ends, others;
  uint32_t number = 0;
  for (uint32_t i = rules.loop.iterations[0].first_launch; i < rules.loop.end; ++i) {
    if (rules.OpAt(i) != Op::kGraphLaunch) continue;
    const uint64_t name = ToMatchEvent(rules.calls[i], rules.log.names()).name_hash;
    ++(number++ % period == period - 1 ? ends : others)[name];
  }
  std::vector<std::pair<uint32_t, uint64_t>> anchors;
  for (const auto& [name, times] : ends) {
    if (times > 1 && name != 0 && !others.contains(name)) anchors.push_back({times, name});
  }
  std::sort(anchors.rbegin(), anchors.rend());
  uint64_t* const names[] = {&counted.pattern.previous_name_hash, &counted.pattern.bytes,
                             &counted.pattern.stream};
  for (size_t i = 0; i < anchors.size() && i < 3; ++i) *names[i] = anchors[i].second;
  uint32_t before = 0;
  for (uint32_t i = 0; i < rules.loop.iterations[0].first_launch; ++i)
    before += rules.OpAt(i) == Op::kGraphLaunch;
  counted.pattern.start =
      rules.log.from_process_start() ? (period - before % period) % period : period;
  choices.push_back(counted);
  return choices;
}

// The best runs the same number of times, with geometries that follow the length: libraries do not
// pick it by the length.
std::vector<EndChoice> ConfirmChoices(const RuleContext& rules,
                                      const std::vector<uint32_t>& candidates,
                                      const EndChoice& step) {
  std::vector<Segment> stretches;
  for (size_t iteration : rules.RegularIterations()) {
    const uint32_t iteration_end = rules.loop.EndSegmentOf(iteration);
    auto it = std::lower_bound(candidates.begin(), candidates.end(),
                               rules.loop.iterations[iteration].segment);
    for (; it != candidates.end() && *it < iteration_end; ++it) {
      uint32_t end =
          it + 1 != candidates.end() ? std::min(*(it + 1), iteration_end) : iteration_end;
      const auto steps =
          rules.occurrences.Of(Alphabet::kKind, rules.KindAt(step.example), *it, end);
      if (!steps.empty()) end = steps[0];
      stretches.push_back({*it, end});
    }
  }
  std::vector<Usage> late = LateCalls(rules, stretches);
  // Where forward and backward pass launch the same kernels, any of them has to serve.
  if (late.empty() && rules.inner_iterations > 1) late = LateCalls(rules, stretches, 0);
  std::erase_if(late, [&](const Usage& usage) {
    return IsNvtxStart(rules.OpAt(usage.example)) != IsNvtxStart(rules.OpAt(step.example)) ||
           InEvaluation(rules, usage);
  });
  return BestOf(rules, std::move(late), [](const Usage& usage) {
    return (usage.same_count ? 1 : 0) + (usage.changes >= 3 ? 1 : 0) + usage.earliest;
  });
}

}  // namespace seqpoint::iterations
