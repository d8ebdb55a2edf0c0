#include "daemon/whatif/graph/gaps.h"

#include <algorithm>

#include "daemon/base/statistics.h"
#include "daemon/whatif/graph/tolerances.h"

namespace seqpoint::whatif {
namespace {

constexpr int64_t kUsualLatencyNs = 5 * kMicro;  // where no launch of the trace shows one
constexpr int64_t kUsualGapNs = 1 * kMicro;
constexpr int64_t kLongestGapNs = 50 * kMicro;
constexpr size_t kGapSample = 8;

// Kinds that follow each other with the same gap.
enum class GapClass : uint8_t { kKernel, kCopy, kMemset };
constexpr size_t kGapClasses = 3;
constexpr size_t kGapKeys = kGapClasses * kGapClasses;  // of a lane
GapClass ClassOf(WorkKind kind) {
  switch (kind) {
    case WorkKind::kMemset:
      return GapClass::kMemset;
    case WorkKind::kCopyH2D:
    case WorkKind::kCopyD2H:
    case WorkKind::kCopyD2D:
    case WorkKind::kCopyOther:
      return GapClass::kCopy;
    default:
      return GapClass::kKernel;
  }
}

using Samples = std::vector<std::vector<int64_t>>;

// The mean keeps the sum over thousands of tasks right. A task that waited for something else shows
// no gap, and a few samples show nothing.
int64_t MeanGapNs(std::vector<int64_t>* values, int64_t otherwise_ns) {
  if (values->size() < kGapSample) return otherwise_ns;
  const int64_t median_ns = Median(*values);
  const int64_t limit_ns = std::min(std::max(3 * median_ns, median_ns + kLateNs), kLongestGapNs);
  int64_t sum_ns = 0, count = 0;
  for (const int64_t value : *values) {
    if (value > limit_ns) continue;
    sum_ns += value;
    ++count;
  }
  return count == 0 ? otherwise_ns : sum_ns / count;
}

void SetGaps(Samples* gaps, int64_t otherwise_ns, int64_t* usual_ns,
             std::vector<int64_t>* means_ns) {
  std::vector<int64_t> all;
  for (const auto& values : *gaps) all.insert(all.end(), values.begin(), values.end());
  *usual_ns = MeanGapNs(&all, otherwise_ns);
  means_ns->clear();
  for (auto& values : *gaps) means_ns->push_back(MeanGapNs(&values, *usual_ns));
}

}  // namespace

Gaps::Gaps(const JoinedTrace& joined, const Graph& graph)
    : j_(joined),
      lanes_(graph.lanes.size()),
      usual_gap_ns_(kUsualGapNs),
      usual_wait_gap_ns_(kUsualGapNs) {
  MeasureLatencies(graph);
  MeasureGaps();
}

void Gaps::SetWaits(std::vector<std::vector<uint32_t>> waits_for) {
  waits_for_ = std::move(waits_for);
  MeasureGaps();
}

// The time that a launch takes to reach an idle lane.
void Gaps::MeasureLatencies(const Graph& graph) {
  std::vector<int64_t> latencies;
  for (uint32_t w = 0; w < j_.works.size(); ++w) {
    // A collective mostly waits for gradients of another lane, which is not known yet.
    if (!j_.HasLaunch(w) || j_.works[w].kind == WorkKind::kCollective) continue;
    const int64_t begin_ns = j_.CallAt(j_.call_of[w]).begin_ns;
    // The trace may not hold all work that was in flight.
    const bool idle = j_.before[w] == kNone ? graph.figures.works_before == 0
                                            : j_.works[j_.before[w]].end_ns <= begin_ns;
    const bool first = j_.works_of_call[j_.launches[j_.call_of[w]].first] == w;
    if (idle && first) latencies.push_back(j_.works[w].start_ns - begin_ns);
  }
  usual_latency_ns_ = Median(latencies, kUsualLatencyNs);
  shortest_latency_ns_ = latencies.empty() ? usual_latency_ns_ : Quantile(latencies, 0.05);
}

// The time after which one task follows another of its lane, or one that it waits for.
void Gaps::MeasureGaps() {
  Samples same(lanes_ * kGapKeys), across(same.size());
  for (uint32_t w = 0; w < j_.works.size(); ++w) {
    if (j_.before[w] == kNone || !j_.HasLaunch(w)) continue;
    const uint32_t wait = LastWait(w);
    const bool waits = wait != kNone && j_.works[wait].end_ns > j_.works[j_.before[w]].end_ns;
    const uint32_t after = waits ? wait : j_.before[w];
    const bool node = j_.call_of[j_.before[w]] == j_.call_of[w];
    if (!node &&
        j_.CallAt(j_.call_of[w]).end_ns + usual_latency_ns_ * 3 / 2 >= j_.works[after].end_ns) {
      continue;
    }
    (waits ? across : same)[GapKey(after, w)].push_back(j_.works[w].start_ns -
                                                        j_.works[after].end_ns);
  }
  SetGaps(&same, kUsualGapNs, &usual_gap_ns_, &gap_ns_);
  SetGaps(&across, usual_gap_ns_, &usual_wait_gap_ns_, &wait_gap_ns_);
}

size_t Gaps::GapKey(uint32_t after, uint32_t w) const {
  return j_.lane_of[w] * kGapKeys +
         static_cast<size_t>(ClassOf(j_.works[after].kind)) * kGapClasses +
         static_cast<size_t>(ClassOf(j_.works[w].kind));
}

int64_t Gaps::GapOf(uint32_t w) const {
  return j_.before[w] == kNone ? usual_gap_ns_ : gap_ns_[GapKey(j_.before[w], w)];
}

int64_t Gaps::WaitGapOf(uint32_t w) const {
  const uint32_t wait = LastWait(w);
  return wait == kNone ? usual_wait_gap_ns_ : wait_gap_ns_[GapKey(wait, w)];
}

uint32_t Gaps::LastWait(uint32_t w) const {
  uint32_t last = kNone;
  if (waits_for_.empty()) return last;
  for (const uint32_t other : waits_for_[w]) {
    if (last == kNone || j_.works[other].end_ns > j_.works[last].end_ns) last = other;
  }
  return last;
}

int64_t Gaps::ReadyNs(uint32_t w) const {
  int64_t ready_ns = kPast;
  if (j_.HasLaunch(w) && !j_.IsLaterNode(w)) {
    ready_ns = j_.CallAt(j_.call_of[w]).begin_ns + shortest_latency_ns_;
  }
  if (j_.before[w] != kNone)
    ready_ns = std::max(ready_ns, j_.works[j_.before[w]].end_ns + GapOf(w));
  return ready_ns;
}

}  // namespace seqpoint::whatif
