#include "daemon/whatif/graph/join.h"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

#include "daemon/trace/correlations.h"
#include "daemon/whatif/graph/tolerances.h"

namespace seqpoint::whatif {
namespace {

constexpr uint32_t kMostBranches = 256;  // of a graph launch; a hostile trace may have more

bool IsKernelLaunch(CallKind kind) {
  return kind == CallKind::kLaunch || kind == CallKind::kGraphLaunch;
}

class Joiner {
 public:
  Joiner(JoinedTrace* joined, Graph* graph) : j_(*joined), graph_(graph) {}
  void Run() {
    SortCalls();
    JoinWorks();
    AssignLanes();
  }

 private:
  using Launch = JoinedTrace::Launch;
  using Launched = JoinedTrace::Launched;

  // Calls of all threads in order of their starts. A call inside another one of its thread (the
  // driver's inside the runtime's) is part of that one.
  void SortCalls() {
    std::vector<uint32_t> sorted(j_.trace.calls.size());
    for (uint32_t i = 0; i < sorted.size(); ++i) sorted[i] = i;
    const auto earlier = [this](uint32_t a, uint32_t b) {
      const Call& x = j_.trace.calls[a];
      const Call& y = j_.trace.calls[b];
      return std::tie(x.begin_ns, y.end_ns, a) < std::tie(y.begin_ns, x.end_ns, b);
    };
    if (!std::is_sorted(sorted.begin(), sorted.end(), earlier)) {
      std::sort(sorted.begin(), sorted.end(), earlier);
    }
    std::vector<uint32_t> last(j_.trace.threads.size(), kNone);
    j_.outer.assign(j_.trace.calls.size(), kNone);
    j_.calls.reserve(sorted.size());
    for (const uint32_t i : sorted) {
      const Call& call = j_.trace.calls[i];
      if (call.correlation != 0) {
        j_.first_correlation = std::min(j_.first_correlation, call.correlation);
      }
      const uint32_t before = last[call.thread];
      if (before != kNone && call.end_ns <= j_.CallAt(before).end_ns &&
          call.begin_ns < j_.CallAt(before).end_ns) {
        j_.outer[i] = before;
        continue;
      }
      j_.outer[i] = last[call.thread] = static_cast<uint32_t>(j_.calls.size());
      j_.calls.push_back(i);
    }
    if (!j_.calls.empty()) {
      graph_->begin_ns = j_.CallAt(0).begin_ns;
      return;
    }
    for (const Work& work : j_.trace.works) {
      graph_->begin_ns = std::min(graph_->begin_ns, work.start_ns);
    }
  }

  void JoinWorks() {
    const trace::Correlations correlations(j_.trace);
    const auto find = [&](uint64_t correlation) -> uint32_t {
      const uint32_t call = correlations.CallOf(correlation);
      return call == kNone ? kNone : j_.outer[call];
    };

    j_.work_ids.resize(j_.trace.works.size());
    for (uint32_t w = 0; w < j_.work_ids.size(); ++w) j_.work_ids[w] = w;
    std::stable_sort(j_.work_ids.begin(), j_.work_ids.end(), [this](uint32_t a, uint32_t b) {
      return j_.trace.works[a].start_ns < j_.trace.works[b].start_ns;
    });
    j_.works.reserve(j_.work_ids.size());
    for (const uint32_t id : j_.work_ids) j_.works.push_back(j_.trace.works[id]);
    j_.call_of.resize(j_.works.size());
    j_.launches.resize(j_.calls.size());
    for (uint32_t w = 0; w < j_.works.size(); ++w) j_.call_of[w] = find(j_.works[w].correlation);
    AdoptWorks();
    for (const uint32_t position : j_.call_of) {
      if (position != kNone) ++j_.launches[position].count;
    }
    uint32_t first = 0;
    for (Launch& launch : j_.launches) {
      launch.first = first;
      first += std::exchange(launch.count, 0);
    }
    j_.works_of_call.resize(first);
    for (const bool adopted : {false, true}) {  // a launch's own works come first
      for (uint32_t w = 0; w < j_.works.size(); ++w) {
        if (j_.call_of[w] == kNone || j_.adopted[w] != adopted) continue;
        Launch& launch = j_.launches[j_.call_of[w]];
        j_.works_of_call[launch.first + launch.count++] = w;
      }
    }
    j_.wait_of.assign(j_.calls.size(), kNone);
    for (uint32_t i = 0; i < j_.trace.waits.size(); ++i) {
      const uint32_t call = find(j_.trace.waits[i].correlation);
      if (call != kNone) j_.wait_of[call] = i;
    }
    for (const Wait& wait : j_.trace.waits) {
      if (wait.record_correlation == 0 || wait.source == kNone) continue;
      const uint32_t record = find(wait.record_correlation);
      if (record != kNone && j_.CallAt(record).kind == CallKind::kEventRecord) {
        const auto [it, made] = j_.event_of.try_emplace(record, graph_->events);
        if (made) ++graph_->events;
        j_.record_stream[record] = wait.source;
        j_.event_by_correlation[wait.record_correlation] = it->second;
      }
    }
  }

  // Work without a launch was in flight when the trace started, or its launch was lost. Correlation
  // ids ascend with the calls of a process: they say which of both, and after which launch a lost
  // one came. The work then goes with that launch, or, where the ids do not say, with the launch
  // before it in its stream.
  void AdoptWorks() {
    j_.adopted.assign(j_.works.size(), false);
    std::vector<std::pair<uint64_t, uint32_t>> launches;  // correlation, position
    for (uint32_t p = 0; p < j_.calls.size(); ++p) {
      if (IsKernelLaunch(j_.CallAt(p).kind)) launches.emplace_back(j_.CallAt(p).correlation, p);
    }
    std::sort(launches.begin(), launches.end());
    std::vector<uint32_t> last(j_.trace.streams.size(), kNone);
    for (uint32_t w = 0; w < j_.works.size(); ++w) {
      const Work& work = j_.works[w];
      if (j_.call_of[w] != kNone) {
        if (IsKernelLaunch(j_.CallAt(j_.call_of[w]).kind)) last[work.stream] = j_.call_of[w];
        continue;
      }
      const auto behind =
          std::lower_bound(launches.begin(), launches.end(), std::pair(work.correlation, 0u));
      const uint32_t numbered =
          work.correlation == 0 || behind == launches.begin() ? kNone : std::prev(behind)->second;
      const bool possible = numbered != kNone && j_.CallAt(numbered).begin_ns <= work.start_ns;
      j_.call_of[w] = possible ? numbered : last[work.stream];
      j_.adopted[w] = j_.call_of[w] != kNone;
      ++(j_.adopted[w] ? graph_->figures.launches_lost : graph_->figures.works_before);
    }
  }

  // A stream is a lane. Nodes of one graph launch that overlap on a stream are on branches.
  void AssignLanes() {
    std::vector<std::vector<uint32_t>> lanes_of(j_.trace.streams.size());
    const auto lane = [&](uint32_t stream, uint32_t branch) {
      std::vector<uint32_t>& lanes = lanes_of[stream];
      while (lanes.size() <= branch) {
        lanes.push_back(static_cast<uint32_t>(graph_->lanes.size()));
        graph_->lanes.push_back({stream, static_cast<uint32_t>(lanes.size() - 1)});
      }
      return lanes[branch];
    };
    j_.lane_of.resize(j_.works.size());
    j_.before.assign(j_.works.size(), kNone);
    std::vector<uint32_t> last;  // work by lane
    std::vector<int64_t> end_ns;
    for (uint32_t w = 0; w < j_.works.size(); ++w) {
      const Work& work = j_.works[w];
      uint32_t branch = 0;
      const bool node = j_.HasLaunch(w) && j_.launches[j_.call_of[w]].count > 1;
      uint32_t q = lane(work.stream, 0);
      last.resize(graph_->lanes.size(), kNone);
      end_ns.resize(graph_->lanes.size(), kPast);
      while (node && last[q] != kNone && j_.call_of[last[q]] == j_.call_of[w] &&
             end_ns[q] > work.start_ns + kTickNs && branch + 1 < kMostBranches) {
        q = lane(work.stream, ++branch);
        last.resize(graph_->lanes.size(), kNone);
        end_ns.resize(graph_->lanes.size(), kPast);
      }
      j_.lane_of[w] = q;
      j_.before[w] = last[q];
      last[q] = w;
      end_ns[q] = work.end_ns;
    }
    j_.main_lane.assign(j_.trace.streams.size(), kNone);
    for (uint32_t s = 0; s < lanes_of.size(); ++s) {
      if (!lanes_of[s].empty()) j_.main_lane[s] = lanes_of[s][0];
    }
    j_.in_flight.resize(graph_->lanes.size());
    for (uint32_t w = 0; w < j_.works.size(); ++w) {
      if (j_.InFlight(w)) j_.in_flight[j_.lane_of[w]].push_back(w);
    }
    // Works of each lane by the position of their call, for looking up the last one at any call.
    j_.launched.resize(graph_->lanes.size());
    for (uint32_t position = 0; position < j_.calls.size(); ++position) {
      const Launch& launch = j_.launches[position];
      for (uint32_t i = 0; i < launch.count; ++i) {
        const uint32_t w = j_.works_of_call[launch.first + i];
        std::vector<Launched>& list = j_.launched[j_.lane_of[w]];
        if (!list.empty() && list.back().position == position) {
          list.back().last = w;
        } else {
          list.push_back({position, w, w});
        }
      }
    }
  }

  JoinedTrace& j_;
  Graph* graph_;
};

}  // namespace

JoinedTrace Join(const Trace& trace, Graph* graph) {
  JoinedTrace joined(trace);
  Joiner(&joined, graph).Run();
  return joined;
}

uint32_t JoinedTrace::LastBefore(uint32_t lane, uint32_t position) const {
  const std::vector<Launched>& list = launched[lane];
  const auto it = std::partition_point(
      list.begin(), list.end(), [&](const Launched& each) { return each.position < position; });
  return it == list.begin() ? kNone : std::prev(it)->last;
}

uint32_t JoinedTrace::FirstAfter(uint32_t lane, uint32_t position) const {
  const std::vector<Launched>& list = launched[lane];
  const auto it = std::partition_point(
      list.begin(), list.end(), [&](const Launched& each) { return each.position <= position; });
  return it == list.end() ? kNone : it->first;
}

uint32_t JoinedTrace::LastInFlight(uint32_t lane, int64_t until_ns) const {
  const std::vector<uint32_t>& list = in_flight[lane];
  const auto it = std::partition_point(
      list.begin(), list.end(), [&](uint32_t w) { return works[w].end_ns <= until_ns + kTickNs; });
  return it == list.begin() ? kNone : *std::prev(it);
}

bool JoinedTrace::RecordedBefore(uint32_t p) const {
  if (wait_of[p] == kNone) return false;
  const uint64_t record = trace.waits[wait_of[p]].record_correlation;
  return record != 0 && record < first_correlation;
}

uint32_t JoinedTrace::EventOf(uint32_t p) const {
  if (wait_of[p] == kNone) return kNone;
  const auto it = event_by_correlation.find(trace.waits[wait_of[p]].record_correlation);
  return it == event_by_correlation.end() ? kNone : it->second;
}

}  // namespace seqpoint::whatif
