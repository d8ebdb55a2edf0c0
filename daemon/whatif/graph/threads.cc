#include "daemon/whatif/graph/threads.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "daemon/trace/correlations.h"
#include "daemon/whatif/graph/labels.h"
#include "daemon/whatif/graph/tolerances.h"

namespace seqpoint::whatif {
namespace {

constexpr int64_t kWaitCallNs = 2 * kMicro;  // a wait for finished work
// A run of this many calls shows that a thread has the others wait. Fewer may be a watchdog's.
constexpr size_t kTurnCalls = 5;

bool HostSide(WorkKind kind) {
  return kind == WorkKind::kCopyH2D || kind == WorkKind::kCopyD2H || kind == WorkKind::kCopyOther;
}

class CpuTaskMaker {
 public:
  CpuTaskMaker(const JoinedTrace& joined, const StreamWaits& waits,
               const std::vector<uint32_t>& task_of, const GraphOptions& options, Graph* graph)
      : j_(joined), waits_(waits), task_of_(task_of), options_(options), graph_(graph) {}

  void Make() {
    FindCrossThreadDependencies();
    FindIntervalsWaitedFor();
    LabelNames names(graph_);
    std::vector<Labels> labels(j_.trace.threads.size(), Labels(&names));
    for (const Span& span : j_.trace.spans) {
      if (span.kind == SpanKind::kAnnotation) labels[span.thread].Add(span);
    }
    for (Labels& of_thread : labels) of_thread.Sort();

    graph_->order.resize(j_.trace.threads.size());
    graph_->thread_begin_ns.assign(j_.trace.threads.size(), 0);
    graph_->cpu.reserve(2 * j_.calls.size());
    graph_->iterations = static_cast<int32_t>(options_.iteration_starts_ns.size());
    std::vector<int64_t> free_ns(j_.trace.threads.size(), kPast);  // end of the thread's last call
    std::vector<uint32_t> cpu_of(j_.calls.size(), kNone);
    int32_t iteration = -1;
    for (uint32_t p = 0; p < j_.calls.size(); ++p) {
      const Call& call = j_.CallAt(p);
      while (iteration + 1 < graph_->iterations &&
             options_.iteration_starts_ns[static_cast<size_t>(iteration + 1)] <= call.begin_ns) {
        ++iteration;
      }
      const uint32_t thread = call.thread;
      std::vector<uint32_t>& order = graph_->order[thread];
      uint32_t after = after_[p];
      int64_t begin_ns = free_ns[thread];
      if (after != kNone) {
        begin_ns = std::max(begin_ns, j_.CallAt(after).end_ns);
        after = cpu_of[after];
      } else if (begin_ns == kPast) {
        graph_->thread_begin_ns[thread] = call.begin_ns - graph_->begin_ns;
      }
      uint32_t label = 0;
      if (free_ns[thread] > call.begin_ns && !order.empty()) {
        // A call that ends after the next one of its thread begins (rounded times) ends there.
        CpuTask& last = graph_->cpu[order.back()];
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
      cpu_of[p] = static_cast<uint32_t>(graph_->cpu.size());
      CpuTask& task = AddCpu(thread, iteration, &order);
      task.after = after;
      task.name = call.name;
      task.call = j_.calls[p];
      task.label = label;
      task.kind = CpuKind::kCall;
      task.duration_ns = call.end_ns - call.begin_ns;
      free_ns[thread] = std::max(free_ns[thread], call.end_ns);
      FillCall(p, &task);
    }
  }

 private:
  using Launch = JoinedTrace::Launch;

  struct Turn {
    uint32_t first = 0, last = 0;  // positions
    uint32_t thread = 0;
    size_t calls = 0;
  };

  // Threads that run by turns depend on each other: the one that stops waits for the other, as the
  // forward thread waits for the backward thread of autograd. The gap in which it waits is no work.
  void FindCrossThreadDependencies() {
    after_.assign(j_.calls.size(), kNone);
    std::vector<Turn> turns;
    for (uint32_t p = 0; p < j_.calls.size(); ++p) {
      const uint32_t thread = j_.CallAt(p).thread;
      if (turns.empty() || turns.back().thread != thread) turns.push_back({p, p, thread, 0});
      turns.back().last = p;
      ++turns.back().calls;
    }
    // Short runs are left out, and do not cut those of others.
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
      if (j_.CallAt(before.last).end_ns > j_.CallAt(turn.first).begin_ns + kTickNs) continue;
      after_[turn.first] = before.last;
      ++graph_->figures.cross_thread_dependencies;
    }
  }

  CpuTask& AddCpu(uint32_t thread, int32_t iteration, std::vector<uint32_t>* order) {
    order->push_back(static_cast<uint32_t>(graph_->cpu.size()));
    CpuTask& task = graph_->cpu.emplace_back();
    task.thread = thread;
    task.iteration = iteration;
    return task;
  }

  // The work that each blocking call waited for.
  void FindIntervalsWaitedFor() {
    waited_lane_.assign(j_.calls.size(), kNone);
    waited_end_ns_.assign(j_.calls.size(), kPast);
    std::vector<uint32_t> last(graph_->lanes.size(), kNone);
    for (uint32_t q = 0; q < last.size(); ++q) {
      if (!j_.in_flight[q].empty()) last[q] = j_.in_flight[q].back();
    }
    for (uint32_t p = 0; p < j_.calls.size(); ++p) {
      const Call& call = j_.CallAt(p);
      for (uint32_t i = 0; i < j_.launches[p].count; ++i) {
        const uint32_t w = j_.works_of_call[j_.launches[p].first + i];
        last[j_.lane_of[w]] = w;
      }
      if (call.kind == CallKind::kContextSync) {
        for (const uint32_t w : last) {
          if (w != kNone) waited_end_ns_[p] = std::max(waited_end_ns_[p], j_.works[w].end_ns);
        }
      } else if (call.kind == CallKind::kStreamSync || call.kind == CallKind::kEventSync) {
        uint32_t stream = kNone;
        if (j_.wait_of[p] != kNone) {
          const Wait& wait = j_.trace.waits[j_.wait_of[p]];
          stream = wait.stream != kNone ? wait.stream : wait.source;
        }
        if (stream != kNone && j_.main_lane[stream] != kNone) {
          const uint32_t w = last[j_.main_lane[stream]];
          // It waited for older work than the replay would have there.
          if (j_.RecordedBefore(p) && w != kNone && j_.works[w].end_ns > call.end_ns + kTickNs)
            continue;
          waited_lane_[p] = j_.main_lane[stream];
          if (w != kNone) waited_end_ns_[p] = j_.works[w].end_ns;
          continue;
        }
        // The lane that finished last before the call returned.
        for (uint32_t q = 0; q < last.size(); ++q) {
          if (last[q] == kNone || j_.works[last[q]].end_ns > call.end_ns + kTickNs) continue;
          if (j_.works[last[q]].end_ns <= waited_end_ns_[p]) continue;
          waited_end_ns_[p] = j_.works[last[q]].end_ns;
          waited_lane_[p] = q;
        }
      }
    }
  }

  void FillCall(uint32_t p, CpuTask* task) {
    const Call& call = j_.CallAt(p);
    const Launch& launch = j_.launches[p];
    uint32_t* link = &task->first_work;
    for (uint32_t i = 0; i < launch.count; ++i) {
      const uint32_t t = task_of_[j_.works_of_call[launch.first + i]];
      *link = t;
      link = &graph_->gpu[t].next;
      graph_->gpu[t].call = static_cast<uint32_t>(graph_->cpu.size() - 1);
      graph_->gpu[t].layer = task->label;
    }
    switch (call.kind) {
      case CallKind::kContextSync:
        task->kind = CpuKind::kWaitAll;
        break;
      case CallKind::kStreamSync:
      case CallKind::kEventSync: {
        if (waited_lane_[p] == kNone) return;
        task->kind = CpuKind::kWaitStream;
        task->lane = waited_lane_[p];
        if (call.kind == CallKind::kEventSync) task->event = j_.EventOf(p);
        if (task->event != kNone) task->kind = CpuKind::kWaitEvent;
        break;
      }
      case CallKind::kEventRecord: {
        const auto it = j_.event_of.find(p);
        if (it == j_.event_of.end()) return;
        task->kind = CpuKind::kRecord;
        task->event = it->second;
        task->lane = j_.main_lane[j_.record_stream.at(p)];
        return;
      }
      case CallKind::kStreamWait: {
        if (waits_.wait_lane[p] == kNone || waits_.wait_source[p] == kNone) return;
        task->kind = CpuKind::kStreamWait;
        task->lane = waits_.wait_lane[p];
        task->source = waits_.wait_source[p];
        task->event = j_.EventOf(p);
        return;
      }
      case CallKind::kCopy: {
        if (launch.count == 0) return;
        const Work& copy = j_.works[j_.works_of_call[launch.first + launch.count - 1]];
        const bool by_name = j_.trace.names[call.name].find("Async") == std::string::npos;
        if (!HostSide(copy.kind) || copy.end_ns > call.end_ns || !(copy.pageable || by_name)) {
          return;
        }
        task->kind = CpuKind::kWaitOwn;
        task->duration_ns = 0;
        task->tail_ns = call.end_ns - copy.end_ns;
        return;
      }
      default:
        if (trace::Launches(call.kind) && launch.count == 0) ++graph_->figures.calls_left_out;
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

  const JoinedTrace& j_;
  const StreamWaits& waits_;
  const std::vector<uint32_t>& task_of_;
  const GraphOptions& options_;
  Graph* graph_;
  std::vector<uint32_t> after_;  // position, of a call
  std::vector<uint32_t> waited_lane_;
  std::vector<int64_t> waited_end_ns_;
};

}  // namespace

void MakeCpuTasks(const JoinedTrace& joined, const StreamWaits& waits,
                  const std::vector<uint32_t>& task_of, const GraphOptions& options, Graph* graph) {
  CpuTaskMaker(joined, waits, task_of, options, graph).Make();
}

}  // namespace seqpoint::whatif
