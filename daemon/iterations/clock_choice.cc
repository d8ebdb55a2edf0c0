#include "daemon/iterations/clock_choice.h"

#include <algorithm>
#include <map>
#include <optional>

#include "absl/types/span.h"
#include "daemon/iterations/rule_context.h"

namespace seqpoint::iterations {
namespace {

using abi::CallRecord;
using abi::EventPattern;
using abi::Op;
using abi::Rule;

// Whether the host waits for the GPU in each of the iterations: then no stream runs before another.
bool HostWaitsInEach(const std::vector<CallRecord>& calls,
                     absl::Span<const ReplayedIteration> iterations) {
  return std::all_of(iterations.begin(), iterations.end(), [&](const ReplayedIteration& it) {
    return std::any_of(calls.begin() + it.begin, calls.begin() + it.end, [&](const CallRecord& c) {
      return WaitsForWork(c) && c.thread_id == calls[it.begin].thread_id;
    });
  });
}

// The GPU start of an iteration: a copy, memset or graph launch in compute order, close to the
// start, or between the step and the next start. `stream`: the one of the launches; nothing: any.
bool ChooseClockOn(std::optional<uint64_t> stream, const LaunchLog& source,
                   const Occurrences& occurrences, ChosenRule* chosen) {
  const std::vector<CallRecord>& calls = source.calls();
  const auto stamped = [&](uint32_t i) {
    const Op op = static_cast<Op>(calls[i].op);
    return (op == Op::kCopyH2D || op == Op::kCopyD2H || op == Op::kCopyD2D || op == Op::kMemset ||
            op == Op::kGraphLaunch) &&
           calls[i].stream == stream.value_or(calls[i].stream);
  };
  const std::vector<ReplayedIteration>& found = chosen->iterations;
  const ReplayedIteration& last = found[found.size() - 1];
  const uint32_t near = std::max(2u, CountLaunches(calls, last.begin, last.end) / 20);
  std::vector<EventPattern> choices;
  const auto consider = [&](uint32_t call) {
    EventPattern plain = On(static_cast<Op>(calls[call].op));
    EventPattern sized = plain;
    sized.match = abi::kMatchBytes;
    sized.bytes = calls[call].bytes;
    choices.push_back(plain);
    if (static_cast<Op>(calls[call].op) != Op::kGraphLaunch) choices.push_back(sized);
  };
  if (stamped(last.begin)) choices.push_back(chosen->rule.boundary);
  uint32_t launched = 0;
  for (uint32_t i = last.begin; i < last.end && launched <= near; ++i) {
    if (stamped(i)) consider(i);
    launched += IsLaunch(calls[i].op);
  }
  launched = 0;
  for (uint32_t i = last.end; i-- > last.step && launched <= near;) {
    if (stamped(i)) consider(i);
    launched += IsLaunch(calls[i].op);
  }
  const size_t studied = std::min<size_t>(found.size(), kStudiedIterations);
  if (choices.size() > 12) choices.resize(12);
  for (const EventPattern& choice : choices) {
    Rule rule = chosen->rule;
    rule.clock = choice;
    rule.watched_ops = WatchedOps(rule);
    const std::vector<ReplayedIteration> timed =
        Replay(source, occurrences, rule, found[found.size() - studied].begin);
    size_t good = 0;
    for (const ReplayedIteration& it : timed) {
      if (it.clock == kNoCall) continue;
      const uint32_t distance = it.clock >= it.begin ? CountLaunches(calls, it.begin, it.clock)
                                                     : CountLaunches(calls, it.clock, it.begin);
      good += distance <= near && stamped(it.clock);
    }
    // The first replayed iteration may lack a clock that precedes its start.
    if (timed.size() < 2 || good + 1 < timed.size()) continue;
    chosen->rule = rule;
    chosen->iterations =
        Replay(source, occurrences, rule, static_cast<uint32_t>(source.after_hole()));
    return true;
  }
  return false;
}

// The streams that may compute: that of the optimiser's step, and that of most launches. The first
// launches may prepare the next batch on a stream of their own.
std::vector<uint64_t> StreamsThatCompute(const std::vector<CallRecord>& calls, const Rule& rule,
                                         const ReplayedIteration& iteration) {
  std::vector<uint64_t> streams;
  if (IsLaunch(rule.step.op)) streams.push_back(calls[iteration.step].stream);
  std::map<uint64_t, uint32_t> launches;
  for (uint32_t i = iteration.begin; i < iteration.end; ++i) {
    if (IsLaunch(calls[i].op)) ++launches[calls[i].stream];
  }
  const auto most =
      std::max_element(launches.begin(), launches.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most != launches.end()) streams.push_back(most->first);
  return streams;
}

}  // namespace

void ChooseClock(const LaunchLog& source, const Occurrences& occurrences, ChosenRule* chosen) {
  if (chosen->iterations.size() < 2) return;
  const std::vector<uint64_t> streams =
      StreamsThatCompute(source.calls(), chosen->rule, chosen->iterations.back());
  if (streams.empty()) return;
  for (const uint64_t stream : streams) {
    if (ChooseClockOn(stream, source, occurrences, chosen)) return;
  }
  const absl::Span<const ReplayedIteration> last =
      absl::MakeConstSpan(chosen->iterations)
          .last(std::min(chosen->iterations.size(), kStudiedIterations));
  if (HostWaitsInEach(source.calls(), last)) {
    ChooseClockOn(std::nullopt, source, occurrences, chosen);
  }
}

}  // namespace seqpoint::iterations
