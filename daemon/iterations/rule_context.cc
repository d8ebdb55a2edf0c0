#include "daemon/iterations/rule_context.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"

namespace seqpoint::iterations {
namespace {

using abi::EventPattern;
using abi::Op;

constexpr size_t kFewGraphs = 4;

}  // namespace

RuleContext::RuleContext(const LaunchLog& of, const Occurrences& where, const Loop& found)
    : log(of), calls(of.calls()), occurrences(where), loop(found) {
  absl::flat_hash_set<uint32_t> kinds;
  for (uint32_t i = loop.iterations.empty() ? 0 : loop.iterations[0].segment; i < loop.end; ++i) {
    if (OpAt(i) == Op::kGraphLaunch) kinds.insert(KindAt(i));
  }
  graphs = kinds.size();
  // Several optimisers that share a batch are not micro-batches.
  inner_iterations = loop.inner_iterations;
  uint32_t copies = 0;  // groups of copies
  for (size_t iteration : RegularIterations()) {
    for (uint32_t i = loop.iterations[iteration].segment; i < loop.EndSegmentOf(iteration); ++i) {
      copies += OpAt(i) == Op::kCopyH2D && (i == 0 || OpAt(i - 1) != Op::kCopyH2D);
    }
  }
  if (copies > 0 && copies < inner_iterations * RegularIterations().size()) inner_iterations = 1;
  if (inner_iterations == 1 && loop.graph_period <= 1) inner_iterations = MicroBatches();
}

std::vector<size_t> RuleContext::RegularIterations() const {
  std::vector<size_t> iterations;
  // The first loop iteration starts among start-up calls.
  const size_t first = loop.iterations.size() > 3 ? 1 : 0;
  for (size_t iteration = loop.iterations.size();
       iteration-- > first && iterations.size() < kStudiedIterations;) {
    if (loop.iterations[iteration].regular) iterations.push_back(iteration);
  }
  std::reverse(iterations.begin(), iterations.end());
  return iterations;
}

uint32_t RuleContext::MicroBatches() const {
  uint32_t batches = 0;  // per loop iteration
  for (size_t iteration : RegularIterations()) {
    // The kinds of launches after each group of copies.
    std::vector<absl::flat_hash_set<uint32_t>> launched;
    bool copying = false;
    uint32_t last = 0;
    for (uint32_t i = loop.iterations[iteration].segment; i < loop.EndSegmentOf(iteration); ++i) {
      if (OpAt(i) == Op::kCopyH2D) {
        if (!copying) launched.emplace_back();
        copying = true;
      } else if (IsLaunch(calls[i].op)) {
        if (launched.empty()) return 1;
        launched.back().insert(last = KindAt(i));
        copying = false;
      }
    }
    const auto n = static_cast<uint32_t>(launched.size());
    if (n < 2 || (batches != 0 && n != batches)) return 1;
    batches = n;
    // Only the last micro-batch has the optimiser.
    for (size_t k = 0; k + 1 < n; ++k) {
      if (launched[k].contains(last) || launched[k] != launched[0]) return 1;
    }
    for (uint32_t kind : launched[0]) {
      if (!launched.back().contains(kind)) return 1;
    }
    // An optimiser is no larger than a network. If it were, each copy would merely be converted.
    if (launched.back().size() > 2 * launched[0].size()) return 1;
  }
  return std::max(1u, batches);
}

EventPattern RuleContext::PatternOf(uint32_t call) const {
  const abi::MatchEvent event = ToMatchEvent(calls[call], log.names());
  EventPattern pattern = On(OpAt(call));
  // There is one graph per length: its name says nothing.
  if (OpAt(call) == Op::kGraphLaunch && graphs > kFewGraphs) return pattern;
  if (event.name_hash != 0 && OpAt(call) != Op::kNvtxPop) {
    pattern.match = abi::kMatchName;
    pattern.name_hash = event.name_hash;
  }
  return pattern;
}

uint32_t RuleContext::LaunchAfter(uint32_t launch, int n) const {
  while (n > 0 && launch + 1 < calls.size()) n -= IsLaunch(calls[++launch].op);
  return launch;
}

EventPattern On(Op op) {
  EventPattern pattern{};
  pattern.op = static_cast<uint8_t>(op);
  return pattern;
}

bool IsNvtxStart(Op op) { return op == Op::kNvtxPush || op == Op::kNvtxMark; }

}  // namespace seqpoint::iterations
