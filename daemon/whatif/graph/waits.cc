#include "daemon/whatif/graph/waits.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

#include "daemon/whatif/graph/tolerances.h"

namespace seqpoint::whatif {
namespace {

constexpr size_t kWaitSample = 256;
// Real traces are far below these limits. The graph of a hostile trace beyond them would take
// minutes.
constexpr size_t kMostWaitLanes = 64;       // pairs of the busiest may explain a wait
constexpr size_t kMostWaitTries = 1 << 28;  // in all

class WaitFinder {
 public:
  WaitFinder(const JoinedTrace& joined, const Gaps& gaps, const Graph& graph, Figures* figures)
      : j_(joined), gaps_(gaps), graph_(graph), figures_(figures) {}

  // Calls with the same neighbours are the same line of the program.
  StreamWaits Find() {
    found_.wait_lane.assign(j_.calls.size(), kNone);
    found_.wait_source.assign(j_.calls.size(), kNone);
    struct Place {
      uint32_t before = 0, after = 0;  // names
      uint32_t lane_before = kNone, lane_after = kNone;
    };
    std::vector<Place> places(j_.calls.size());
    std::vector<uint32_t> last(j_.trace.threads.size(), kNone),
        lane(j_.trace.threads.size(), kNone);
    for (uint32_t p = 0; p < j_.calls.size(); ++p) {
      const Call& call = j_.CallAt(p);
      places[p].lane_before = lane[call.thread];
      if (last[call.thread] != kNone) {
        places[p].before = j_.CallAt(last[call.thread]).name;
        places[last[call.thread]].after = call.name;
      }
      last[call.thread] = p;
      if (j_.launches[p].count > 0) {
        lane[call.thread] = j_.lane_of[j_.works_of_call[j_.launches[p].first]];
      }
    }
    std::fill(lane.begin(), lane.end(), kNone);
    std::map<std::tuple<uint32_t, uint32_t, uint32_t, uint32_t>, std::vector<uint32_t>> groups;
    for (uint32_t p = static_cast<uint32_t>(j_.calls.size()); p-- > 0;) {
      const Call& call = j_.CallAt(p);
      places[p].lane_after = lane[call.thread];
      if (j_.launches[p].count > 0) {
        lane[call.thread] = j_.lane_of[j_.works_of_call[j_.launches[p].first]];
      }
      if (call.kind != CallKind::kStreamWait) continue;
      if (j_.wait_of[p] != kNone) {
        const Wait& wait = j_.trace.waits[j_.wait_of[p]];
        if (wait.stream != kNone && wait.source != kNone) {
          found_.wait_lane[p] = j_.main_lane[wait.stream];
          found_.wait_source[p] = j_.main_lane[wait.source];
          ++figures_->waits_recorded;
          continue;
        }
      }
      const Place& place = places[p];
      groups[{place.before, place.after, place.lane_before, place.lane_after}].push_back(p);
    }
    for (uint32_t lane = 0; lane < graph_.lanes.size(); ++lane) busiest_.push_back(lane);
    if (busiest_.size() > kMostWaitLanes) {
      std::stable_sort(busiest_.begin(), busiest_.end(), [this](uint32_t a, uint32_t b) {
        return j_.launched[a].size() > j_.launched[b].size();
      });
      busiest_.resize(kMostWaitLanes);
    }
    for (const auto& [key, calls] : groups) {
      InferWaits(calls, std::get<2>(key), std::get<3>(key));
    }
    found_.waits_for.resize(j_.works.size());
    for (uint32_t p = 0; p < j_.calls.size(); ++p) {
      if (found_.wait_lane[p] == kNone || found_.wait_source[p] == kNone) continue;
      const uint32_t waiting = j_.FirstAfter(found_.wait_lane[p], p);
      uint32_t source = j_.LastBefore(found_.wait_source[p], p);
      if (source == kNone || j_.RecordedBefore(p)) {
        // It waits for work in flight. That is one task, whatever the replay has in the lane.
        if (waiting != kNone)
          source = j_.LastInFlight(found_.wait_source[p], j_.works[waiting].start_ns);
        found_.wait_lane[p] = kNone;
      }
      if (waiting != kNone && source != kNone) found_.waits_for[waiting].push_back(source);
    }
    return std::move(found_);
  }

 private:
  void InferWaits(const std::vector<uint32_t>& calls, uint32_t before, uint32_t after) {
    uint32_t best_lane = kNone, best_source = kNone;
    std::tuple<int64_t, int> best(std::numeric_limits<int64_t>::min(), 0);
    const size_t step = std::max<size_t>(1, calls.size() / kWaitSample);
    std::vector<uint32_t> lanes = busiest_;
    for (const uint32_t lane : {before, after}) {
      const bool known = std::find(lanes.begin(), lanes.end(), lane) != lanes.end();
      if (lane != kNone && !known) lanes.push_back(lane);
    }
    wait_tries_ += lanes.size() * lanes.size() * (calls.size() / step);
    if (wait_tries_ > kMostWaitTries) lanes.clear();
    for (const uint32_t lane : lanes) {
      for (const uint32_t source : lanes) {
        if (lane == source) continue;
        int64_t tried = 0, supported = 0, contradicted = 0;
        for (size_t i = 0; i < calls.size(); i += step) {
          const uint32_t waiting = j_.FirstAfter(lane, calls[i]);
          const uint32_t waited = j_.LastBefore(source, calls[i]);
          if (waiting == kNone || waited == kNone) continue;
          ++tried;
          const int64_t start_ns = j_.works[waiting].start_ns, end_ns = j_.works[waited].end_ns;
          const int64_t ready_ns = gaps_.ReadyNs(waiting);
          if (end_ns > start_ns + kTickNs) {
            ++contradicted;
          } else if (end_ns > ready_ns - kTickNs && start_ns - end_ns < kSoonNs &&
                     start_ns - ready_ns > kLateNs) {
            ++supported;
          }
        }
        const int alike = (lane == after ? 1 : 0) + (source == before ? 1 : 0);
        if (tried == 0 || contradicted * 50 > tried || (supported == 0 && alike < 2)) continue;
        const std::tuple<int64_t, int> score(supported - 5 * contradicted, alike);
        if (score <= best) continue;
        best = score;
        best_lane = lane;
        best_source = source;
      }
    }
    for (const uint32_t p : calls) {
      const uint32_t waiting = best_lane == kNone ? kNone : j_.FirstAfter(best_lane, p);
      const uint32_t waited = best_lane == kNone ? kNone : j_.LastBefore(best_source, p);
      if (waiting == kNone || waited == kNone ||
          j_.works[waited].end_ns > j_.works[waiting].start_ns + kTickNs) {
        ++figures_->waits_unknown;
        continue;
      }
      found_.wait_lane[p] = best_lane;
      found_.wait_source[p] = best_source;
      ++figures_->waits_inferred;
    }
  }

  const JoinedTrace& j_;
  const Gaps& gaps_;
  const Graph& graph_;
  Figures* figures_;
  StreamWaits found_;
  std::vector<uint32_t> busiest_;  // lanes
  size_t wait_tries_ = 0;
};

}  // namespace

StreamWaits FindStreamWaits(const JoinedTrace& joined, const Gaps& gaps, const Graph& graph,
                            Figures* figures) {
  return WaitFinder(joined, gaps, graph, figures).Find();
}

}  // namespace seqpoint::whatif
