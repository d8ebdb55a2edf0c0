#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "daemon/base/statistics.h"
#include "daemon/ranks/change_kinds.h"
#include "daemon/whatif/transform/graph_edits.h"

namespace seqpoint::ranks {
namespace {

using whatif::CpuKind;
using whatif::CpuTask;
using whatif::GpuTask;
using whatif::Graph;
using whatif::WorkKind;

// All-reduces of the same ranks, one after the other without a wait between: numbers of
// collectives. Such are gradients; those of activations are waited for one by one.
struct Buckets {
  std::vector<size_t> collectives;
  std::vector<double> ends;  // bytes up to the end of each
  double bytes() const { return ends.back(); }
};

// The longest run of buckets of each set of ranks.
std::map<std::vector<size_t>, Buckets> FindBuckets(const RankRecording& recorded,
                                                   const std::vector<Graph>& graphs) {
  std::map<std::vector<size_t>, std::vector<size_t>> all;
  for (size_t c = 0; c < recorded.collectives.size(); ++c) {
    const JoinedCollective& collective = recorded.collectives[c];
    if (collective.function == "AllReduce" && collective.bytes > 0) {
      all[collective.ranks].push_back(c);
    }
  }
  std::map<std::vector<size_t>, Buckets> longest;
  for (const auto& [ranks, collectives] : all) {
    const Graph& graph = graphs[ranks[0]];
    const std::vector<uint32_t> tasks = TasksOf(recorded, graph, /*turn=*/0);
    Buckets run, best;
    for (size_t i = 0; i < collectives.size(); ++i) {
      const size_t c = collectives[i];
      if (i > 0 && IsWaitedFor(graph, tasks[collectives[i - 1]], tasks[c])) run = {};
      run.collectives.push_back(c);
      run.ends.push_back((run.ends.empty() ? 0 : run.bytes()) +
                         static_cast<double>(recorded.collectives[c].bytes));
      if (best.ends.empty() || run.bytes() > best.bytes()) best = run;
    }
    // Of one bucket nothing tells when its gradients came.
    if (best.collectives.size() > 1) longest[ranks] = std::move(best);
  }
  return longest;
}

// Cuts the gradients of one rank and turn into buckets anew.
class Rebucketer {
 public:
  Rebucketer(const Buckets& buckets, const std::vector<double>& new_ends, Graph* graph)
      : buckets_(buckets), new_ends_(new_ends), graph_(*graph) {}

  // `old`: the GPU tasks of the buckets. `first_number`: of the new collectives. False: nothing was
  // launched between them.
  bool Run(const std::vector<uint32_t>& old, const TransferLaw& law, uint32_t first_number) {
    if (!FindKernels(old)) return false;
    TakeHostTime(old);
    std::map<uint32_t, std::vector<uint32_t>> behind;  // CPU tasks, by that before them
    double begin = 0;
    for (size_t i = 0; i < new_ends_.size(); ++i) {
      const uint32_t kernel = KernelAt(new_ends_[i]);
      const uint32_t model = old[std::min(i, old.size() - 1)];
      const uint32_t call =
          Add(model, kernel, new_ends_[i] - begin, law, first_number + static_cast<uint32_t>(i));
      std::vector<uint32_t>& then = behind[graph_.gpu[kernel].call];
      then.insert(then.end(), {AddGap(call), call});
      begin = new_ends_[i];
    }
    std::vector<uint32_t>& order = graph_.order[graph_.cpu[graph_.gpu[old[0]].call].thread];
    std::vector<uint32_t> with;
    for (const uint32_t t : order) {
      with.push_back(t);
      if (const auto it = behind.find(t); it != behind.end()) {
        with.insert(with.end(), it->second.begin(), it->second.end());
      }
    }
    order = std::move(with);
    whatif::RemoveWork(old, &graph_);
    return true;
  }

 private:
  // The kernels that the thread launched before each bucket.
  bool FindKernels(const std::vector<uint32_t>& old) {
    const uint32_t first = graph_.gpu[old[0]].call;
    std::map<uint32_t, size_t> bucket_of_call;
    for (size_t i = 0; i < old.size(); ++i) bucket_of_call[graph_.gpu[old[i]].call] = i;
    until_.assign(old.size(), 0);
    for (const uint32_t t : graph_.order[graph_.cpu[first].thread]) {
      if (graph_.cpu[t].iteration != graph_.cpu[first].iteration) continue;
      if (const auto it = bucket_of_call.find(t); it != bucket_of_call.end()) {
        until_[it->second] = kernels_.size();
      }
      for (uint32_t g = graph_.cpu[t].first_work; g != whatif::kNone; g = graph_.gpu[g].next) {
        if (graph_.gpu[g].kind == WorkKind::kKernel) kernels_.push_back(g);
      }
    }
    return until_[0] > 0 && until_[1] > until_[0] && std::is_sorted(until_.begin(), until_.end());
  }

  double TimeOf(size_t from, size_t to) const {
    double sum = 0;
    for (size_t k = from; k < to; ++k) {
      sum += static_cast<double>(graph_.gpu[kernels_[k]].duration_ns);
    }
    return sum;
  }

  // The kernel that makes the byte before `at`. Between two buckets the gradients come in
  // proportion to the kernels' time; those of the first one as fast as those of the second.
  uint32_t KernelAt(double at) const {
    size_t i = 0;
    while (i + 1 < buckets_.ends.size() && buckets_.ends[i] < at) ++i;
    const double before = i == 0 ? 0 : buckets_.ends[i - 1];
    const double share = (at - before) / (buckets_.ends[i] - before);
    if (share >= 1 || until_[i] == 0) return kernels_[until_[i] - 1];
    double time_ns = i == 0 ? TimeOf(until_[0], until_[1]) * buckets_.ends[0] /
                                  (buckets_.ends[1] - buckets_.ends[0])
                            : TimeOf(until_[i - 1], until_[i]);
    // Back from the end of the bucket.
    double left_ns = time_ns * (1 - share);
    size_t k = until_[i] - 1;
    while (k > 0 && left_ns >= static_cast<double>(graph_.gpu[kernels_[k]].duration_ns)) {
      left_ns -= static_cast<double>(graph_.gpu[kernels_[k]].duration_ns);
      --k;
    }
    return kernels_[k];
  }

  // What the host does for a bucket before it launches it: it records an event, lets the stream of
  // the collective wait for it, and is in the framework. Old buckets give it back.
  void TakeHostTime(const std::vector<uint32_t>& old) {
    std::vector<std::vector<uint32_t>> before;
    std::vector<int64_t> times_ns;
    for (const uint32_t g : old) {
      const std::vector<uint32_t>& order = graph_.order[graph_.cpu[graph_.gpu[g].call].thread];
      auto at = std::find(order.begin(), order.end(), graph_.gpu[g].call);
      std::vector<uint32_t>& tasks = before.emplace_back();
      int64_t& time_ns = times_ns.emplace_back(0);
      while (at != order.begin() && graph_.cpu[*--at].first_work == whatif::kNone) {
        tasks.push_back(*at);
        time_ns += graph_.cpu[*at].duration_ns;
      }
    }
    host_ns_ = Median(times_ns);
    for (const std::vector<uint32_t>& tasks : before) {
      int64_t left_ns = host_ns_;
      for (const uint32_t t : tasks) {
        const int64_t taken_ns = std::min(graph_.cpu[t].duration_ns, left_ns);
        graph_.cpu[t].duration_ns -= taken_ns;
        left_ns -= taken_ns;
      }
    }
  }
  uint32_t AddGap(uint32_t call) {
    CpuTask gap;
    gap.duration_ns = host_ns_;
    gap.thread = graph_.cpu[call].thread;
    gap.iteration = graph_.cpu[call].iteration;
    graph_.cpu.push_back(gap);
    return static_cast<uint32_t>(graph_.cpu.size() - 1);
  }

  // Answers the CPU task that launches it.
  uint32_t Add(uint32_t model, uint32_t kernel, double bytes, const TransferLaw& law,
               uint32_t number) {
    const auto g = static_cast<uint32_t>(graph_.gpu.size());
    const auto call = static_cast<uint32_t>(graph_.cpu.size());
    CpuTask launch = graph_.cpu[graph_.gpu[model].call];
    launch.call = launch.after = whatif::kNone;
    launch.first_work = g;
    graph_.cpu.push_back(launch);
    GpuTask task = graph_.gpu[model];
    task.duration_ns = std::llround(law.At(bytes));
    task.bytes = static_cast<uint64_t>(bytes);
    task.call = call;
    task.next = task.work = whatif::kNone;
    task.collective = number;
    task.first_dependency = static_cast<uint32_t>(graph_.dependencies.size());
    task.dependency_count = 1;
    graph_.dependencies.push_back(kernel);
    graph_.gpu.push_back(task);
    return call;
  }

  const Buckets& buckets_;
  const std::vector<double>& new_ends_;
  Graph& graph_;
  std::vector<uint32_t> kernels_;  // GPU tasks in the order of their launches
  std::vector<size_t> until_;      // by bucket: so many were launched before it
  int64_t host_ns_ = 0;            // of a bucket, before its launch
};

}  // namespace

std::vector<uint32_t> TasksOf(const RankRecording& recorded, const Graph& graph, uint32_t turn) {
  std::vector<uint32_t> tasks(recorded.collectives.size(), whatif::kNone);
  for (uint32_t g = 0; g < graph.gpu.size(); ++g) {
    const uint32_t number = graph.gpu[g].collective;
    if (number == whatif::kNone || number / recorded.collectives.size() != turn) continue;
    tasks[recorded.CollectiveOf(number)] = g;
  }
  return tasks;
}

bool IsWaitedFor(const Graph& graph, uint32_t g, uint32_t next) {
  const uint32_t lane = graph.gpu[g].lane;
  const uint32_t first = graph.gpu[g].call, last = graph.gpu[next].call;
  std::map<uint32_t, uint32_t> lane_of_event;
  for (uint32_t t = first; t < last; ++t) {
    const CpuTask& task = graph.cpu[t];
    if (task.kind == CpuKind::kRecord) lane_of_event[task.event] = task.lane;
    if (task.kind != CpuKind::kStreamWait || task.lane == lane) continue;
    const auto it = lane_of_event.find(task.event);
    if (task.source == lane || (it != lane_of_event.end() && it->second == lane)) return true;
  }
  return false;
}

absl::StatusOr<RankEffect> SetBucketSize(double bytes, const RankRecording& recorded,
                                         const TransferLaws& laws, std::vector<Graph>* graphs) {
  const std::map<std::vector<size_t>, Buckets> all = FindBuckets(recorded, *graphs);
  if (all.empty()) {
    return absl::FailedPreconditionError(
        "the windows have no two all-reduces of known bytes that nothing waits for in between, as "
        "those of gradients are; NCCL 2.26 or later tells the bytes");
  }
  RankEffect effect;
  uint32_t number = static_cast<uint32_t>(recorded.collectives.size()) *
                    static_cast<uint32_t>(graphs->front().iterations);
  for (const auto& [ranks, buckets] : all) {
    const std::optional<TransferLaw> law = laws.Of("AllReduce", ranks.size());
    if (!law) {
      return absl::FailedPreconditionError(absl::StrCat(
          "all-reduces among ", ranks.size(),
          " ranks all have the same size, so nothing says how long others would take"));
    }
    std::vector<double> new_ends;
    const double pieces = std::ceil(buckets.bytes() / bytes - 1e-6);
    for (double i = 1; i < pieces; ++i) new_ends.push_back(i * bytes);
    new_ends.push_back(buckets.bytes());
    const int32_t turns = graphs->front().iterations;
    for (int32_t turn = 0; turn < turns; ++turn) {
      for (const size_t r : ranks) {
        Graph& graph = (*graphs)[r];
        const std::vector<uint32_t> tasks = TasksOf(recorded, graph, static_cast<uint32_t>(turn));
        std::vector<uint32_t> old;
        for (const size_t c : buckets.collectives) old.push_back(tasks[c]);
        if (!Rebucketer(buckets, new_ends, &graph).Run(old, *law, number)) {
          return absl::FailedPreconditionError(
              "kernels and all-reduces are not launched by the same thread");
        }
        effect.tasks += old.size() + new_ends.size();
      }
      number += static_cast<uint32_t>(new_ends.size());
    }
    effect.assumptions.push_back(absl::StrFormat(
        "%.4g MB of gradients in %d all-reduces in place of %d; one takes %.3g us and %.3g us more "
        "for each MB, fitted from %.3g to %.3g MB (%.1f %% off)",
        buckets.bytes() / 1e6, new_ends.size(), buckets.collectives.size(), law->fixed_ns / 1e3,
        law->ns_per_byte * 1e3, static_cast<double>(law->least_bytes) / 1e6,
        static_cast<double>(law->most_bytes) / 1e6, 100 * law->error));
  }
  effect.assumptions.push_back(
      "between two buckets gradients come in proportion to kernels' time; a large tensor comes in "
      "one piece, which the windows do not show");
  return effect;
}

}  // namespace seqpoint::ranks
