#include "daemon/ranks/late_host.h"

#include <algorithm>
#include <utility>

#include "daemon/base/statistics.h"

namespace seqpoint::ranks {
namespace {

using trace::Call;
using trace::CallKind;
using trace::Work;
using trace::WorkKind;

// A launch that takes longer does something else before, such as to load a module.
constexpr int64_t kLongCallNs = 50'000;

bool LaunchesKernels(CallKind kind) {
  return kind == CallKind::kLaunch || kind == CallKind::kGraphLaunch;
}
bool Synchronises(CallKind kind) {
  return kind == CallKind::kStreamSync || kind == CallKind::kEventSync ||
         kind == CallKind::kContextSync;
}

}  // namespace

LateHost::LateHost(const RankWindow& window)
    : window_(window), trace_(*window.trace), correlations_(trace_) {
  for (uint32_t i = 0; i < trace_.calls.size(); ++i) calls_.push_back(i);
  std::sort(calls_.begin(), calls_.end(), [&](uint32_t a, uint32_t b) {
    return trace_.calls[a].begin_ns < trace_.calls[b].begin_ns;
  });
  for (uint32_t i = 0; i < trace_.works.size(); ++i) {
    if (trace_.works[i].kind != WorkKind::kCollective) works_.push_back(i);
  }
  std::sort(works_.begin(), works_.end(), [&](uint32_t a, uint32_t b) {
    return trace_.works[a].start_ns < trace_.works[b].start_ns;
  });
  std::vector<int64_t> end_ns(trace_.calls.size(), window.begin_ns);  // of what each launches
  std::vector<int64_t> latencies_ns;
  int64_t idle_ns = window.begin_ns;
  for (const uint32_t i : works_) {
    const Work& work = trace_.works[i];
    const uint32_t call = correlations_.CallOf(work.correlation);
    if (call != trace::kNone) {
      end_ns[call] = std::max(end_ns[call], work.end_ns);
      const int64_t begin_ns = trace_.calls[call].begin_ns;
      if (begin_ns >= idle_ns) latencies_ns.push_back(work.start_ns - begin_ns);
    }
    idle_ns = std::max(idle_ns, work.end_ns);
  }
  latency_ns_ = Median(std::move(latencies_ns));
  done_ns_.resize(trace_.calls.size());
  int64_t done_ns = window.begin_ns;
  for (const uint32_t i : calls_) {
    done_ns_[i] = done_ns;
    done_ns = std::max(done_ns, end_ns[i]);
    const Call& call = trace_.calls[i];
    if (Synchronises(call.kind)) syncs_.push_back({call.begin_ns, call.end_ns});
  }
}

int64_t LateHost::EndNs() const {
  int64_t end_ns = window_.end_ns;
  for (const Work& work : trace_.works) end_ns = std::max(end_ns, work.end_ns);
  return end_ns;
}

std::vector<Interval> LateHost::IdleTimes() const {
  std::vector<Interval> times;
  int64_t idle_ns = window_.begin_ns;
  for (const uint32_t i : works_) {
    const Work& work = trace_.works[i];
    if (work.start_ns > idle_ns) times.push_back({idle_ns, work.start_ns});
    idle_ns = std::max(idle_ns, work.end_ns);
  }
  times.push_back({idle_ns, EndNs()});
  return times;
}

std::vector<Interval> LateHost::LateTimes() const {
  std::vector<Interval> times;
  int64_t idle_ns = window_.begin_ns;
  for (const uint32_t i : works_) {
    const Work& work = trace_.works[i];
    const uint32_t index = correlations_.CallOf(work.correlation);
    if (index != trace::kNone) {
      const Call& call = trace_.calls[index];
      const bool is_long = call.end_ns - call.begin_ns > kLongCallNs && call.end_ns > idle_ns;
      // What starts later than the usual latency behind its launch waits for something else.
      if (call.begin_ns >= idle_ns || is_long) {
        const int64_t called_ns = call.begin_ns >= idle_ns ? call.begin_ns : call.end_ns;
        AddUnlessBlocked({idle_ns, std::min(work.start_ns, called_ns + latency_ns_)}, &times);
      }
    }
    idle_ns = std::max(idle_ns, work.end_ns);
  }
  AddUnlessBlocked({idle_ns, window_.end_ns}, &times);
  return times;
}

std::vector<Interval> LateHost::LoadingTimes() const {
  const uint32_t copy = BatchCopy();
  if (copy == trace::kNone) return {};
  const Call& batch = trace_.calls[copy];
  Interval longest = {batch.begin_ns, batch.begin_ns};
  int64_t next_ns = batch.begin_ns;
  bool first = true;
  for (auto it = std::find(calls_.rbegin(), calls_.rend(), copy); it != calls_.rend(); ++it) {
    const Call& call = trace_.calls[*it];
    if (call.thread != batch.thread || *it == copy) continue;
    if (next_ns - call.end_ns > longest.end_ns - longest.begin_ns) {
      longest = {call.end_ns, next_ns};
    }
    next_ns = call.begin_ns;
    if (!LaunchesKernels(call.kind)) continue;
    first = false;
    break;
  }
  if (!first) return {longest};
  int64_t last_ns = window_.begin_ns;
  for (const Call& call : trace_.calls) {
    if (call.thread == batch.thread) last_ns = std::max(last_ns, call.end_ns);
  }
  return {longest, {window_.begin_ns, next_ns}, {last_ns, window_.end_ns}};
}

int64_t LateHost::ReadyNs(uint32_t work) const {
  const uint32_t call = correlations_.CallOf(trace_.works[work].correlation);
  const int64_t start_ns = trace_.works[work].start_ns;
  if (call == trace::kNone) return start_ns;
  const int64_t reached_ns = trace_.calls[call].begin_ns + latency_ns_;
  return std::min(start_ns, std::max(reached_ns, done_ns_[call]));
}

// The call of the first copy to the GPU that moves at least a quarter of what the largest does:
// smaller ones are scalars.
uint32_t LateHost::BatchCopy() const {
  uint64_t most = 0;
  for (const Work& work : trace_.works) {
    if (work.kind == WorkKind::kCopyH2D) most = std::max(most, work.bytes);
  }
  uint32_t first = trace::kNone;
  for (const Work& work : trace_.works) {
    if (work.kind != WorkKind::kCopyH2D || work.bytes < most / 4) continue;
    const uint32_t call = correlations_.CallOf(work.correlation);
    if (call == trace::kNone) continue;
    if (first == trace::kNone || trace_.calls[call].begin_ns < trace_.calls[first].begin_ns) {
      first = call;
    }
  }
  return first;
}

// A host that waits for the GPU is not late.
void LateHost::AddUnlessBlocked(Interval late, std::vector<Interval>* times) const {
  for (const Interval& sync : syncs_) {
    if (sync.end_ns <= late.begin_ns) continue;
    if (sync.begin_ns >= late.end_ns) break;
    if (sync.begin_ns > late.begin_ns) times->push_back({late.begin_ns, sync.begin_ns});
    late.begin_ns = sync.end_ns;
  }
  if (late.begin_ns < late.end_ns) times->push_back(late);
}

}  // namespace seqpoint::ranks
