#include <optional>

#include "absl/strings/str_cat.h"
#include "daemon/base/status_macros.h"
#include "daemon/whatif/language/evaluate.h"
#include "daemon/whatif/transform/graph_edits.h"
#include "daemon/whatif/transform/lanes.h"
#include "daemon/whatif/transform/steps.h"

namespace seqpoint::whatif {
namespace {

absl::Status CheckTasks(const Graph& graph, size_t more, size_t most_tasks) {
  if (graph.gpu.size() + more <= most_tasks) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("with ", more, " tasks inserted the trace would have ", graph.gpu.size() + more,
                   ", more than ", most_tasks, ": insert fewer, larger ones"));
}

// Turns the copy of a task into one of its own.
void MakeOwn(const Step& step, uint32_t name, int64_t duration_ns, GpuTask* task) {
  task->duration_ns = duration_ns;
  task->kind = step.made == Made::kCollective ? WorkKind::kCollective
               : step.made == Made::kCopy     ? WorkKind::kCopyOther
                                              : WorkKind::kKernel;
  task->name = name;
  task->work = task->collective = kNone;
  task->dependency_count = 0;
}

}  // namespace

absl::Status InsertNextTo(bool gpu, const std::vector<uint32_t>& selected, const Step& step,
                          const StepAmount& amount, size_t most_tasks, Graph* graph) {
  std::vector<uint32_t> before;  // the task before each of the same call
  if (gpu) {
    SEQPOINT_RETURN_IF_ERROR(CheckTasks(*graph, selected.size(), most_tasks));
    before.assign(graph->gpu.size(), kNone);
    for (uint32_t g = 0; g < graph->gpu.size(); ++g) {
      if (graph->gpu[g].next != kNone) before[graph->gpu[g].next] = g;
    }
  }
  const uint32_t name = gpu ? NameId(step.name, graph) : 0;
  for (const uint32_t t : selected) {
    SEQPOINT_ASSIGN_OR_RETURN(const double value, amount.For(gpu, t));
    const uint32_t call = gpu ? graph->gpu[t].call : t;
    if (call == kNone) continue;  // it was launched before the trace
    if (!gpu || step.made == Made::kCall) {
      SetDuration(false, call, graph->cpu[call].duration_ns + RoundedNs(value), graph);
      continue;
    }
    GpuTask task = graph->gpu[t];
    MakeOwn(step, name, RoundedNs(value), &task);
    const auto added = static_cast<uint32_t>(graph->gpu.size());
    if (step.before) {
      task.next = t;
      (before[t] == kNone ? graph->cpu[task.call].first_work : graph->gpu[before[t]].next) = added;
    } else {
      graph->gpu[t].next = added;
    }
    graph->gpu.push_back(task);
  }
  return absl::OkStatus();
}

absl::Status InsertIntoLane(const std::vector<uint32_t>& selected,
                            const std::vector<uint32_t>& needed_by, const Step& step,
                            const Parameters& parameters, const StepAmount& amount,
                            size_t most_tasks, Graph* graph) {
  std::optional<double> shared_bytes, transfer_bytes;
  if (step.shared) {
    SEQPOINT_ASSIGN_OR_RETURN(shared_bytes, Evaluate(*step.shared, parameters));
  }
  if (step.transfer) {
    SEQPOINT_ASSIGN_OR_RETURN(transfer_bytes, Evaluate(*step.transfer, parameters));
  }
  SEQPOINT_ASSIGN_OR_RETURN(const std::vector<Transfer> transfers,
                            Transfers(*graph, selected, shared_bytes, transfer_bytes));
  SEQPOINT_RETURN_IF_ERROR(CheckTasks(*graph, transfers.size(), most_tasks));
  const uint32_t name = NameId(step.name, graph);
  LaneInserter inserter(step.lane, step.with, needed_by, step.reversed, graph);
  for (const Transfer& transfer : transfers) {
    SEQPOINT_ASSIGN_OR_RETURN(const double duration_ns,
                              amount.For(/*gpu=*/true, transfer.after, transfer.bytes));
    GpuTask task = graph->gpu[transfer.after];
    MakeOwn(step, name, RoundedNs(duration_ns), &task);
    SEQPOINT_RETURN_IF_ERROR(inserter.Insert(transfer, task));
  }
  inserter.Finish();
  return absl::OkStatus();
}

}  // namespace seqpoint::whatif
