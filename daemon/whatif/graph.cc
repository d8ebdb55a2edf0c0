#include "daemon/whatif/graph.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <queue>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "daemon/trace/correlations.h"
#include "daemon/whatif/phases.h"

namespace seqpoint::whatif {
namespace {

constexpr int64_t kMicro = 1000;
// Old traces have whole microseconds: what is that near is the same time.
constexpr int64_t kTickNs = 2 * kMicro;
// So soon after the end of what it waited for a task starts.
constexpr int64_t kSoonNs = 15 * kMicro;
constexpr int64_t kLateNs = 5 * kMicro;
constexpr int64_t kUsualLatencyNs = 5 * kMicro;  // where no launch of the trace tells one
constexpr int64_t kUsualGapNs = 1 * kMicro;
constexpr int64_t kLongestGapNs = 50 * kMicro;
constexpr size_t kGapSample = 8;
constexpr int64_t kWaitCallNs = 2 * kMicro;  // a wait for what is over
// A run of so many calls is a thread's turn; fewer may be a watchdog's.
constexpr size_t kTurnCalls = 5;
constexpr int64_t kPast = std::numeric_limits<int64_t>::min() / 4;
constexpr size_t kWaitSample = 256;
// What real traces are far below, and hostile ones may not go beyond: their graph would take
// minutes.
constexpr size_t kMostWaitQueues = 64;      // pairs of which may explain a wait: the busiest
constexpr size_t kMostWaitTries = 1 << 28;  // in all
constexpr uint32_t kMostBranches = 256;     // of a graph launch
constexpr ptrdiff_t kMostNear = 4096;       // ends of work looked at for one late start
constexpr size_t kMostNested = 64;          // annotations

// Kinds that follow each other with the same gap.
enum class GapClass : uint8_t { kKernel, kCopy, kMemset };
constexpr size_t kGapClasses = 3;
constexpr size_t kGapKeys = kGapClasses * kGapClasses;  // of a queue
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

bool HostSide(WorkKind kind) {
  return kind == WorkKind::kCopyH2D || kind == WorkKind::kCopyD2H || kind == WorkKind::kCopyOther;
}

bool IsKernelLaunch(CallKind kind) {
  return kind == CallKind::kLaunch || kind == CallKind::kGraphLaunch;
}

int64_t Median(std::vector<int64_t>* values, int64_t otherwise) {
  if (values->empty()) return otherwise;
  const auto middle = values->begin() + static_cast<int64_t>(values->size() / 2);
  std::nth_element(values->begin(), middle, values->end());
  return *middle;
}

class Builder {
 public:
  Builder(const Trace& trace, const GraphOptions& options) : trace_(trace), options_(options) {}

  Graph Build() {
    graph_.names = trace_.names;
    graph_.threads = trace_.threads;
    graph_.streams = trace_.streams;
    SortCalls();
    JoinWorks();
    AssignQueues();
    MeasureLatencies();
    MeasureGaps();
    FindWaits();
    MeasureGaps();  // now without what was spent waiting for other queues
    FindShared();
    MakeGpuTasks();
    MakeCpuTasks();
    SetPhases(trace_, &graph_);
    return std::move(graph_);
  }

 private:
  // By queue, what is before, what is behind: see GapKey.
  using Gaps = std::vector<std::vector<int64_t>>;
  struct Launch {        // of a call
    uint32_t first = 0;  // in works_of_call_
    uint32_t count = 0;
  };
  struct Launched {         // by one call, into one queue
    uint32_t position = 0;  // of the call
    uint32_t first = 0, last = 0;
  };

  const Call& CallAt(uint32_t position) const { return trace_.calls[calls_[position]]; }

  // Calls in order of their begin over all threads; a call inside of another one of its thread (the
  // driver's below the runtime's) is part of that.
  void SortCalls() {
    std::vector<uint32_t> sorted(trace_.calls.size());
    for (uint32_t i = 0; i < sorted.size(); ++i) sorted[i] = i;
    const auto earlier = [this](uint32_t a, uint32_t b) {
      const Call& x = trace_.calls[a];
      const Call& y = trace_.calls[b];
      return std::tie(x.begin_ns, y.end_ns, a) < std::tie(y.begin_ns, x.end_ns, b);
    };
    if (!std::is_sorted(sorted.begin(), sorted.end(), earlier)) {
      std::sort(sorted.begin(), sorted.end(), earlier);
    }
    std::vector<uint32_t> last(trace_.threads.size(), kNone);
    outer_.assign(trace_.calls.size(), kNone);
    calls_.reserve(sorted.size());
    for (const uint32_t i : sorted) {
      const Call& call = trace_.calls[i];
      if (call.correlation != 0) {
        first_correlation_ = std::min(first_correlation_, call.correlation);
      }
      const uint32_t before = last[call.thread];
      if (before != kNone && call.end_ns <= CallAt(before).end_ns &&
          call.begin_ns < CallAt(before).end_ns) {
        outer_[i] = before;
        continue;
      }
      outer_[i] = last[call.thread] = static_cast<uint32_t>(calls_.size());
      calls_.push_back(i);
    }
    if (!calls_.empty()) {
      graph_.begin_ns = CallAt(0).begin_ns;
      return;
    }
    for (const Work& work : trace_.works) {
      graph_.begin_ns = std::min(graph_.begin_ns, work.start_ns);
    }
  }

  void JoinWorks() {
    const trace::Correlations correlations(trace_);
    const auto find = [&](uint64_t correlation) -> uint32_t {
      const uint32_t call = correlations.CallOf(correlation);
      return call == kNone ? kNone : outer_[call];
    };

    work_ids_.resize(trace_.works.size());
    for (uint32_t w = 0; w < work_ids_.size(); ++w) work_ids_[w] = w;
    std::stable_sort(work_ids_.begin(), work_ids_.end(), [this](uint32_t a, uint32_t b) {
      return trace_.works[a].start_ns < trace_.works[b].start_ns;
    });
    works_.reserve(work_ids_.size());
    for (const uint32_t id : work_ids_) works_.push_back(trace_.works[id]);
    call_of_.resize(works_.size());
    launches_.resize(calls_.size());
    for (uint32_t w = 0; w < works_.size(); ++w) call_of_[w] = find(works_[w].correlation);
    AdoptWorks();
    for (const uint32_t position : call_of_) {
      if (position != kNone) ++launches_[position].count;
    }
    uint32_t first = 0;
    for (Launch& launch : launches_) {
      launch.first = first;
      first += std::exchange(launch.count, 0);
    }
    works_of_call_.resize(first);
    for (const bool adopted : {false, true}) {  // a launch's own works are its first
      for (uint32_t w = 0; w < works_.size(); ++w) {
        if (call_of_[w] == kNone || adopted_[w] != adopted) continue;
        Launch& launch = launches_[call_of_[w]];
        works_of_call_[launch.first + launch.count++] = w;
      }
    }
    wait_of_.assign(calls_.size(), kNone);
    for (uint32_t i = 0; i < trace_.waits.size(); ++i) {
      const uint32_t call = find(trace_.waits[i].correlation);
      if (call != kNone) wait_of_[call] = i;
    }
    for (const Wait& wait : trace_.waits) {
      if (wait.record_correlation == 0 || wait.source == kNone) continue;
      const uint32_t record = find(wait.record_correlation);
      if (record != kNone && CallAt(record).kind == CallKind::kEventRecord) {
        const auto [it, made] = event_of_.try_emplace(record, graph_.events);
        if (made) ++graph_.events;
        record_stream_[record] = wait.source;
        event_by_correlation_[wait.record_correlation] = it->second;
      }
    }
  }

  // Work without a launch was in flight when the trace began, or its launch was lost. The numbers
  // of correlations, which ascend with the calls of a process, tell which, and after which launch
  // a lost one came: with that one it goes. Where they do not it goes with the launch before it in
  // its stream.
  void AdoptWorks() {
    adopted_.assign(works_.size(), false);
    std::vector<std::pair<uint64_t, uint32_t>> launches;  // correlation, position
    for (uint32_t p = 0; p < calls_.size(); ++p) {
      if (IsKernelLaunch(CallAt(p).kind)) launches.emplace_back(CallAt(p).correlation, p);
    }
    std::sort(launches.begin(), launches.end());
    std::vector<uint32_t> last(trace_.streams.size(), kNone);
    for (uint32_t w = 0; w < works_.size(); ++w) {
      const Work& work = works_[w];
      if (call_of_[w] != kNone) {
        if (IsKernelLaunch(CallAt(call_of_[w]).kind)) last[work.stream] = call_of_[w];
        continue;
      }
      const auto behind =
          std::lower_bound(launches.begin(), launches.end(), std::pair(work.correlation, 0u));
      const uint32_t numbered =
          work.correlation == 0 || behind == launches.begin() ? kNone : std::prev(behind)->second;
      const bool possible = numbered != kNone && CallAt(numbered).begin_ns <= work.start_ns;
      call_of_[w] = possible ? numbered : last[work.stream];
      adopted_[w] = call_of_[w] != kNone;
      ++(adopted_[w] ? graph_.figures.launches_lost : graph_.figures.works_before);
    }
  }

  // A stream is a queue. Nodes of one graph launch that overlap on a stream are on branches.
  void AssignQueues() {
    std::vector<std::vector<uint32_t>> queues_of(trace_.streams.size());
    const auto queue = [&](uint32_t stream, uint32_t branch) {
      std::vector<uint32_t>& queues = queues_of[stream];
      while (queues.size() <= branch) {
        queues.push_back(static_cast<uint32_t>(graph_.queues.size()));
        graph_.queues.push_back({stream, static_cast<uint32_t>(queues.size() - 1)});
      }
      return queues[branch];
    };
    queue_of_.resize(works_.size());
    before_.assign(works_.size(), kNone);
    std::vector<uint32_t> last;  // work by queue
    std::vector<int64_t> end_ns;
    for (uint32_t w = 0; w < works_.size(); ++w) {
      const Work& work = works_[w];
      uint32_t branch = 0;
      const bool node = HasLaunch(w) && launches_[call_of_[w]].count > 1;
      uint32_t q = queue(work.stream, 0);
      last.resize(graph_.queues.size(), kNone);
      end_ns.resize(graph_.queues.size(), kPast);
      while (node && last[q] != kNone && call_of_[last[q]] == call_of_[w] &&
             end_ns[q] > work.start_ns + kTickNs && branch + 1 < kMostBranches) {
        q = queue(work.stream, ++branch);
        last.resize(graph_.queues.size(), kNone);
        end_ns.resize(graph_.queues.size(), kPast);
      }
      queue_of_[w] = q;
      before_[w] = last[q];
      last[q] = w;
      end_ns[q] = work.end_ns;
    }
    main_queue_.assign(trace_.streams.size(), kNone);
    for (uint32_t s = 0; s < queues_of.size(); ++s) {
      if (!queues_of[s].empty()) main_queue_[s] = queues_of[s][0];
    }
    in_flight_.resize(graph_.queues.size());
    for (uint32_t w = 0; w < works_.size(); ++w) {
      if (InFlight(w)) in_flight_[queue_of_[w]].push_back(w);
    }
    // Works of each queue by the position of their call, to look up what was last when.
    launched_.resize(graph_.queues.size());
    for (uint32_t position = 0; position < calls_.size(); ++position) {
      const Launch& launch = launches_[position];
      for (uint32_t i = 0; i < launch.count; ++i) {
        const uint32_t w = works_of_call_[launch.first + i];
        std::vector<Launched>& list = launched_[queue_of_[w]];
        if (!list.empty() && list.back().position == position) {
          list.back().last = w;
        } else {
          list.push_back({position, w, w});
        }
      }
    }
  }

  // The work that a queue was last given before, or is first given after, a call.
  uint32_t LastBefore(uint32_t queue, uint32_t position) const {
    const std::vector<Launched>& list = launched_[queue];
    const auto it = std::partition_point(
        list.begin(), list.end(), [&](const Launched& each) { return each.position < position; });
    return it == list.begin() ? kNone : std::prev(it)->last;
  }
  uint32_t FirstAfter(uint32_t queue, uint32_t position) const {
    const std::vector<Launched>& list = launched_[queue];
    const auto it = std::partition_point(
        list.begin(), list.end(), [&](const Launched& each) { return each.position <= position; });
    return it == list.end() ? kNone : it->first;
  }

  // Launched before the trace began.
  bool InFlight(uint32_t w) const { return call_of_[w] == kNone; }
  // Its own, not one that it goes with.
  bool HasLaunch(uint32_t w) const { return !InFlight(w) && !adopted_[w]; }
  // Of these, the one that a queue had done last by then.
  uint32_t LastInFlight(uint32_t queue, int64_t until_ns) const {
    const std::vector<uint32_t>& list = in_flight_[queue];
    const auto it = std::partition_point(list.begin(), list.end(), [&](uint32_t w) {
      return works_[w].end_ns <= until_ns + kTickNs;
    });
    return it == list.begin() ? kNone : *std::prev(it);
  }

  // What a launch takes to reach an idle queue.
  void MeasureLatencies() {
    std::vector<int64_t> latencies;
    for (uint32_t w = 0; w < works_.size(); ++w) {
      if (!HasLaunch(w)) continue;
      const int64_t begin_ns = CallAt(call_of_[w]).begin_ns;
      // What was in flight may not be all recorded.
      const bool idle = before_[w] == kNone ? graph_.figures.works_before == 0
                                            : works_[before_[w]].end_ns <= begin_ns;
      const bool first = works_of_call_[launches_[call_of_[w]].first] == w;
      if (idle && first) latencies.push_back(works_[w].start_ns - begin_ns);
    }
    usual_latency_ns_ = Median(&latencies, kUsualLatencyNs);
    shortest_latency_ns_ = usual_latency_ns_;
    if (!latencies.empty()) {
      const auto low = latencies.begin() + static_cast<int64_t>(latencies.size() / 20);
      std::nth_element(latencies.begin(), low, latencies.end());
      shortest_latency_ns_ = *low;
    }
  }

  // What one task takes to follow another of its queue, or of one that it waits for.
  void MeasureGaps() {
    Gaps same(graph_.queues.size() * kGapKeys), across(same.size());
    for (uint32_t w = 0; w < works_.size(); ++w) {
      if (before_[w] == kNone || !HasLaunch(w)) continue;
      const uint32_t wait = LastWait(w);
      const bool waits = wait != kNone && works_[wait].end_ns > works_[before_[w]].end_ns;
      const uint32_t after = waits ? wait : before_[w];
      const bool node = call_of_[before_[w]] == call_of_[w];
      if (!node && CallAt(call_of_[w]).end_ns + usual_latency_ns_ * 3 / 2 >= works_[after].end_ns) {
        continue;
      }
      (waits ? across : same)[GapKey(after, w)].push_back(works_[w].start_ns -
                                                          works_[after].end_ns);
    }
    SetGaps(&same, kUsualGapNs, &usual_gap_ns_, &gap_ns_);
    SetGaps(&across, usual_gap_ns_, &usual_wait_gap_ns_, &wait_gap_ns_);
  }
  static void SetGaps(Gaps* gaps, int64_t otherwise_ns, int64_t* usual_ns,
                      std::vector<int64_t>* means_ns) {
    std::vector<int64_t> all;
    for (const auto& values : *gaps) all.insert(all.end(), values.begin(), values.end());
    *usual_ns = MeanGapNs(&all, otherwise_ns);
    means_ns->clear();
    for (auto& values : *gaps) means_ns->push_back(MeanGapNs(&values, *usual_ns));
  }
  // The mean keeps the sum over thousands of tasks right; what waited for something else is no gap
  // between two, and few tell nothing.
  static int64_t MeanGapNs(std::vector<int64_t>* values, int64_t otherwise_ns) {
    if (values->size() < kGapSample) return otherwise_ns;
    const int64_t median_ns = Median(values, 0);
    const int64_t limit_ns = std::min(std::max(3 * median_ns, median_ns + kLateNs), kLongestGapNs);
    int64_t sum_ns = 0, count = 0;
    for (const int64_t value : *values) {
      if (value > limit_ns) continue;
      sum_ns += value;
      ++count;
    }
    return count == 0 ? otherwise_ns : sum_ns / count;
  }
  size_t GapKey(uint32_t after, uint32_t w) const {
    return queue_of_[w] * kGapKeys +
           static_cast<size_t>(ClassOf(works_[after].kind)) * kGapClasses +
           static_cast<size_t>(ClassOf(works_[w].kind));
  }
  int64_t GapOf(uint32_t w) const {
    return before_[w] == kNone ? usual_gap_ns_ : gap_ns_[GapKey(before_[w], w)];
  }
  int64_t WaitGapOf(uint32_t w) const {
    const uint32_t wait = LastWait(w);
    return wait == kNone ? usual_wait_gap_ns_ : wait_gap_ns_[GapKey(wait, w)];
  }
  // Of the works of other queues that a work waits for, the one that ended last.
  uint32_t LastWait(uint32_t w) const {
    uint32_t last = kNone;
    if (waits_for_.empty()) return last;
    for (const uint32_t other : waits_for_[w]) {
      if (last == kNone || works_[other].end_ns > works_[last].end_ns) last = other;
    }
    return last;
  }

  // When a work could have started for all that its queue and its launch tell.
  int64_t ReadyNs(uint32_t w) const {
    int64_t ready_ns = kPast;
    if (HasLaunch(w) && !IsLaterNode(w)) {
      ready_ns = CallAt(call_of_[w]).begin_ns + shortest_latency_ns_;
    }
    if (before_[w] != kNone) ready_ns = std::max(ready_ns, works_[before_[w]].end_ns + GapOf(w));
    return ready_ns;
  }
  // Not the first work of its launch.
  bool IsLaterNode(uint32_t w) const { return works_of_call_[launches_[call_of_[w]].first] != w; }

  // Stream waits: recorded, or else inferred from what the neighbours of such a call are about and
  // what the times allow. Calls with the same neighbours are the same line of the program.
  void FindWaits() {
    wait_queue_.assign(calls_.size(), kNone);
    wait_source_.assign(calls_.size(), kNone);
    struct Place {
      uint32_t before = 0, after = 0;  // names
      uint32_t queue_before = kNone, queue_after = kNone;
    };
    std::vector<Place> places(calls_.size());
    std::vector<uint32_t> last(trace_.threads.size(), kNone), queue(trace_.threads.size(), kNone);
    for (uint32_t p = 0; p < calls_.size(); ++p) {
      const Call& call = CallAt(p);
      places[p].queue_before = queue[call.thread];
      if (last[call.thread] != kNone) {
        places[p].before = CallAt(last[call.thread]).name;
        places[last[call.thread]].after = call.name;
      }
      last[call.thread] = p;
      if (launches_[p].count > 0) {
        queue[call.thread] = queue_of_[works_of_call_[launches_[p].first]];
      }
    }
    std::fill(queue.begin(), queue.end(), kNone);
    std::map<std::tuple<uint32_t, uint32_t, uint32_t, uint32_t>, std::vector<uint32_t>> groups;
    for (uint32_t p = static_cast<uint32_t>(calls_.size()); p-- > 0;) {
      const Call& call = CallAt(p);
      places[p].queue_after = queue[call.thread];
      if (launches_[p].count > 0) {
        queue[call.thread] = queue_of_[works_of_call_[launches_[p].first]];
      }
      if (call.kind != CallKind::kStreamWait) continue;
      if (wait_of_[p] != kNone) {
        const Wait& wait = trace_.waits[wait_of_[p]];
        if (wait.stream != kNone && wait.source != kNone) {
          wait_queue_[p] = main_queue_[wait.stream];
          wait_source_[p] = main_queue_[wait.source];
          ++graph_.figures.waits_recorded;
          continue;
        }
      }
      const Place& place = places[p];
      groups[{place.before, place.after, place.queue_before, place.queue_after}].push_back(p);
    }
    for (uint32_t queue = 0; queue < graph_.queues.size(); ++queue) busiest_.push_back(queue);
    if (busiest_.size() > kMostWaitQueues) {
      std::stable_sort(busiest_.begin(), busiest_.end(), [this](uint32_t a, uint32_t b) {
        return launched_[a].size() > launched_[b].size();
      });
      busiest_.resize(kMostWaitQueues);
    }
    for (const auto& [key, calls] : groups) {
      InferWaits(calls, std::get<2>(key), std::get<3>(key));
    }
    waits_for_.resize(works_.size());
    for (uint32_t p = 0; p < calls_.size(); ++p) {
      if (wait_queue_[p] == kNone || wait_source_[p] == kNone) continue;
      const uint32_t waiting = FirstAfter(wait_queue_[p], p);
      uint32_t source = LastBefore(wait_source_[p], p);
      if (source == kNone || RecordedBefore(p)) {
        // What it waits for was in flight: that is one task, whatever the replay has in the queue.
        if (waiting != kNone) source = LastInFlight(wait_source_[p], works_[waiting].start_ns);
        wait_queue_[p] = kNone;
      }
      if (waiting != kNone && source != kNone) waits_for_[waiting].push_back(source);
    }
  }

  // A wait for an event that was recorded before the trace began.
  bool RecordedBefore(uint32_t p) const {
    if (wait_of_[p] == kNone) return false;
    const uint64_t record = trace_.waits[wait_of_[p]].record_correlation;
    return record != 0 && record < first_correlation_;
  }

  void InferWaits(const std::vector<uint32_t>& calls, uint32_t before, uint32_t after) {
    uint32_t best_queue = kNone, best_source = kNone;
    std::tuple<int64_t, int> best(std::numeric_limits<int64_t>::min(), 0);
    const size_t step = std::max<size_t>(1, calls.size() / kWaitSample);
    std::vector<uint32_t> queues = busiest_;
    for (const uint32_t queue : {before, after}) {
      const bool known = std::find(queues.begin(), queues.end(), queue) != queues.end();
      if (queue != kNone && !known) queues.push_back(queue);
    }
    wait_tries_ += queues.size() * queues.size() * (calls.size() / step);
    if (wait_tries_ > kMostWaitTries) queues.clear();
    for (const uint32_t queue : queues) {
      for (const uint32_t source : queues) {
        if (queue == source) continue;
        int64_t tried = 0, supported = 0, contradicted = 0;
        for (size_t i = 0; i < calls.size(); i += step) {
          const uint32_t waiting = FirstAfter(queue, calls[i]);
          const uint32_t waited = LastBefore(source, calls[i]);
          if (waiting == kNone || waited == kNone) continue;
          ++tried;
          const int64_t start_ns = works_[waiting].start_ns, end_ns = works_[waited].end_ns;
          const int64_t ready_ns = ReadyNs(waiting);
          if (end_ns > start_ns + kTickNs) {
            ++contradicted;
          } else if (end_ns > ready_ns - kTickNs && start_ns - end_ns < kSoonNs &&
                     start_ns - ready_ns > kLateNs) {
            ++supported;
          }
        }
        const int alike = (queue == after ? 1 : 0) + (source == before ? 1 : 0);
        if (tried == 0 || contradicted * 50 > tried || (supported == 0 && alike < 2)) continue;
        const std::tuple<int64_t, int> score(supported - 5 * contradicted, alike);
        if (score <= best) continue;
        best = score;
        best_queue = queue;
        best_source = source;
      }
    }
    for (const uint32_t p : calls) {
      const uint32_t waiting = best_queue == kNone ? kNone : FirstAfter(best_queue, p);
      const uint32_t waited = best_queue == kNone ? kNone : LastBefore(best_source, p);
      if (waiting == kNone || waited == kNone ||
          works_[waited].end_ns > works_[waiting].start_ns + kTickNs) {
        ++graph_.figures.waits_unknown;
        continue;
      }
      wait_queue_[p] = best_queue;
      wait_source_[p] = best_source;
      ++graph_.figures.waits_inferred;
    }
  }

  // Work that starts later than all that, just when a kernel of another queue ends: the GPU had no
  // room for both, or an event of which the trace says nothing. Where that does not explain it
  // either, it is late.
  void FindShared() {
    shared_.assign(works_.size(), kNone);
    late_.assign(works_.size(), false);
    std::vector<std::pair<int64_t, uint32_t>> ends;
    ends.reserve(works_.size());
    for (uint32_t w = 0; w < works_.size(); ++w) ends.emplace_back(works_[w].end_ns, w);
    std::sort(ends.begin(), ends.end());
    for (uint32_t w = 0; w < works_.size(); ++w) {
      // Without a launch and anything before it its start is all that is known.
      if (!HasLaunch(w) && before_[w] == kNone) continue;
      const Work& work = works_[w];
      int64_t ready_ns = ReadyNs(w);
      if (const uint32_t wait = LastWait(w); wait != kNone) {
        ready_ns = std::max(ready_ns, works_[wait].end_ns + WaitGapOf(w));
      }
      if (work.start_ns - ready_ns <= kSoonNs || (HasLaunch(w) && LateByCall(w))) {
        late_[w] = !HasLaunch(w);  // nobody knows how much of it the launch was
        continue;
      }
      uint32_t best = kNone;
      auto it = std::lower_bound(ends.begin(), ends.end(),
                                 std::pair(work.start_ns - kSoonNs, uint32_t{0}));
      const auto far = ends.end() - it > kMostNear ? it + kMostNear : ends.end();
      for (; it != far && it->first <= work.start_ns + kLateNs; ++it) {
        const uint32_t other = it->second;
        const bool earlier = InFlight(other) || (!InFlight(w) && call_of_[other] < call_of_[w]);
        if (queue_of_[other] == queue_of_[w] || it->first <= ready_ns || !earlier ||
            works_[other].start_ns >= work.start_ns) {
          continue;
        }
        if (best == kNone ||
            std::abs(it->first - work.start_ns) < std::abs(works_[best].end_ns - work.start_ns)) {
          best = other;
        }
      }
      shared_[w] = best;
      if (best != kNone) {
        ++graph_.figures.shared;
      } else if (!HasLaunch(w) || !LaunchBound(w)) {
        late_[w] = true;
        ++graph_.figures.unexplained;
        graph_.figures.unexplained_ns += work.start_ns - ready_ns;
      }
    }
  }

  // The call took so long itself (it loaded a module) that its work started when it was done.
  bool LateByCall(uint32_t w) const {
    const Call& call = CallAt(call_of_[w]);
    return !IsLaterNode(w) && call.end_ns - call.begin_ns > usual_latency_ns_ + kSoonNs &&
           std::abs(works_[w].start_ns - call.end_ns) <= kSoonNs;
  }

  // The launch came last of all that the work waited for.
  bool LaunchBound(uint32_t w) const {
    int64_t free_ns = kPast;
    if (before_[w] != kNone) free_ns = works_[before_[w]].end_ns + GapOf(w);
    for (const uint32_t other : {LastWait(w), shared_[w]}) {
      if (other != kNone) free_ns = std::max(free_ns, works_[other].end_ns + WaitGapOf(w));
    }
    return CallAt(call_of_[w]).begin_ns + shortest_latency_ns_ >= free_ns ||
           (works_[w].start_ns - free_ns > kSoonNs && LateByCall(w));
  }

  // Works become tasks in the order of their calls, which is that of their queues.
  void MakeGpuTasks() {
    graph_.gpu.reserve(works_.size());
    task_of_.assign(works_.size(), kNone);
    const auto add = [this](uint32_t w) -> GpuTask& {
      const Work& work = works_[w];
      task_of_[w] = static_cast<uint32_t>(graph_.gpu.size());
      GpuTask& task = graph_.gpu.emplace_back();
      task.duration_ns = work.end_ns - work.start_ns;
      task.gap_ns = GapOf(w);
      task.wait_gap_ns = WaitGapOf(w);
      if (late_[w]) KeepLate(w, &task);
      task.bytes = work.bytes;
      task.name = work.name;
      task.queue = queue_of_[w];
      task.kind = work.kind;
      task.work = work_ids_[w];
      return task;
    };
    for (uint32_t w = 0; w < works_.size(); ++w) {
      if (call_of_[w] != kNone) continue;
      GpuTask& task = add(w);
      task.before = true;
      // Of the first of a queue nothing else is known; the others come after it.
      task.latency_ns = works_[w].start_ns - graph_.begin_ns;
      if (before_[w] != kNone) task.latency_ns = std::min<int64_t>(task.latency_ns, 0);
      AddFixed(w, &task);
    }
    for (uint32_t p = 0; p < calls_.size(); ++p) {
      const Launch& launch = launches_[p];
      EndedNodes ended(*this);
      for (uint32_t i = 0; i < launch.count; ++i) {
        const uint32_t w = works_of_call_[launch.first + i];
        GpuTask& task = add(w);
        task.by_graph = launch.count > 1;
        const int64_t own_ns = works_[w].start_ns - CallAt(p).begin_ns;
        task.latency_ns = LaunchBound(w) ? own_ns : std::min(own_ns, usual_latency_ns_);
        if (adopted_[w]) {
          task.latency_ns = before_[w] == kNone ? own_ns : std::min(own_ns, usual_latency_ns_);
        } else if (IsLaterNode(w)) {
          task.latency_ns = std::min(own_ns, usual_latency_ns_);
          if (const uint32_t node = ended.LastBefore(w); node != kNone) AddDependency(node, &task);
        }
        if (launch.count > 1 && !adopted_[w]) ended.Add(w);
        AddFixed(w, &task);
      }
    }
  }
  // What the replay does not find out itself: whom it shares the GPU with, and what of that which
  // it waits for was in flight.
  void AddFixed(uint32_t w, GpuTask* task) {
    if (shared_[w] != kNone && task_of_[shared_[w]] != kNone) AddDependency(shared_[w], task);
    for (const uint32_t other : waits_for_[w]) {
      if (InFlight(other)) AddDependency(other, task);
    }
  }
  // A start that nothing explains is as long after what is before it as it was.
  void KeepLate(uint32_t w, GpuTask* task) const {
    const int64_t start_ns = works_[w].start_ns;
    const uint32_t before = before_[w], wait = LastWait(w);
    const int64_t free_ns = before == kNone ? kPast : works_[before].end_ns + task->gap_ns;
    if (wait != kNone && works_[wait].end_ns + task->wait_gap_ns > free_ns) {
      task->wait_gap_ns = start_ns - works_[wait].end_ns;
    } else {
      task->gap_ns = start_ns - works_[before].end_ns;
    }
  }

  // The nodes of one graph launch in order of their starts: each follows the one that ended last
  // before it, on whatever branch.
  class EndedNodes {
   public:
    explicit EndedNodes(const Builder& builder) : builder_(builder) {}
    // kNone: none on another branch than `w`.
    uint32_t LastBefore(uint32_t w) {
      const int64_t start_ns = builder_.works_[w].start_ns;
      while (!running_.empty() && running_.top().first <= start_ns + kTickNs) {
        Take(running_.top().second);
        running_.pop();
      }
      return last_ != kNone && Queue(last_) == Queue(w) ? last_of_others_ : last_;
    }
    void Add(uint32_t w) { running_.emplace(EndNs(w), w); }

   private:
    int64_t EndNs(uint32_t w) const { return builder_.works_[w].end_ns; }
    uint32_t Queue(uint32_t w) const { return builder_.queue_of_[w]; }
    bool Later(uint32_t w, uint32_t than) const { return than == kNone || EndNs(w) > EndNs(than); }
    void Take(uint32_t w) {
      if (Later(w, last_)) {
        if (last_ != kNone && Queue(last_) != Queue(w)) last_of_others_ = last_;
        last_ = w;
      } else if (Queue(w) != Queue(last_) && Later(w, last_of_others_)) {
        last_of_others_ = w;
      }
    }
    const Builder& builder_;
    using Node = std::pair<int64_t, uint32_t>;  // end, work
    std::priority_queue<Node, std::vector<Node>, std::greater<>> running_;
    uint32_t last_ = kNone;
    uint32_t last_of_others_ = kNone;  // on another branch than that
  };

  // Those of a task are added one after the other.
  void AddDependency(uint32_t w, GpuTask* task) {
    if (task->dependency_count++ == 0) {
      task->first_dependency = static_cast<uint32_t>(graph_.dependencies.size());
    }
    graph_.dependencies.push_back(task_of_[w]);
  }

  // --- CPU ---

  struct Turn {
    uint32_t first = 0, last = 0;  // positions
    uint32_t thread = 0;
    size_t calls = 0;
  };

  // Threads that take turns hand over to each other: the one that stops waits for the other (the
  // forward thread for the backward thread of autograd). A gap that such a turn fills is no work.
  void FindHandovers() {
    after_.assign(calls_.size(), kNone);
    std::vector<Turn> turns;
    for (uint32_t p = 0; p < calls_.size(); ++p) {
      const uint32_t thread = CallAt(p).thread;
      if (turns.empty() || turns.back().thread != thread) turns.push_back({p, p, thread, 0});
      turns.back().last = p;
      ++turns.back().calls;
    }
    // Short ones are not turns, and do not cut those of others.
    std::vector<Turn> solid;
    for (const Turn& turn : turns) {
      if (!solid.empty() && solid.back().thread == turn.thread) {
        solid.back().last = turn.last;
        solid.back().calls += turn.calls;
      } else if (turn.calls >= kTurnCalls) {
        solid.push_back(turn);
      }
    }
    for (size_t i = 1; i < solid.size(); ++i) {
      const Turn& turn = solid[i];
      const Turn& before = solid[i - 1];
      if (CallAt(before.last).end_ns > CallAt(turn.first).begin_ns + kTickNs) continue;
      after_[turn.first] = before.last;
      ++graph_.figures.handovers;
    }
  }

  // The annotations of a thread, outermost first, and where a gap crosses their borders.
  class Labels {
   public:
    explicit Labels(Builder* builder) : builder_(builder) {}
    void Add(const Span& span) { spans_.push_back(span); }
    void Sort() {
      std::stable_sort(spans_.begin(), spans_.end(), [](const Span& a, const Span& b) {
        return std::tie(a.begin_ns, b.end_ns) < std::tie(b.begin_ns, a.end_ns);
      });
    }
    // Calls `piece(begin_ns, end_ns, label)` for each part of [begin_ns, end_ns) with the same
    // annotations around it. Times of successive calls ascend.
    template <typename Piece>
    void Cut(int64_t begin_ns, int64_t end_ns, const Piece& piece) {
      int64_t at_ns = begin_ns;
      do {
        Enter(at_ns);
        int64_t until_ns = end_ns;
        if (!open_.empty()) until_ns = std::min(until_ns, open_.back().end_ns);
        if (next_ < spans_.size()) until_ns = std::min(until_ns, spans_[next_].begin_ns);
        piece(at_ns, until_ns, open_.empty() ? 0 : open_.back().label);
        at_ns = until_ns;
      } while (at_ns < end_ns);
    }

   private:
    void Enter(int64_t at_ns) {
      for (; next_ < spans_.size() && spans_[next_].begin_ns <= at_ns; ++next_) {
        const Span& span = spans_[next_];
        if (span.end_ns <= at_ns) continue;
        // What ended before this one began is not around it.
        while (!open_.empty() && open_.back().end_ns <= span.begin_ns) open_.pop_back();
        const uint32_t outer = open_.empty() ? 0 : open_.back().label;
        const bool deep = open_.size() >= kMostNested;
        open_.push_back({span.end_ns, deep ? outer : builder_->LabelIn(outer, span.name)});
      }
      while (!open_.empty() && open_.back().end_ns <= at_ns) open_.pop_back();
    }
    struct Open {
      int64_t end_ns;
      uint32_t label;
    };
    Builder* builder_;
    std::vector<Span> spans_;
    std::vector<Open> open_;
    size_t next_ = 0;
  };

  // The name of annotation `name` inside of what `outer` says.
  uint32_t LabelIn(uint32_t outer, uint32_t name) {
    if (outer == 0) return name;
    const auto [it, made] = labels_.try_emplace({outer, name}, 0);
    if (made) {
      it->second = static_cast<uint32_t>(graph_.names.size());
      std::string label = graph_.names[outer];
      label += '\n';
      label += graph_.names[name];
      graph_.names.push_back(std::move(label));
    }
    return it->second;
  }

  void MakeCpuTasks() {
    FindHandovers();
    FindIntervalsWaitedFor();
    std::vector<Labels> labels(trace_.threads.size(), Labels(this));
    for (const Span& span : trace_.spans) {
      if (span.kind == SpanKind::kAnnotation) labels[span.thread].Add(span);
    }
    for (Labels& of_thread : labels) of_thread.Sort();

    graph_.order.resize(trace_.threads.size());
    graph_.thread_begin_ns.assign(trace_.threads.size(), 0);
    graph_.cpu.reserve(2 * calls_.size());
    graph_.iterations = static_cast<int32_t>(options_.iteration_begins_ns.size());
    std::vector<int64_t> free_ns(trace_.threads.size(), kPast);  // end of the thread's last call
    std::vector<uint32_t> cpu_of(calls_.size(), kNone);
    int32_t iteration = -1;
    for (uint32_t p = 0; p < calls_.size(); ++p) {
      const Call& call = CallAt(p);
      while (iteration + 1 < graph_.iterations &&
             options_.iteration_begins_ns[static_cast<size_t>(iteration + 1)] <= call.begin_ns) {
        ++iteration;
      }
      const uint32_t thread = call.thread;
      std::vector<uint32_t>& order = graph_.order[thread];
      uint32_t after = after_[p];
      int64_t begin_ns = free_ns[thread];
      if (after != kNone) {
        begin_ns = std::max(begin_ns, CallAt(after).end_ns);
        after = cpu_of[after];
      } else if (begin_ns == kPast) {
        graph_.thread_begin_ns[thread] = call.begin_ns - graph_.begin_ns;
      }
      uint32_t label = 0;
      if (free_ns[thread] > call.begin_ns && !order.empty()) {
        // A call that ends after the next one of its thread begins (rounded times) ends there.
        CpuTask& last = graph_.cpu[order.back()];
        int64_t& part_ns = last.tail_ns > 0 ? last.tail_ns : last.duration_ns;
        part_ns = std::max<int64_t>(0, part_ns - (free_ns[thread] - call.begin_ns));
      }
      if (begin_ns != kPast && begin_ns < call.begin_ns) {
        labels[thread].Cut(begin_ns, call.begin_ns,
                           [&](int64_t from_ns, int64_t to_ns, uint32_t name) {
                             CpuTask& gap = AddCpu(thread, iteration, &order);
                             gap.duration_ns = to_ns - from_ns;
                             gap.label = name;
                             gap.after = std::exchange(after, kNone);
                           });
      }
      labels[thread].Cut(call.begin_ns, call.begin_ns,
                         [&](int64_t, int64_t, uint32_t name) { label = name; });
      cpu_of[p] = static_cast<uint32_t>(graph_.cpu.size());
      CpuTask& task = AddCpu(thread, iteration, &order);
      task.after = after;
      task.name = call.name;
      task.call = calls_[p];
      task.label = label;
      task.kind = CpuKind::kCall;
      task.duration_ns = call.end_ns - call.begin_ns;
      free_ns[thread] = std::max(free_ns[thread], call.end_ns);
      FillCall(p, &task);
    }
  }

  CpuTask& AddCpu(uint32_t thread, int32_t iteration, std::vector<uint32_t>* order) {
    order->push_back(static_cast<uint32_t>(graph_.cpu.size()));
    CpuTask& task = graph_.cpu.emplace_back();
    task.thread = thread;
    task.iteration = iteration;
    return task;
  }

  // What each blocking call waited for.
  void FindIntervalsWaitedFor() {
    waited_queue_.assign(calls_.size(), kNone);
    waited_end_ns_.assign(calls_.size(), kPast);
    std::vector<uint32_t> last(graph_.queues.size(), kNone);
    for (uint32_t q = 0; q < last.size(); ++q) {
      if (!in_flight_[q].empty()) last[q] = in_flight_[q].back();
    }
    for (uint32_t p = 0; p < calls_.size(); ++p) {
      const Call& call = CallAt(p);
      for (uint32_t i = 0; i < launches_[p].count; ++i) {
        const uint32_t w = works_of_call_[launches_[p].first + i];
        last[queue_of_[w]] = w;
      }
      if (call.kind == CallKind::kContextSync) {
        for (const uint32_t w : last) {
          if (w != kNone) waited_end_ns_[p] = std::max(waited_end_ns_[p], works_[w].end_ns);
        }
      } else if (call.kind == CallKind::kStreamSync || call.kind == CallKind::kEventSync) {
        uint32_t stream = kNone;
        if (wait_of_[p] != kNone) {
          const Wait& wait = trace_.waits[wait_of_[p]];
          stream = wait.stream != kNone ? wait.stream : wait.source;
        }
        if (stream != kNone && main_queue_[stream] != kNone) {
          const uint32_t w = last[main_queue_[stream]];
          // It waited for something older than what the replay would have there.
          if (RecordedBefore(p) && w != kNone && works_[w].end_ns > call.end_ns + kTickNs) continue;
          waited_queue_[p] = main_queue_[stream];
          if (w != kNone) waited_end_ns_[p] = works_[w].end_ns;
          continue;
        }
        // The queue that was done last before the call returned.
        for (uint32_t q = 0; q < last.size(); ++q) {
          if (last[q] == kNone || works_[last[q]].end_ns > call.end_ns + kTickNs) continue;
          if (works_[last[q]].end_ns <= waited_end_ns_[p]) continue;
          waited_end_ns_[p] = works_[last[q]].end_ns;
          waited_queue_[p] = q;
        }
      }
    }
  }

  // That a call is recorded to wait for; kNone: not known.
  uint32_t EventOf(uint32_t p) const {
    if (wait_of_[p] == kNone) return kNone;
    const auto it = event_by_correlation_.find(trace_.waits[wait_of_[p]].record_correlation);
    return it == event_by_correlation_.end() ? kNone : it->second;
  }

  void FillCall(uint32_t p, CpuTask* task) {
    const Call& call = CallAt(p);
    const Launch& launch = launches_[p];
    uint32_t* link = &task->first_work;
    for (uint32_t i = 0; i < launch.count; ++i) {
      const uint32_t t = task_of_[works_of_call_[launch.first + i]];
      *link = t;
      link = &graph_.gpu[t].next;
      graph_.gpu[t].call = static_cast<uint32_t>(graph_.cpu.size() - 1);
      graph_.gpu[t].layer = task->label;
    }
    switch (call.kind) {
      case CallKind::kContextSync:
        task->kind = CpuKind::kWaitAll;
        break;
      case CallKind::kStreamSync:
      case CallKind::kEventSync: {
        if (waited_queue_[p] == kNone) return;
        task->kind = CpuKind::kWaitStream;
        task->queue = waited_queue_[p];
        if (call.kind == CallKind::kEventSync) task->event = EventOf(p);
        if (task->event != kNone) task->kind = CpuKind::kWaitEvent;
        break;
      }
      case CallKind::kEventRecord: {
        const auto it = event_of_.find(p);
        if (it == event_of_.end()) return;
        task->kind = CpuKind::kRecord;
        task->event = it->second;
        task->queue = main_queue_[record_stream_[p]];
        return;
      }
      case CallKind::kStreamWait: {
        if (wait_queue_[p] == kNone || wait_source_[p] == kNone) return;
        task->kind = CpuKind::kStreamWait;
        task->queue = wait_queue_[p];
        task->source = wait_source_[p];
        task->event = EventOf(p);
        return;
      }
      case CallKind::kCopy: {
        if (launch.count == 0) return;
        const Work& copy = works_[works_of_call_[launch.first + launch.count - 1]];
        const bool by_name = trace_.names[call.name].find("Async") == std::string::npos;
        if (!HostSide(copy.kind) || copy.end_ns > call.end_ns || !(copy.pageable || by_name)) {
          return;
        }
        task->kind = CpuKind::kWaitOwn;
        task->duration_ns = 0;
        task->tail_ns = call.end_ns - copy.end_ns;
        return;
      }
      default:
        if (trace::Launches(call.kind) && launch.count == 0) ++graph_.figures.calls_left_out;
        return;
    }
    const bool waited = waited_end_ns_[p] > call.begin_ns + kTickNs;
    if (waited) {
      task->tail_ns = std::max<int64_t>(0, call.end_ns - waited_end_ns_[p]);
      task->duration_ns = std::min(task->duration_ns, kWaitCallNs);
    } else {
      task->tail_ns = kWaitCallNs;
    }
  }

  const Trace& trace_;
  const GraphOptions& options_;
  Graph graph_;
  std::vector<Work> works_;                  // in order of their starts
  std::vector<uint32_t> work_ids_;           // of the trace
  std::vector<uint32_t> calls_;              // by position, in order of their begins
  std::vector<uint32_t> outer_;              // position of a call of the trace
  uint64_t first_correlation_ = UINT64_MAX;  // of the calls: those of a process ascend
  std::vector<uint32_t> call_of_;            // position, of a work
  std::vector<bool> adopted_;                // works that go with a launch that is not theirs
  std::vector<Launch> launches_;
  std::vector<uint32_t> works_of_call_;
  std::vector<uint32_t> queue_of_;
  std::vector<uint32_t> before_;                  // work before on the queue
  std::vector<uint32_t> main_queue_;              // of a stream
  std::vector<std::vector<Launched>> launched_;   // by queue
  std::vector<std::vector<uint32_t>> in_flight_;  // by queue: see InFlight
  int64_t usual_latency_ns_ = 0;
  int64_t shortest_latency_ns_ = 0;
  int64_t usual_gap_ns_ = kUsualGapNs;
  int64_t usual_wait_gap_ns_ = kUsualGapNs;
  std::vector<int64_t> gap_ns_;       // by GapKey of it and what is before in the queue
  std::vector<int64_t> wait_gap_ns_;  // by GapKey of it and what it waits for in another one
  std::vector<uint32_t> wait_of_;     // in Trace::waits, of a call
  absl::flat_hash_map<uint32_t, uint32_t> event_of_;       // of a call that records
  absl::flat_hash_map<uint32_t, uint32_t> record_stream_;  // of a call that records
  absl::flat_hash_map<uint64_t, uint32_t> event_by_correlation_;
  std::vector<uint32_t> wait_queue_, wait_source_;  // queues, of a stream wait
  std::vector<uint32_t> busiest_;                   // queues
  size_t wait_tries_ = 0;
  std::vector<std::vector<uint32_t>> waits_for_;  // works, of a work
  std::vector<uint32_t> shared_;
  std::vector<bool> late_;  // starts of works that nothing explains
  std::vector<uint32_t> task_of_;
  absl::flat_hash_map<std::pair<uint32_t, uint32_t>, uint32_t> labels_;  // see LabelIn
  std::vector<uint32_t> after_;                                          // position, of a call
  std::vector<uint32_t> waited_queue_;
  std::vector<int64_t> waited_end_ns_;
};

}  // namespace

Graph BuildGraph(const Trace& trace, const GraphOptions& options) {
  return Builder(trace, options).Build();
}

}  // namespace seqpoint::whatif
