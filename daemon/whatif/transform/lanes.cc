#include "daemon/whatif/transform/lanes.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"

namespace seqpoint::whatif {
namespace {

constexpr double kMostTransfers = 1'000'000;  // of a trace
constexpr double kMostBytes = 1LL << 62;
constexpr size_t kMostDependencies = 1 << 26;

int32_t IterationOf(const Graph& graph, uint32_t t) {
  return graph.cpu[graph.gpu[t].call].iteration;
}
// One more, so that tasks without a duration count.
double Weight(const Graph& graph, uint32_t t) {
  return static_cast<double>(graph.gpu[t].duration_ns) + 1;
}

std::vector<uint32_t> InOrder(const Graph& graph, const std::vector<uint32_t>& tasks) {
  std::vector<bool> is(graph.gpu.size());
  for (const uint32_t t : tasks) is[t] = true;
  std::vector<uint32_t> order = LaunchOrder(graph);
  std::erase_if(order, [&](uint32_t t) { return !is[t]; });
  return order;
}

// Tasks of one iteration, in order of launch.
struct Stretch {
  size_t begin = 0, end = 0;
  double ns = 0;
};
std::vector<Stretch> Iterations(const Graph& graph, const std::vector<uint32_t>& order) {
  std::vector<Stretch> iterations;
  for (size_t i = 0; i < order.size(); ++i) {
    if (i == 0 || IterationOf(graph, order[i]) != IterationOf(graph, order[i - 1])) {
      iterations.push_back({i, i, 0});
    }
    iterations.back().end = i + 1;
    iterations.back().ns += Weight(graph, order[i]);
  }
  return iterations;
}

uint32_t LaneNamed(const std::string& name, Graph* graph) {
  for (uint32_t q = 0; q < graph->lanes.size(); ++q) {
    if (graph->lanes[q].name == name) return q;
  }
  Lane lane;
  lane.stream = static_cast<uint32_t>(graph->streams.size());
  lane.name = name;
  graph->streams.push_back({0, -1 - static_cast<int64_t>(graph->streams.size())});
  graph->lanes.push_back(lane);
  return static_cast<uint32_t>(graph->lanes.size() - 1);
}

}  // namespace

std::vector<uint32_t> LaunchOrder(const Graph& graph) {
  std::vector<uint32_t> order;
  order.reserve(graph.gpu.size());
  for (const CpuTask& call : graph.cpu) {
    for (uint32_t g = call.first_work; g != kNone; g = graph.gpu[g].next) order.push_back(g);
  }
  return order;
}

absl::StatusOr<std::vector<Transfer>> Transfers(const Graph& graph,
                                                const std::vector<uint32_t>& selected,
                                                std::optional<double> bytes,
                                                std::optional<double> transfer_bytes) {
  if (transfer_bytes && !(*transfer_bytes >= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("pieces of ", *transfer_bytes, " bytes: give a size from 1B on"));
  }
  if (bytes && *bytes > kMostBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(*bytes, " bytes to share are more than ", kMostBytes, "; is the unit right?"));
  }
  const std::vector<uint32_t> order = InOrder(graph, selected);
  const std::vector<Stretch> iterations = Iterations(graph, order);
  const auto count = static_cast<double>(iterations.size());
  if (bytes && transfer_bytes && *bytes / *transfer_bytes * count > kMostTransfers) {
    return absl::InvalidArgumentError(
        absl::StrCat("pieces of ", *transfer_bytes, " bytes are ", *bytes / *transfer_bytes,
                     " an iteration, more than ", kMostTransfers, " in all: take larger ones"));
  }
  double mean_ns = 0;
  for (const Stretch& iteration : iterations) {
    mean_ns += iteration.ns / static_cast<double>(iterations.size());
  }
  std::vector<Transfer> transfers;
  for (const Stretch& iteration : iterations) {
    double all = bytes.value_or(0);
    // The tasks before the first iteration are a part of one.
    if (iterations.size() > 1 && IterationOf(graph, order[iteration.begin]) < 0) {
      all *= std::min(1.0, iteration.ns / mean_ns);
    }
    double so_far_ns = 0, sent = 0;
    for (size_t i = iteration.begin; i < iteration.end; ++i) {
      Transfer transfer = {order[i], static_cast<double>(graph.gpu[order[i]].bytes), 0};
      so_far_ns += Weight(graph, order[i]);
      transfer.behind = 1 - so_far_ns / iteration.ns;
      if (!bytes || !transfer_bytes) {
        if (bytes) transfer.bytes = all * Weight(graph, order[i]) / iteration.ns;
        transfers.push_back(transfer);
        continue;
      }
      // A whole transfer is made as soon as it is full, the rest with the last task.
      const double made = all * (1 - transfer.behind);
      while (made - sent >= *transfer_bytes * (1 - 1e-9) ||
             (i + 1 == iteration.end && all - sent > 0.5)) {
        transfer.bytes = std::min(*transfer_bytes, all - sent);
        sent += transfer.bytes;
        transfers.push_back(transfer);
      }
    }
  }
  return transfers;
}

LaneInserter::LaneInserter(const std::string& lane, bool with,
                           const std::vector<uint32_t>& needed_by, bool reversed, Graph* graph)
    : graph_(*graph), with_(with), reversed_(reversed), lane_(LaneNamed(lane, graph)) {
  places_.resize(graph_.gpu.size());
  before_.assign(graph_.gpu.size(), kNone);
  std::vector<uint32_t> last(graph_.lanes.size(), kNone);
  const std::vector<uint32_t> launched = LaunchOrder(graph_);
  for (uint32_t i = 0; i < launched.size(); ++i) {
    places_[launched[i]] = i;
    before_[launched[i]] = std::exchange(last[graph_.gpu[launched[i]].lane], launched[i]);
  }
  const std::vector<uint32_t> order = InOrder(graph_, needed_by);
  for (const Stretch& iteration : Iterations(graph_, order)) {
    double so_far_ns = 0;
    for (size_t i = iteration.begin; i < iteration.end; ++i) {
      so_far_ns += Weight(graph_, order[i]);
      consumers_.push_back({places_[order[i]], order[i], so_far_ns / iteration.ns, iteration.end});
    }
  }
}

absl::Status LaneInserter::Insert(const Transfer& transfer, GpuTask task) {
  if (graph_.dependencies.size() > kMostDependencies) {
    return absl::InvalidArgumentError(absl::StrCat("the tasks would wait for more than ",
                                                   kMostDependencies, " others: insert fewer"));
  }
  task.lane = lane_;
  task.bytes = static_cast<uint64_t>(transfer.bytes);
  task.wait_gap_ns = task.gap_ns = 0;
  if (!with_) {
    AddDependency(transfer.after, &task);
  } else {  // this task waits for whatever that one waits for
    const GpuTask other = graph_.gpu[transfer.after];
    for (uint32_t i = 0; i < other.dependency_count; ++i) {
      AddDependency(uint32_t{graph_.dependencies[other.first_dependency + i]}, &task);
    }
    if (const auto it = needed_.find(transfer.after); it != needed_.end()) {
      for (const uint32_t t : it->second) AddDependency(t, &task);
    }
    if (before_[transfer.after] != kNone) AddDependency(before_[transfer.after], &task);
  }
  // It goes behind those that were inserted after the same task.
  if (transfer.after != last_after_) last_ = last_after_ = transfer.after;
  task.next = graph_.gpu[last_].next;
  const auto added = static_cast<uint32_t>(graph_.gpu.size());
  graph_.gpu[last_].next = added;
  last_ = added;
  graph_.gpu.push_back(task);

  const uint32_t consumer = ConsumerOf(transfer);
  if (consumer == kNone) return absl::OkStatus();
  std::vector<uint32_t>& needed = needed_[consumer];
  if (graph_.gpu[consumer].dependency_count + needed.size() + 1 >= UINT16_MAX) {
    // One is left for `with`.
    return absl::InvalidArgumentError(
        absl::StrCat(UINT16_MAX, " tasks and more are needed by one: make fewer, larger ones"));
  }
  needed.push_back(added);
  return absl::OkStatus();
}

void LaneInserter::Finish() {
  for (const auto& [consumer, needed] : std::exchange(needed_, {})) {
    for (const uint32_t t : needed) AddDependency(t, &graph_.gpu[consumer]);
  }
}

uint32_t LaneInserter::ConsumerOf(const Transfer& transfer) const {
  auto next = std::upper_bound(consumers_.begin(), consumers_.end(), places_[transfer.after],
                               [](uint32_t place, const Consumer& c) { return place < c.place; });
  if (next == consumers_.end()) return kNone;
  if (reversed_) {
    const auto end = consumers_.begin() + static_cast<int64_t>(next->iteration_end);
    next = std::upper_bound(next, std::prev(end), transfer.behind + 1e-9,
                            [](double share, const Consumer& c) { return share < c.until; });
  }
  return next->task;
}

// The dependencies of a task follow each other: another one moves them to the end.
void LaneInserter::AddDependency(uint32_t other, GpuTask* task) {
  std::vector<uint32_t>& all = graph_.dependencies;
  if (task->first_dependency + task->dependency_count != all.size()) {
    const auto first = static_cast<uint32_t>(all.size());
    for (uint32_t i = 0; i < task->dependency_count; ++i) {
      all.push_back(uint32_t{all[task->first_dependency + i]});
    }
    task->first_dependency = first;
  }
  all.push_back(other);
  ++task->dependency_count;
}

void Prefer(const std::vector<uint32_t>& selected, bool first, Graph* graph) {
  std::vector<bool> is(graph->gpu.size());
  for (const uint32_t t : selected) {
    is[t] = true;
    graph->lanes[graph->gpu[t].lane].by_priority = true;
    graph->gpu[t].priority = first ? 0 : kNone;
  }
  if (first) return;
  uint32_t place = 0;
  for (const uint32_t t : LaunchOrder(*graph)) {
    const GpuTask& task = graph->gpu[t];
    ++place;
    for (uint32_t i = 0; i < task.dependency_count; ++i) {
      const uint32_t other = graph->dependencies[task.first_dependency + i];
      if (is[other]) graph->gpu[other].priority = std::min(graph->gpu[other].priority, place);
    }
  }
}

}  // namespace seqpoint::whatif
