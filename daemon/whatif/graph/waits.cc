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
constexpr size_t kMostWaitQueues = 64;      // pairs of which may explain a wait: the busiest
constexpr size_t kMostWaitTries = 1 << 28;  // in all

class WaitFinder {
 public:
  WaitFinder(const JoinedTrace& joined, const Gaps& gaps, const Graph& graph, Figures* figures)
      : j_(joined), gaps_(gaps), graph_(graph), figures_(figures) {}

  StreamWaits Find() {
    FindWaits();
    return std::move(found_);
  }

 private:
  // Calls with the same neighbours are the same line of the program.
  void FindWaits() {
    found_.wait_queue.assign(j_.calls.size(), kNone);
    found_.wait_source.assign(j_.calls.size(), kNone);
    struct Place {
      uint32_t before = 0, after = 0;  // names
      uint32_t queue_before = kNone, queue_after = kNone;
    };
    std::vector<Place> places(j_.calls.size());
    std::vector<uint32_t> last(j_.trace.threads.size(), kNone),
        queue(j_.trace.threads.size(), kNone);
    for (uint32_t p = 0; p < j_.calls.size(); ++p) {
      const Call& call = j_.CallAt(p);
      places[p].queue_before = queue[call.thread];
      if (last[call.thread] != kNone) {
        places[p].before = j_.CallAt(last[call.thread]).name;
        places[last[call.thread]].after = call.name;
      }
      last[call.thread] = p;
      if (j_.launches[p].count > 0) {
        queue[call.thread] = j_.queue_of[j_.works_of_call[j_.launches[p].first]];
      }
    }
    std::fill(queue.begin(), queue.end(), kNone);
    std::map<std::tuple<uint32_t, uint32_t, uint32_t, uint32_t>, std::vector<uint32_t>> groups;
    for (uint32_t p = static_cast<uint32_t>(j_.calls.size()); p-- > 0;) {
      const Call& call = j_.CallAt(p);
      places[p].queue_after = queue[call.thread];
      if (j_.launches[p].count > 0) {
        queue[call.thread] = j_.queue_of[j_.works_of_call[j_.launches[p].first]];
      }
      if (call.kind != CallKind::kStreamWait) continue;
      if (j_.wait_of[p] != kNone) {
        const Wait& wait = j_.trace.waits[j_.wait_of[p]];
        if (wait.stream != kNone && wait.source != kNone) {
          found_.wait_queue[p] = j_.main_queue[wait.stream];
          found_.wait_source[p] = j_.main_queue[wait.source];
          ++figures_->waits_recorded;
          continue;
        }
      }
      const Place& place = places[p];
      groups[{place.before, place.after, place.queue_before, place.queue_after}].push_back(p);
    }
    for (uint32_t queue = 0; queue < graph_.queues.size(); ++queue) busiest_.push_back(queue);
    if (busiest_.size() > kMostWaitQueues) {
      std::stable_sort(busiest_.begin(), busiest_.end(), [this](uint32_t a, uint32_t b) {
        return j_.launched[a].size() > j_.launched[b].size();
      });
      busiest_.resize(kMostWaitQueues);
    }
    for (const auto& [key, calls] : groups) {
      InferWaits(calls, std::get<2>(key), std::get<3>(key));
    }
    found_.waits_for.resize(j_.works.size());
    for (uint32_t p = 0; p < j_.calls.size(); ++p) {
      if (found_.wait_queue[p] == kNone || found_.wait_source[p] == kNone) continue;
      const uint32_t waiting = j_.FirstAfter(found_.wait_queue[p], p);
      uint32_t source = j_.LastBefore(found_.wait_source[p], p);
      if (source == kNone || j_.RecordedBefore(p)) {
        // What it waits for was in flight: that is one task, whatever the replay has in the queue.
        if (waiting != kNone)
          source = j_.LastInFlight(found_.wait_source[p], j_.works[waiting].start_ns);
        found_.wait_queue[p] = kNone;
      }
      if (waiting != kNone && source != kNone) found_.waits_for[waiting].push_back(source);
    }
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
          const uint32_t waiting = j_.FirstAfter(queue, calls[i]);
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
      const uint32_t waiting = best_queue == kNone ? kNone : j_.FirstAfter(best_queue, p);
      const uint32_t waited = best_queue == kNone ? kNone : j_.LastBefore(best_source, p);
      if (waiting == kNone || waited == kNone ||
          j_.works[waited].end_ns > j_.works[waiting].start_ns + kTickNs) {
        ++figures_->waits_unknown;
        continue;
      }
      found_.wait_queue[p] = best_queue;
      found_.wait_source[p] = best_source;
      ++figures_->waits_inferred;
    }
  }

  const JoinedTrace& j_;
  const Gaps& gaps_;
  const Graph& graph_;
  Figures* figures_;
  StreamWaits found_;
  std::vector<uint32_t> busiest_;  // queues
  size_t wait_tries_ = 0;
};

}  // namespace

StreamWaits FindStreamWaits(const JoinedTrace& joined, const Gaps& gaps, const Graph& graph,
                            Figures* figures) {
  return WaitFinder(joined, gaps, graph, figures).Find();
}

}  // namespace seqpoint::whatif
