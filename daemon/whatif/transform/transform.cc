#include "daemon/whatif/transform/transform.h"

#include <cstddef>
#include <cstdlib>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "daemon/base/status_macros.h"
#include "daemon/whatif/transform/graph_edits.h"
#include "daemon/whatif/transform/lanes.h"
#include "daemon/whatif/transform/steps.h"

namespace seqpoint::whatif {
namespace {

// Many times as many tasks, or iterations: no sensible question asks for more.
constexpr size_t kMostTimesTasks = 4;
constexpr size_t kMoreTasks = 1 << 20;
constexpr double kMostTimesIterations = 1e6;

// The texts that parameters stand for must have been put in.
absl::Status CheckTexts(const Selection& selection) {
  for (const Condition& condition : selection.conditions) {
    if (condition.parameter.empty()) continue;
    return absl::InvalidArgumentError(absl::StrCat("the parameter $", condition.parameter,
                                                   " has no value; give ", condition.parameter,
                                                   "=TEXT"));
  }
  return absl::OkStatus();
}

// The sum of all times bounds every path of the replay: no time of it overflows.
absl::Status CheckTimes(const Graph& graph) {
  double sum_ns = 0;
  for (const CpuTask& task : graph.cpu) {
    sum_ns += static_cast<double>(task.duration_ns) + static_cast<double>(task.tail_ns);
  }
  for (const GpuTask& task : graph.gpu) {
    sum_ns += static_cast<double>(task.duration_ns) + static_cast<double>(task.latency_ns);
  }
  if (sum_ns < kMostNs) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the tasks of a trace would take ",
                                                 sum_ns / 86400e9, " days: is the unit right?"));
}

class Transformer {
 public:
  Transformer(const Parameters& parameters, const Bounds& bounds, Graph* graph)
      : parameters_(parameters),
        selector_(bounds, *graph),
        graph_(*graph),
        most_tasks_(kMostTimesTasks * graph->gpu.size() + kMoreTasks) {}

  absl::StatusOr<Applied> Run(const Request& request) {
    for (size_t i = 0; i < request.steps.size(); ++i) {
      const Step& step = request.steps[i];
      absl::Status status = Do(step);
      if (status.ok()) status = CheckTimes(graph_);
      if (!status.ok()) {
        return absl::InvalidArgumentError(
            absl::StrCat("step ", i + 1, ": ", std::string(status.message())));
      }
    }
    applied_.measured_bounds = selector_.measured();
    applied_.guessed_bounds = selector_.guessed();
    applied_.without_counter = selector_.without_counter();
    return std::move(applied_);
  }

 private:
  absl::Status Do(const Step& step) {
    SEQPOINT_RETURN_IF_ERROR(CheckTexts(step.selection));
    if (step.needed_by) {
      SEQPOINT_RETURN_IF_ERROR(CheckTexts(*step.needed_by));
    }
    SEQPOINT_ASSIGN_OR_RETURN(const StepAmount amount, StepAmount::Make(step, parameters_, graph_));
    if (step.selection.target == Target::kIterations) return ScaleIterations(step, amount);
    const std::vector<uint32_t> selected = selector_.Select(step.selection);
    applied_.tasks.push_back(selected.size());
    const bool gpu = IsGpu(step.selection.target);
    if (!gpu &&
        (step.verb == Verb::kFuse || step.verb == Verb::kReschedule || !step.lane.empty())) {
      return absl::InvalidArgumentError(
          "calls and gaps are no work of the GPU, which fuse, reschedule and into \"LANE\" take");
    }
    switch (step.verb) {
      case Verb::kScale:
      case Verb::kSet:
        for (const uint32_t t : selected) {
          const double now_ns = static_cast<double>(DurationOf(graph_, gpu, t));
          SEQPOINT_ASSIGN_OR_RETURN(const double value, amount.For(gpu, t));
          SetDuration(gpu, t, RoundedNs(step.verb == Verb::kScale ? now_ns * value : value),
                      &graph_);
        }
        break;
      case Verb::kRemove:
        if (gpu) {
          RemoveWork(selected, &graph_);
        } else {
          for (const uint32_t t : selected) RemoveCall(t, &graph_);
        }
        break;
      case Verb::kInsert:
        return Insert(gpu, selected, step, amount);
      case Verb::kFuse:
        Fuse(selected, step, &graph_);
        break;
      case Verb::kCapture:
        if (step.selection.target != Target::kLaunches) {
          return absl::InvalidArgumentError("capture takes launches");
        }
        applied_.captured_ns += Capture(selected, &graph_);
        break;
      case Verb::kReschedule:
        Prefer(selected, step.first, &graph_);
        break;
    }
    return absl::OkStatus();
  }

  absl::Status ScaleIterations(const Step& step, const StepAmount& amount) {
    if (step.verb != Verb::kScale || !step.selection.conditions.empty() || !amount.constant()) {
      return absl::InvalidArgumentError(
          "iterations can only be scaled, all of them, by a number: scale iterations by 1/2");
    }
    applied_.iterations *= *amount.constant();
    if (applied_.iterations * kMostTimesIterations < 1 ||
        applied_.iterations > kMostTimesIterations) {
      return absl::InvalidArgumentError(
          absl::StrCat("a run of ", applied_.iterations,
                       " times its iterations: give a factor from 1e-6 to 1e6"));
    }
    applied_.tasks.push_back(static_cast<uint64_t>(graph_.iterations));
    return absl::OkStatus();
  }

  absl::Status Insert(bool gpu, const std::vector<uint32_t>& selected, const Step& step,
                      const StepAmount& amount) {
    if (step.lane.empty()) {
      return InsertNextTo(gpu, selected, step, amount, most_tasks_, &graph_);
    }
    std::vector<uint32_t> needed_by;
    if (step.needed_by) {
      if (!IsGpu(step.needed_by->target)) {
        return absl::InvalidArgumentError("what is needed is needed by work of the GPU");
      }
      needed_by = selector_.Select(*step.needed_by);
    }
    return InsertIntoLane(selected, needed_by, step, parameters_, amount, most_tasks_, &graph_);
  }

  const Parameters& parameters_;
  Selector selector_;
  Graph& graph_;
  const size_t most_tasks_;
  Applied applied_;
};

}  // namespace

absl::StatusOr<Applied> Apply(const Request& request, const Parameters& parameters,
                              const Bounds& bounds, Graph* graph) {
  return Transformer(parameters, bounds, graph).Run(request);
}

int64_t ChangedNs(const Graph& before, const Graph& after) {
  int64_t sum_ns = 0;
  for (size_t i = 0; i < before.cpu.size(); ++i) {
    sum_ns += std::abs(after.cpu[i].duration_ns - before.cpu[i].duration_ns);
  }
  const auto time_ns = [](const GpuTask& task) { return IsRemoved(task) ? 0 : task.duration_ns; };
  for (size_t i = 0; i < after.gpu.size(); ++i) {
    const int64_t before_ns = i < before.gpu.size() ? time_ns(before.gpu[i]) : 0;
    sum_ns += std::abs(time_ns(after.gpu[i]) - before_ns);
  }
  return sum_ns;
}

}  // namespace seqpoint::whatif
