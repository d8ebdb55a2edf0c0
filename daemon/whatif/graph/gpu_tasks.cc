#include "daemon/whatif/graph/gpu_tasks.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

#include "daemon/whatif/graph/tolerances.h"

namespace seqpoint::whatif {
namespace {

// The nodes of one graph launch in order of their starts. Each follows the one that ended last
// before it, on any branch.
class EndedNodes {
 public:
  explicit EndedNodes(const JoinedTrace& joined) : j_(joined) {}
  // kNone: none on another branch than `w`.
  uint32_t LastBefore(uint32_t w) {
    const int64_t start_ns = j_.works[w].start_ns;
    while (!running_.empty() && running_.top().first <= start_ns + kTickNs) {
      Take(running_.top().second);
      running_.pop();
    }
    return last_ != kNone && Lane(last_) == Lane(w) ? last_of_others_ : last_;
  }
  void Add(uint32_t w) { running_.emplace(EndNs(w), w); }

 private:
  int64_t EndNs(uint32_t w) const { return j_.works[w].end_ns; }
  uint32_t Lane(uint32_t w) const { return j_.lane_of[w]; }
  bool Later(uint32_t w, uint32_t than) const { return than == kNone || EndNs(w) > EndNs(than); }
  void Take(uint32_t w) {
    if (Later(w, last_)) {
      if (last_ != kNone && Lane(last_) != Lane(w)) last_of_others_ = last_;
      last_ = w;
    } else if (Lane(w) != Lane(last_) && Later(w, last_of_others_)) {
      last_of_others_ = w;
    }
  }
  const JoinedTrace& j_;
  using Node = std::pair<int64_t, uint32_t>;  // end, work
  std::priority_queue<Node, std::vector<Node>, std::greater<>> running_;
  uint32_t last_ = kNone;
  uint32_t last_of_others_ = kNone;  // on another branch than last_
};

class GpuTaskMaker {
 public:
  GpuTaskMaker(const JoinedTrace& joined, const Gaps& gaps, const LateStarts& late, Graph* graph)
      : j_(joined), gaps_(gaps), late_(late), graph_(graph) {}

  // Works become tasks in the order of their calls, which is that of their lanes.
  // The GPU task of each work.
  std::vector<uint32_t> Make() {
    graph_->gpu.reserve(j_.works.size());
    task_of_.assign(j_.works.size(), kNone);
    const auto add = [this](uint32_t w) -> GpuTask& {
      const Work& work = j_.works[w];
      task_of_[w] = static_cast<uint32_t>(graph_->gpu.size());
      GpuTask& task = graph_->gpu.emplace_back();
      task.duration_ns = work.end_ns - work.start_ns;
      task.gap_ns = gaps_.GapOf(w);
      task.wait_gap_ns = gaps_.WaitGapOf(w);
      if (late_.IsLate(w)) KeepLate(w, &task);
      task.bytes = work.bytes;
      task.name = work.name;
      task.lane = j_.lane_of[w];
      task.kind = work.kind;
      task.work = j_.work_ids[w];
      return task;
    };
    for (uint32_t w = 0; w < j_.works.size(); ++w) {
      if (j_.call_of[w] != kNone) continue;
      GpuTask& task = add(w);
      task.before = true;
      // Nothing else is known of the first of a lane; the others come after it.
      task.latency_ns = j_.works[w].start_ns - graph_->begin_ns;
      if (j_.before[w] != kNone) task.latency_ns = std::min<int64_t>(task.latency_ns, 0);
      AddFixed(w, &task);
    }
    for (uint32_t p = 0; p < j_.calls.size(); ++p) {
      const Launch& launch = j_.launches[p];
      EndedNodes ended(j_);
      for (uint32_t i = 0; i < launch.count; ++i) {
        const uint32_t w = j_.works_of_call[launch.first + i];
        GpuTask& task = add(w);
        const int64_t own_ns = j_.works[w].start_ns - j_.CallAt(p).begin_ns;
        task.latency_ns =
            late_.LaunchBound(w) ? own_ns : std::min(own_ns, gaps_.usual_latency_ns());
        if (j_.adopted[w]) {
          task.latency_ns =
              j_.before[w] == kNone ? own_ns : std::min(own_ns, gaps_.usual_latency_ns());
        } else if (j_.IsLaterNode(w)) {
          task.latency_ns = std::min(own_ns, gaps_.usual_latency_ns());
          if (const uint32_t node = ended.LastBefore(w); node != kNone) AddDependency(node, &task);
        }
        if (launch.count > 1 && !j_.adopted[w]) ended.Add(w);
        AddFixed(w, &task);
      }
    }
    return std::move(task_of_);
  }

 private:
  using Launch = JoinedTrace::Launch;

  // Adds the dependencies that the replay does not find: the work that it shares the GPU with, and
  // the works in flight that it waits for.
  void AddFixed(uint32_t w, GpuTask* task) {
    if (late_.SharedWith(w) != kNone && task_of_[late_.SharedWith(w)] != kNone)
      AddDependency(late_.SharedWith(w), task);
    for (const uint32_t other : gaps_.WaitsFor(w)) {
      if (j_.InFlight(other)) AddDependency(other, task);
    }
  }
  // A start that nothing explains stays as long after the work before it as it was.
  void KeepLate(uint32_t w, GpuTask* task) const {
    const int64_t start_ns = j_.works[w].start_ns;
    const uint32_t before = j_.before[w], wait = gaps_.LastWait(w);
    const int64_t free_ns = before == kNone ? kPast : j_.works[before].end_ns + task->gap_ns;
    if (wait != kNone && j_.works[wait].end_ns + task->wait_gap_ns > free_ns) {
      task->wait_gap_ns = start_ns - j_.works[wait].end_ns;
    } else {
      task->gap_ns = start_ns - j_.works[before].end_ns;
    }
  }

  // The dependencies of a task are added one after the other.
  void AddDependency(uint32_t w, GpuTask* task) {
    if (task->dependency_count++ == 0) {
      task->first_dependency = static_cast<uint32_t>(graph_->dependencies.size());
    }
    graph_->dependencies.push_back(task_of_[w]);
  }

  const JoinedTrace& j_;
  const Gaps& gaps_;
  const LateStarts& late_;
  Graph* graph_;
  std::vector<uint32_t> task_of_;
};

}  // namespace

std::vector<uint32_t> MakeGpuTasks(const JoinedTrace& joined, const Gaps& gaps,
                                   const LateStarts& late, Graph* graph) {
  return GpuTaskMaker(joined, gaps, late, graph).Make();
}

}  // namespace seqpoint::whatif
