#include "daemon/iterations/boundary_rules.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "daemon/iterations/kernel_names.h"

namespace seqpoint::iterations {
namespace {

using abi::EventPattern;
using abi::Op;

void AddCopyChoices(const RuleContext& rules, std::vector<BoundaryChoice>* choices) {
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
  for (size_t iteration : rules.RegularIterations()) {
    uint32_t copies = 0;
    for (uint32_t i = rules.loop.iterations[iteration].segment;
         i < rules.loop.EndSegmentOf(iteration); ++i) {
      if (rules.OpAt(i) != Op::kCopyH2D) continue;
      if (i < rules.loop.iterations[iteration].first_launch && copies == 0) {
        least = std::min(least, rules.calls[i].bytes);
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
  if (per_iteration % rules.inner_iterations == 0) per_iteration /= rules.inner_iterations;
  if (per_iteration > 1 && same_number) {
    EventPattern counted = copy;
    counted.every = per_iteration;
    choices->push_back(
        {counted, absl::StrCat("first of ", per_iteration, " host-to-device copies"), true});
  }
}

// Adds a launch by name, then by name and grid.
void AddLaunch(const RuleContext& rules, uint32_t call, std::vector<BoundaryChoice>* choices) {
  const std::string name = ShortName(rules.log.names().Get(rules.calls[call].name_id).text);
  EventPattern launch = rules.PatternOf(call);
  choices->push_back({launch, absl::StrCat("launch of ", name), false});
  launch.match |= abi::kMatchGrid;
  launch.bytes =
      abi::PackGrid(rules.calls[call].grid_x, rules.calls[call].grid_y, rules.calls[call].grid_z);
  choices->push_back({launch,
                      absl::StrCat("launch of ", name, " with grid ", rules.calls[call].grid_x, "x",
                                   rules.calls[call].grid_y, "x", rules.calls[call].grid_z),
                      false});
}

void AddLaunchChoices(const RuleContext& rules, std::vector<BoundaryChoice>* choices) {
  const size_t iteration = rules.RegularIterations().back();
  const uint32_t first = rules.loop.iterations[iteration].first_launch;
  if (rules.OpAt(first) == Op::kGraphLaunch) {
    choices->push_back({On(Op::kGraphLaunch), "graph launch", false});
    choices->push_back({rules.PatternOf(first), "launch of one of the graphs", false});
    return;
  }
  AddLaunch(rules, first, choices);
  // The forward pass launches it a fixed number of times; so does evaluation.
  const uint32_t end = rules.loop.EndOf(iteration);
  uint32_t times = 0, last = first;
  for (uint32_t i = first; i < end; ++i) {
    if (rules.KindAt(i) != rules.KindAt(first)) continue;
    ++times;
    last = i;
  }
  const std::string name = ShortName(rules.log.names().Get(rules.calls[first].name_id).text);
  if (times > 1 && times <= 8 &&
      CountLaunches(rules.calls, first, last) * 2 < CountLaunches(rules.calls, first, end)) {
    EventPattern counted = rules.PatternOf(first);
    counted.every = times;
    choices->push_back({counted, absl::StrCat("first of ", times, " launches of ", name), false});
  }
  // A launch or two later may be recognised where the first is not.
  uint32_t later = first;
  for (int i = 0; i < 6 && later + 1 < end;) {
    if (!IsLaunch(rules.calls[++later].op)) continue;
    AddLaunch(rules, later, choices);
    choices->back().launches_late = (choices->end() - 2)->launches_late = ++i;
  }
  // The last resort: after an evaluation phase another call stands before it.
  uint32_t before = first;
  while (before > 0 && !IsLaunch(rules.calls[before - 1].op)) --before;
  if (before == 0) return;
  EventPattern after = rules.PatternOf(first);
  after.match |= abi::kMatchPrevious;
  after.previous_op = rules.calls[before - 1].op;
  after.previous_name_hash = rules.PatternOf(before - 1).name_hash;
  choices->push_back(
      {after,
       absl::StrCat("launch of ", name, " after ",
                    ShortName(rules.log.names().Get(rules.calls[before - 1].name_id).text)),
       false});
}

}  // namespace

std::vector<BoundaryChoice> BoundaryChoices(const RuleContext& rules) {
  // The kinds of calls that stand before (almost) every first launch.
  absl::flat_hash_map<uint32_t, uint32_t> present;  // kKind symbol -> loop iterations
  std::vector<uint32_t> order;                      // in the order of the last loop iteration
  size_t regular = 0;
  for (const LoopIteration& iteration : rules.loop.iterations) {
    if (!iteration.regular) continue;
    ++regular;
    std::vector<uint32_t> seen;
    for (uint32_t i = iteration.segment; i < iteration.first_launch; ++i) {
      if (std::find(seen.begin(), seen.end(), rules.KindAt(i)) == seen.end())
        seen.push_back(rules.KindAt(i));
    }
    for (uint32_t symbol : seen) ++present[symbol];
    order = std::move(seen);
  }
  const auto always = [&](uint32_t symbol) { return present[symbol] * 10 >= regular * 9; };

  std::vector<BoundaryChoice> nvtx, copy, memset, wait, launch, record, sync, readback;
  const LoopIteration& last = rules.loop.iterations[rules.RegularIterations().back()];
  for (uint32_t symbol : order) {
    if (!always(symbol)) continue;
    uint32_t call = last.segment;
    while (rules.KindAt(call) != symbol) ++call;
    const std::string& text = rules.log.names().Get(rules.calls[call].name_id).text;
    switch (rules.OpAt(call)) {
      case Op::kNvtxPush:
        nvtx.push_back({rules.PatternOf(call), absl::StrCat("NVTX range \"", text, "\""), false});
        break;
      case Op::kNvtxMark:
        nvtx.push_back({rules.PatternOf(call), absl::StrCat("NVTX mark \"", text, "\""), false});
        break;
      case Op::kCopyH2D:
        AddCopyChoices(rules, &copy);
        break;
      case Op::kMemset: {
        memset.push_back({On(Op::kMemset), "memset", false});
        EventPattern sized = On(Op::kMemset);
        sized.match = abi::kMatchBytes;
        sized.bytes = rules.calls[call].bytes;
        memset.push_back({sized, absl::StrCat("memset of ", sized.bytes, " bytes"), false});
        break;
      }
      case Op::kStreamWait: {
        wait.push_back({On(Op::kStreamWait), "a stream waits for an event", true});
        const LoopIteration& next = rules.loop.iterations[rules.RegularIterations().back()];
        uint32_t waits = 0;
        for (uint32_t i = next.segment;
             i < rules.loop.EndSegmentOf(rules.RegularIterations().back()); ++i) {
          waits += rules.OpAt(i) == Op::kStreamWait;
        }
        // Per micro-batch, where there are any.
        if (waits % rules.inner_iterations == 0) waits /= rules.inner_iterations;
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
        sync.push_back({On(rules.OpAt(call)), "the host waits for the GPU", false});
        break;
      case Op::kCopyD2H:
        readback.push_back({On(Op::kCopyD2H), "device-to-host copy", false});
        break;
      default:
        break;
    }
  }
  AddLaunchChoices(rules, &launch);
  // A copy on a stream of its own is the next batch's: at the end of an epoch there is none, and an
  // iteration would be missed. A copy that is waited for before the first launch is this batch's.
  bool prefetched = false;
  for (uint32_t i = last.segment; i < last.first_launch; ++i) {
    if (rules.OpAt(i) == Op::kStreamWait) prefetched = false;
    prefetched |= rules.OpAt(i) == Op::kCopyH2D &&
                  rules.calls[i].stream != rules.calls[last.first_launch].stream;
  }
  std::vector<BoundaryChoice> all;
  const auto append = [&all](const std::vector<BoundaryChoice>& more) {
    all.insert(all.end(), more.begin(), more.end());
  };
  append(nvtx);
  if (!prefetched) append(copy);
  // The wait stands before the copies of the next batch, so that these belong to one iteration.
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

}  // namespace seqpoint::iterations
