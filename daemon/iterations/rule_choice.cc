#include "daemon/iterations/rule_choice.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "daemon/iterations/kernel_names.h"

namespace seqpoint::iterations {
namespace {

using abi::CallRecord;
using abi::EventPattern;
using abi::Op;
using abi::Rule;

// Forward and loss take less than this share of a training step's launches; what is first launched
// later, evaluation does not launch.
constexpr double kLate = 0.55;
constexpr size_t kStudiedIterations = 10;
constexpr size_t kFewGraphs = 4;

EventPattern On(Op op) {
  EventPattern pattern{};
  pattern.op = static_cast<uint8_t>(op);
  return pattern;
}

bool IsNvtxBegin(Op op) { return op == Op::kNvtxPush || op == Op::kNvtxMark; }

struct BoundaryChoice {
  EventPattern pattern;
  std::string words;
  bool first_in_segment = false;  // it must be the first of its kind before the first launch
  int launches_late = 0;          // launches between the loop iteration's first launch and it
};

// How one kind of call lies within the loop iterations.
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

// What ends an iteration, or a micro-step.
struct EndChoice {
  EventPattern pattern;
  uint32_t example = kNoCall;  // index of such a call; without one there is no pattern
};

uint32_t CountLaunches(const std::vector<CallRecord>& calls, uint32_t begin, uint32_t end) {
  uint32_t launches = 0;
  for (uint32_t i = begin; i < end; ++i) launches += IsLaunch(calls[i].op);
  return launches;
}

// The host waits for the GPU in each of the iterations: no stream is ahead of another.
bool HostWaitsInEach(const std::vector<CallRecord>& calls,
                     absl::Span<const ReplayedIteration> iterations) {
  return std::all_of(iterations.begin(), iterations.end(), [&](const ReplayedIteration& it) {
    return std::any_of(calls.begin() + it.begin, calls.begin() + it.end, [&](const CallRecord& c) {
      return WaitsForWork(c) && c.thread_id == calls[it.begin].thread_id;
    });
  });
}

// The GPU start of an iteration: a copy, memset or graph launch in compute order, close to the
// begin, or between the step and the next begin. `stream`: that of the launches; nothing: any.
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
    // The first replayed iteration may lack a clock that precedes its begin.
    if (timed.size() < 2 || good + 1 < timed.size()) continue;
    chosen->rule = rule;
    chosen->iterations =
        Replay(source, occurrences, rule, static_cast<uint32_t>(source.after_hole()));
    return true;
  }
  return false;
}

// Those that may compute: that of the optimiser's step, and that of most launches. What comes first
// may prepare the next batch on a stream of its own.
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

class Chooser {
 public:
  Chooser(const LaunchLog& stream, const Occurrences& occurrences, const Loop& loop)
      : stream_(stream), calls_(stream.calls()), occurrences_(occurrences), loop_(loop) {
    absl::flat_hash_set<uint32_t> graphs;
    for (uint32_t i = loop.iterations.empty() ? 0 : loop.iterations[0].segment; i < loop.end; ++i) {
      if (OpAt(i) == Op::kGraphLaunch) graphs.insert(What(i));
    }
    graphs_ = graphs.size();
    // Several optimisers that share a batch are not micro-steps.
    inner_iterations_ = loop.inner_iterations;
    uint32_t copies = 0;  // groups of them
    for (size_t iteration : RegularIterations()) {
      for (uint32_t i = loop.iterations[iteration].segment; i < loop.EndSegmentOf(iteration); ++i) {
        copies += OpAt(i) == Op::kCopyH2D && (i == 0 || OpAt(i - 1) != Op::kCopyH2D);
      }
    }
    if (copies > 0 && copies < inner_iterations_ * RegularIterations().size())
      inner_iterations_ = 1;
    if (inner_iterations_ == 1 && loop.graph_period <= 1) inner_iterations_ = MicroBatches();
  }

  std::optional<ChosenRule> Choose();

 private:
  uint32_t What(uint32_t call) const { return stream_.symbols()[call].of[0]; }
  Op OpAt(uint32_t call) const { return static_cast<Op>(calls_[call].op); }
  std::vector<size_t> RegularIterations() const;
  // Batches copied per loop iteration for micro-steps: the same calls follow each of them.
  uint32_t MicroBatches() const;
  std::vector<BoundaryChoice> BoundaryChoices() const;
  void AddCopyChoices(std::vector<BoundaryChoice>* choices) const;
  void AddLaunch(uint32_t call, std::vector<BoundaryChoice>* choices) const;
  void AddLaunchChoices(std::vector<BoundaryChoice>* choices) const;
  // Kinds of calls that appear only late in each of the stretches, best mark of a step first.
  struct Stretch {
    uint32_t begin, end;
  };
  std::vector<Usage> LateCalls(const std::vector<Stretch>& stretches, double least = kLate) const;
  bool InEvaluation(const Usage& usage) const;
  EventPattern PatternOf(uint32_t call) const;
  std::vector<EndChoice> BestOf(std::vector<Usage> late, double (*rank)(const Usage&)) const;
  // What only a step launches, or annotates.
  std::vector<EndChoice> StepChoices(const std::vector<Usage>& late, bool nvtx) const;
  // The end of a step of graphs that only their number tells apart.
  std::vector<EndChoice> GraphStepChoices() const;
  // What each micro-step does late, before the step.
  std::vector<EndChoice> ConfirmChoices(const std::vector<uint32_t>& candidates,
                                        const EndChoice& step) const;
  std::optional<ChosenRule> Try(const BoundaryChoice& boundary, const EndChoice& step) const;
  std::optional<ChosenRule> Verify(const Rule& rule, uint32_t micro_steps, int launches_late) const;
  uint32_t LaunchAfter(uint32_t launch, int n) const;

  const LaunchLog& stream_;
  const std::vector<CallRecord>& calls_;
  const Occurrences& occurrences_;
  const Loop& loop_;
  size_t graphs_ = 0;              // different ones
  uint32_t inner_iterations_ = 1;  // micro-steps
};

std::vector<size_t> Chooser::RegularIterations() const {
  std::vector<size_t> iterations;
  // The first loop iteration's begin lies among start-up calls.
  const size_t first = loop_.iterations.size() > 3 ? 1 : 0;
  for (size_t iteration = loop_.iterations.size();
       iteration-- > first && iterations.size() < kStudiedIterations;) {
    if (loop_.iterations[iteration].regular) iterations.push_back(iteration);
  }
  std::reverse(iterations.begin(), iterations.end());
  return iterations;
}

uint32_t Chooser::MicroBatches() const {
  uint32_t batches = 0;  // per loop iteration
  for (size_t iteration : RegularIterations()) {
    // What is launched behind each group of copies.
    std::vector<absl::flat_hash_set<uint32_t>> launched;
    bool copying = false;
    uint32_t last = 0;
    for (uint32_t i = loop_.iterations[iteration].segment; i < loop_.EndSegmentOf(iteration); ++i) {
      if (OpAt(i) == Op::kCopyH2D) {
        if (!copying) launched.emplace_back();
        copying = true;
      } else if (IsLaunch(calls_[i].op)) {
        if (launched.empty()) return 1;
        launched.back().insert(last = What(i));
        copying = false;
      }
    }
    const auto n = static_cast<uint32_t>(launched.size());
    if (n < 2 || (batches != 0 && n != batches)) return 1;
    batches = n;
    // The last micro-step has the optimiser as well, and no other one has.
    for (size_t k = 0; k + 1 < n; ++k) {
      if (launched[k].contains(last) || launched[k] != launched[0]) return 1;
    }
    for (uint32_t what : launched[0]) {
      if (!launched.back().contains(what)) return 1;
    }
    // An optimiser is no larger than a network; else each copy is but converted.
    if (launched.back().size() > 2 * launched[0].size()) return 1;
  }
  return std::max(1u, batches);
}

EventPattern Chooser::PatternOf(uint32_t call) const {
  const abi::MatchEvent event = ToMatchEvent(calls_[call], stream_.names());
  EventPattern pattern = On(OpAt(call));
  // One graph per length: which one it is says nothing.
  if (OpAt(call) == Op::kGraphLaunch && graphs_ > kFewGraphs) return pattern;
  if (event.name_hash != 0 && OpAt(call) != Op::kNvtxPop) {
    pattern.match = abi::kMatchName;
    pattern.name_hash = event.name_hash;
  }
  return pattern;
}

void Chooser::AddCopyChoices(std::vector<BoundaryChoice>* choices) const {
  const EventPattern copy = On(Op::kCopyH2D);
  choices->push_back({copy, "host-to-device copy of the batch", true});
  EventPattern group = copy;
  group.match = abi::kMatchNotPrevious;
  group.previous_op = group.op;
  choices->push_back({group, "first of a group of host-to-device copies", true});
  // Small copies (a learning rate, a loss scale) lie elsewhere in the iteration.
  uint64_t least = UINT64_MAX;
  uint32_t per_iteration = 0;
  bool same_number = true;
  for (size_t iteration : RegularIterations()) {
    uint32_t copies = 0;
    for (uint32_t i = loop_.iterations[iteration].segment; i < loop_.EndSegmentOf(iteration); ++i) {
      if (OpAt(i) != Op::kCopyH2D) continue;
      if (i < loop_.iterations[iteration].first_launch && copies == 0) {
        least = std::min(least, calls_[i].bytes);
      }
      ++copies;
    }
    same_number &= per_iteration == 0 || copies == per_iteration;
    per_iteration = copies;
  }
  if (least != UINT64_MAX && least > 1) {
    EventPattern large = copy;
    large.match = abi::kMatchBytesAtLeast;
    large.bytes = std::max<uint64_t>(2, least / 4);
    choices->push_back(
        {large, absl::StrCat("host-to-device copy of at least ", large.bytes, " bytes"), true});
    large.match |= abi::kMatchNotPrevious;
    large.previous_op = large.op;
    choices->push_back({large,
                        absl::StrCat("first of a group of host-to-device copies, of at least ",
                                     large.bytes, " bytes"),
                        true});
  }
  if (per_iteration % inner_iterations_ == 0) per_iteration /= inner_iterations_;
  if (per_iteration > 1 && same_number) {
    EventPattern counted = copy;
    counted.every = per_iteration;
    choices->push_back(
        {counted, absl::StrCat("first of ", per_iteration, " host-to-device copies"), true});
  }
}

// By name, then by name and grid.
void Chooser::AddLaunch(uint32_t call, std::vector<BoundaryChoice>* choices) const {
  const std::string name = ShortName(stream_.names().Get(calls_[call].name_id).text);
  EventPattern launch = PatternOf(call);
  choices->push_back({launch, absl::StrCat("launch of ", name), false});
  launch.match |= abi::kMatchGrid;
  launch.bytes = abi::PackGrid(calls_[call].grid_x, calls_[call].grid_y, calls_[call].grid_z);
  choices->push_back({launch,
                      absl::StrCat("launch of ", name, " with grid ", calls_[call].grid_x, "x",
                                   calls_[call].grid_y, "x", calls_[call].grid_z),
                      false});
}

void Chooser::AddLaunchChoices(std::vector<BoundaryChoice>* choices) const {
  const size_t iteration = RegularIterations().back();
  const uint32_t first = loop_.iterations[iteration].first_launch;
  if (OpAt(first) == Op::kGraphLaunch) {
    choices->push_back({On(Op::kGraphLaunch), "graph launch", false});
    choices->push_back({PatternOf(first), "launch of one of the graphs", false});
    return;
  }
  AddLaunch(first, choices);
  // The forward pass launches it a fixed number of times: evaluation does, too.
  const uint32_t end = loop_.EndOf(iteration);
  uint32_t times = 0, last = first;
  for (uint32_t i = first; i < end; ++i) {
    if (What(i) != What(first)) continue;
    ++times;
    last = i;
  }
  const std::string name = ShortName(stream_.names().Get(calls_[first].name_id).text);
  if (times > 1 && times <= 8 &&
      CountLaunches(calls_, first, last) * 2 < CountLaunches(calls_, first, end)) {
    EventPattern counted = PatternOf(first);
    counted.every = times;
    choices->push_back({counted, absl::StrCat("first of ", times, " launches of ", name), false});
  }
  // A launch or two later, if that is what can be recognised.
  uint32_t later = first;
  for (int i = 0; i < 6 && later + 1 < end;) {
    if (!IsLaunch(calls_[++later].op)) continue;
    AddLaunch(later, choices);
    choices->back().launches_late = (choices->end() - 2)->launches_late = ++i;
  }
  // The last resort: after an evaluation phase another call stands before it.
  uint32_t before = first;
  while (before > 0 && !IsLaunch(calls_[before - 1].op)) --before;
  if (before == 0) return;
  EventPattern after = PatternOf(first);
  after.match |= abi::kMatchPrevious;
  after.previous_op = calls_[before - 1].op;
  after.previous_name_hash = PatternOf(before - 1).name_hash;
  choices->push_back({after,
                      absl::StrCat("launch of ", name, " after ",
                                   ShortName(stream_.names().Get(calls_[before - 1].name_id).text)),
                      false});
}

std::vector<BoundaryChoice> Chooser::BoundaryChoices() const {
  // What is there before (almost) every first launch?
  absl::flat_hash_map<uint32_t, uint32_t> present;  // kWhat symbol -> loop iterations
  std::vector<uint32_t> order;                      // in the order of the last loop iteration
  size_t regular = 0;
  for (const LoopIteration& iteration : loop_.iterations) {
    if (!iteration.regular) continue;
    ++regular;
    std::vector<uint32_t> seen;
    for (uint32_t i = iteration.segment; i < iteration.first_launch; ++i) {
      if (std::find(seen.begin(), seen.end(), What(i)) == seen.end()) seen.push_back(What(i));
    }
    for (uint32_t symbol : seen) ++present[symbol];
    order = std::move(seen);
  }
  const auto always = [&](uint32_t symbol) { return present[symbol] * 10 >= regular * 9; };

  std::vector<BoundaryChoice> nvtx, copy, memset, wait, launch, record, sync, readback;
  const LoopIteration& last = loop_.iterations[RegularIterations().back()];
  for (uint32_t symbol : order) {
    if (!always(symbol)) continue;
    uint32_t call = last.segment;
    while (What(call) != symbol) ++call;
    const std::string& text = stream_.names().Get(calls_[call].name_id).text;
    switch (OpAt(call)) {
      case Op::kNvtxPush:
        nvtx.push_back({PatternOf(call), absl::StrCat("NVTX range \"", text, "\""), false});
        break;
      case Op::kNvtxMark:
        nvtx.push_back({PatternOf(call), absl::StrCat("NVTX mark \"", text, "\""), false});
        break;
      case Op::kCopyH2D:
        AddCopyChoices(&copy);
        break;
      case Op::kMemset: {
        memset.push_back({On(Op::kMemset), "memset", false});
        EventPattern sized = On(Op::kMemset);
        sized.match = abi::kMatchBytes;
        sized.bytes = calls_[call].bytes;
        memset.push_back({sized, absl::StrCat("memset of ", sized.bytes, " bytes"), false});
        break;
      }
      case Op::kStreamWait: {
        wait.push_back({On(Op::kStreamWait), "a stream waits for an event", true});
        const LoopIteration& next = loop_.iterations[RegularIterations().back()];
        uint32_t waits = 0;
        for (uint32_t i = next.segment; i < loop_.EndSegmentOf(RegularIterations().back()); ++i) {
          waits += OpAt(i) == Op::kStreamWait;
        }
        // Per micro-step, where there are any.
        if (waits % inner_iterations_ == 0) waits /= inner_iterations_;
        if (waits < 2 || waits > 8) break;
        EventPattern counted = On(Op::kStreamWait);
        counted.every = waits;
        wait.push_back(
            {counted, absl::StrCat("first of ", waits, " waits of a stream for an event"), true});
        break;
      }
      case Op::kEventRecord:
        record.push_back({On(Op::kEventRecord), "an event is recorded", false});
        break;
      case Op::kStreamSync:
      case Op::kEventSync:
      case Op::kContextSync:
        sync.push_back({On(OpAt(call)), "the host waits for the GPU", false});
        break;
      case Op::kCopyD2H:
        readback.push_back({On(Op::kCopyD2H), "device-to-host copy", false});
        break;
      default:
        break;
    }
  }
  AddLaunchChoices(&launch);
  // A copy on a stream of its own is the next batch's: at the end of an epoch there is none, and an
  // iteration would be missed.
  // One that is waited for before the first launch is this one's.
  bool prefetched = false;
  for (uint32_t i = last.segment; i < last.first_launch; ++i) {
    if (OpAt(i) == Op::kStreamWait) prefetched = false;
    prefetched |= OpAt(i) == Op::kCopyH2D && calls_[i].stream != calls_[last.first_launch].stream;
  }
  std::vector<BoundaryChoice> all;
  const auto append = [&all](const std::vector<BoundaryChoice>& more) {
    all.insert(all.end(), more.begin(), more.end());
  };
  append(nvtx);
  if (!prefetched) append(copy);
  // Before the copies of the next batch, so that these belong to one iteration.
  if (prefetched) append(wait);
  append(memset);
  if (!prefetched) append(wait);
  append(launch);
  if (prefetched) append(copy);
  append(record);
  append(sync);
  append(readback);
  return all;
}

std::vector<Usage> Chooser::LateCalls(const std::vector<Stretch>& stretches, double least) const {
  std::vector<Usage> usages(stream_.symbol_count(Alphabet::kWhat));
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
    const double launches = std::max(1u, CountLaunches(calls_, begin, end));
    uint32_t launched = 0;
    for (uint32_t i = begin; i < end; ++i) {
      const Op op = OpAt(i);
      const bool launch = IsLaunch(calls_[i].op);
      if (launch || IsNvtxBegin(op)) {
        Usage& usage = usages[What(i)];
        if (usage.last_iteration != s) {
          if (usage.iterations > 0) close(&usage);
          if (usage.iterations++ == 0) touched.push_back(What(i));
          usage.last_iteration = s;
          usage.geometry_in_iteration = 0;
          usage.count_in_iteration = 0;
        }
        usage.earliest = std::min(usage.earliest, launched / launches);
        usage.geometry_in_iteration += stream_.symbols()[i].of[1] * 0x9e3779b97f4a7c15ull;
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

// Some loop iteration holds more of it than any regular one: evaluation launches it, too.
bool Chooser::InEvaluation(const Usage& usage) const {
  size_t most = 0, most_irregular = 0;
  for (size_t iteration = 0; iteration < loop_.iterations.size(); ++iteration) {
    const size_t count = occurrences_
                             .Of(Alphabet::kWhat, What(usage.example),
                                 loop_.iterations[iteration].first_launch, loop_.EndOf(iteration))
                             .size();
    size_t& so_far = loop_.iterations[iteration].regular ? most : most_irregular;
    so_far = std::max(so_far, count);
  }
  return most_irregular > most;
}

// Optimiser launches come last, and always with the same geometry.
std::vector<EndChoice> Chooser::StepChoices(const std::vector<Usage>& all, bool nvtx) const {
  std::vector<Usage> late = all;
  std::erase_if(late, [&](const Usage& usage) {
    return IsNvtxBegin(OpAt(usage.example)) != nvtx || InEvaluation(usage);
  });
  return BestOf(std::move(late),
                [](const Usage& usage) { return (usage.same_geometry ? 1 : 0) + usage.earliest; });
}

std::vector<EndChoice> Chooser::BestOf(std::vector<Usage> late,
                                       double (*rank)(const Usage&)) const {
  std::stable_sort(late.begin(), late.end(),
                   [&](const Usage& a, const Usage& b) { return rank(a) > rank(b); });
  std::vector<EndChoice> choices;
  for (size_t i = 0; i < late.size() && i < 3; ++i) {
    choices.push_back({PatternOf(late[i].example), late[i].example});
  }
  return choices;
}

std::vector<EndChoice> Chooser::GraphStepChoices() const {
  const uint32_t period = loop_.graph_period;
  std::vector<EndChoice> choices;
  // The loss is read back behind each step: that needs no counting.
  const size_t last = RegularIterations().back();
  for (uint32_t i = loop_.EndSegmentOf(last); i < loop_.EndOf(last); ++i) {
    if (OpAt(i) == Op::kCopyD2H) choices.push_back({On(Op::kCopyD2H), i});
  }
  if (choices.size() > 1) choices.clear();
  // Else the launches are counted, from the process' start or from a graph that is known to be the
  // last of its step.
  EndChoice counted{On(Op::kGraphLaunch), loop_.iterations[last].first_launch};
  counted.pattern.match = abi::kMatchAnchored;
  counted.pattern.every = period;
  counted.pattern.phase = period - 1;
  absl::flat_hash_map<uint64_t, uint32_t> ends, others;
  uint32_t number = 0;
  for (uint32_t i = loop_.iterations[0].first_launch; i < loop_.end; ++i) {
    if (OpAt(i) != Op::kGraphLaunch) continue;
    const uint64_t name = ToMatchEvent(calls_[i], stream_.names()).name_hash;
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
  for (uint32_t i = 0; i < loop_.iterations[0].first_launch; ++i)
    before += OpAt(i) == Op::kGraphLaunch;
  counted.pattern.start =
      stream_.from_process_start() ? (period - before % period) % period : period;
  choices.push_back(counted);
  return choices;
}

// Best is what runs the same number of times with geometries that follow the length: libraries do
// not pick it by the length.
std::vector<EndChoice> Chooser::ConfirmChoices(const std::vector<uint32_t>& candidates,
                                               const EndChoice& step) const {
  std::vector<Stretch> stretches;
  for (size_t iteration : RegularIterations()) {
    const uint32_t iteration_end = loop_.EndSegmentOf(iteration);
    auto it =
        std::lower_bound(candidates.begin(), candidates.end(), loop_.iterations[iteration].segment);
    for (; it != candidates.end() && *it < iteration_end; ++it) {
      uint32_t end =
          it + 1 != candidates.end() ? std::min(*(it + 1), iteration_end) : iteration_end;
      const auto steps = occurrences_.Of(Alphabet::kWhat, What(step.example), *it, end);
      if (!steps.empty()) end = steps[0];
      stretches.push_back({*it, end});
    }
  }
  std::vector<Usage> late = LateCalls(stretches);
  // Where forward and backward pass launch the same kernels, any of them must do.
  if (late.empty() && inner_iterations_ > 1) late = LateCalls(stretches, 0);
  std::erase_if(late, [&](const Usage& usage) {
    return IsNvtxBegin(OpAt(usage.example)) != IsNvtxBegin(OpAt(step.example)) ||
           InEvaluation(usage);
  });
  return BestOf(std::move(late), [](const Usage& usage) {
    return (usage.same_count ? 1 : 0) + (usage.changes >= 3 ? 1 : 0) + usage.earliest;
  });
}

uint32_t Chooser::LaunchAfter(uint32_t launch, int n) const {
  while (n > 0 && launch + 1 < calls_.size()) n -= IsLaunch(calls_[++launch].op);
  return launch;
}

// Each loop iteration must hold exactly one iteration, with the same number of micro-steps, that
// begins before the loop iteration's first launch (after evaluation: somewhere in the loop
// iteration). Only warm-up loop iterations may differ.
std::optional<ChosenRule> Chooser::Verify(const Rule& rule, uint32_t micro_steps,
                                          int launches_late) const {
  ChosenRule chosen;
  chosen.rule = rule;
  chosen.iterations =
      Replay(stream_, occurrences_, rule, static_cast<uint32_t>(stream_.after_hole()));
  chosen.micro_steps = micro_steps;
  size_t next = 0;
  const auto& found = chosen.iterations;
  const bool has_step = rule.step.op != 0;
  for (size_t iteration = 0; iteration < loop_.iterations.size(); ++iteration) {
    const uint32_t from = loop_.iterations[iteration].segment;
    const uint32_t to = loop_.EndSegmentOf(iteration);
    const auto place = [&](const ReplayedIteration& it) { return has_step ? it.step : it.begin; };
    while (next < found.size() && place(found[next]) < from) ++next;
    size_t here = 0;
    bool exact = true;
    for (; next < found.size() && place(found[next]) < to; ++next) {
      ++here;
      const ReplayedIteration& it = found[next];
      const uint32_t latest =
          loop_.iterations[iteration].regular
              ? LaunchAfter(loop_.iterations[iteration].first_launch, launches_late)
              : to;
      exact &= it.begin >= from && it.begin <= latest && it.micro_steps.size() == micro_steps;
    }
    // The last one has no end yet when the stream ends before the next candidate.
    if (here == 0 && iteration + 1 == loop_.iterations.size() && !loop_.iterations.empty()) break;
    if (here == 1 && exact) {
      ++chosen.verified_iterations;
    } else if (iteration * 4 >= loop_.iterations.size()) {
      return std::nullopt;
    }
  }
  if (chosen.verified_iterations == 0) return std::nullopt;
  return chosen;
}

std::optional<ChosenRule> Chooser::Try(const BoundaryChoice& boundary,
                                       const EndChoice& step) const {
  Rule rule{};
  rule.generation = 1;
  rule.boundary = boundary.pattern;
  rule.step = step.pattern;
  rule.watched_ops = WatchedOps(rule);
  const auto from = static_cast<uint32_t>(stream_.after_hole());
  const std::vector<uint32_t> candidates = Candidates(stream_, occurrences_, rule, from);
  // How many per loop iteration, and does the first one lie before the first launch?
  uint32_t micro_steps = 0;
  for (size_t iteration : RegularIterations()) {
    const auto first =
        std::lower_bound(candidates.begin(), candidates.end(), loop_.iterations[iteration].segment);
    const auto last =
        std::lower_bound(candidates.begin(), candidates.end(), loop_.EndSegmentOf(iteration));
    const auto n = static_cast<uint32_t>(last - first);
    if (n == 0 ||
        *first > LaunchAfter(loop_.iterations[iteration].first_launch, boundary.launches_late)) {
      return std::nullopt;
    }
    if (micro_steps != 0 && n != micro_steps) return std::nullopt;
    micro_steps = n;
    if (boundary.first_in_segment) {
      for (uint32_t i = loop_.iterations[iteration].segment; i < *first; ++i) {
        if (calls_[i].op == boundary.pattern.op) return std::nullopt;
      }
    }
  }
  if (micro_steps == 0 || micro_steps > 64) return std::nullopt;

  std::vector<EventPattern> confirms;
  if (loop_.graph_period > 1) {
    confirms.push_back(On(Op::kGraphLaunch));
  } else if (step.example != kNoCall) {
    for (const EndChoice& confirm : ConfirmChoices(candidates, step)) {
      confirms.push_back(confirm.pattern);
    }
  }
  if (micro_steps == 1) confirms.push_back(EventPattern{});
  for (const EventPattern& confirm : confirms) {
    rule.confirm = confirm;
    rule.watched_ops = WatchedOps(rule);
    rule.micro_steps = micro_steps;
    if (auto chosen = Verify(rule, micro_steps, boundary.launches_late)) {
      chosen->boundary_words = boundary.words;
      return chosen;
    }
  }
  return std::nullopt;
}

std::optional<ChosenRule> Chooser::Choose() {
  if (loop_.iterations.empty() || RegularIterations().empty()) return std::nullopt;
  std::vector<Stretch> stretches;
  for (size_t iteration : RegularIterations()) {
    stretches.push_back({loop_.iterations[iteration].segment, loop_.EndSegmentOf(iteration)});
  }
  const std::vector<Usage> late = LateCalls(stretches);
  const std::vector<EndChoice> steps =
      loop_.graph_period > 1 ? GraphStepChoices() : StepChoices(late, false);
  const std::vector<EndChoice> nvtx_steps = StepChoices(late, true);
  const bool evaluation_seen = std::any_of(loop_.iterations.begin(), loop_.iterations.end(),
                                           [](const LoopIteration& t) { return !t.regular; });
  std::vector<BoundaryChoice> boundaries = BoundaryChoices();
  // A boundary at each micro-step lets their lengths add up; at each step is second best.
  const size_t choices = boundaries.size();
  if (inner_iterations_ > 1) {
    for (size_t i = 0; i < choices; ++i) boundaries.push_back(boundaries[i]);
  }
  for (size_t i = 0; i < boundaries.size(); ++i) {
    const BoundaryChoice& boundary = boundaries[i];
    const bool each_micro_step = inner_iterations_ > 1 && i < choices;
    std::vector<EndChoice> tried;
    const bool nvtx = IsNvtxBegin(static_cast<Op>(boundary.pattern.op));
    // Seen to stay away from evaluation: nothing more is needed.
    if (nvtx && evaluation_seen) tried.push_back({});
    if (nvtx) tried.insert(tried.end(), nvtx_steps.begin(), nvtx_steps.end());
    tried.insert(tried.end(), steps.begin(), steps.end());
    // A graph that holds the whole iteration is its step as well.
    const uint32_t first = loop_.iterations[RegularIterations().back()].first_launch;
    if (steps.empty() && OpAt(first) == Op::kGraphLaunch)
      tried.push_back({PatternOf(first), first});
    if (steps.empty()) tried.push_back({});
    for (const EndChoice& step : tried) {
      std::optional<ChosenRule> chosen = Try(boundary, step);
      if (!chosen || (each_micro_step && chosen->micro_steps != inner_iterations_)) continue;
      chosen->evaluation_seen = evaluation_seen;
      ChooseClock(stream_, occurrences_, &*chosen);
      return chosen;
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<ChosenRule> ChooseRule(const LaunchLog& stream, const Occurrences& occurrences,
                                     const Loop& loop) {
  return Chooser(stream, occurrences, loop).Choose();
}

std::optional<ChosenRule> ChooseMarkRule(const LaunchLog& stream, size_t min_marks) {
  ChosenRule chosen;
  chosen.rule.generation = 1;
  chosen.rule.boundary = On(Op::kMark);
  chosen.rule.micro_steps = 1;
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
  chosen.rule.micro_steps = 1;
  chosen.rule.watched_ops = WatchedOps(chosen.rule);
  chosen.boundary_words = "forward pass of the root module";
  const Occurrences occurrences(stream);
  chosen.iterations =
      Replay(stream, occurrences, chosen.rule, static_cast<uint32_t>(stream.after_hole()));
  if (chosen.iterations.size() < 2) return std::nullopt;
  chosen.verified_iterations = static_cast<uint32_t>(chosen.iterations.size());
  // The usual number; the last iteration of an epoch may have fewer.
  std::map<size_t, size_t> micro_steps;
  for (const ReplayedIteration& it : chosen.iterations) ++micro_steps[it.micro_steps.size()];
  chosen.micro_steps = static_cast<uint32_t>(
      std::max_element(micro_steps.begin(), micro_steps.end(), [](const auto& a, const auto& b) {
        return a.second < b.second;
      })->first);
  // Where the number changes all the time, lengths are summed although one is the most frequent.
  if (micro_steps[1] * 4 < chosen.iterations.size() * 3) {
    chosen.micro_steps = std::max(chosen.micro_steps, 2u);
  }
  chosen.rule.micro_steps = chosen.micro_steps;
  chosen.evaluation_seen =
      std::any_of(stream.calls().begin(), stream.calls().end(), [&](const CallRecord& call) {
        return call.op == static_cast<uint8_t>(Op::kForward) &&
               stream.names().Get(call.name_id).hash != chosen.rule.confirm.name_hash;
      });
  ChooseClock(stream, occurrences, &chosen);
  return chosen;
}

}  // namespace seqpoint::iterations
