#include "daemon/jobs/measurement_plan.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "daemon/jobs/kernel_statistics.h"
#include "injection/abi/control.h"

namespace seqpoint::jobs {
namespace {

// SeqPoints whose operators are recorded. Each recording slows two iterations down, and a plan for
// a run needs the shape of the distribution, not every length.
constexpr size_t kMostOperatorLengths = 8;

bool SamePlan(const std::vector<PlanEntry>& a, const std::vector<PlanEntry>& b) {
  return std::equal(
      a.begin(), a.end(), b.begin(), b.end(), [](const PlanEntry& x, const PlanEntry& y) {
        return x.low == y.low && x.high == y.high && x.set == y.set && x.quota == y.quota;
      });
}

// A process that has ended finishes none.
std::vector<StartedMeasurement> StartedBy(const ProcessTable& processes) {
  std::vector<StartedMeasurement> all;
  for (const auto& [id, process] : processes) {
    if (!process->alive()) continue;
    for (const auto& [number, started] : process->state.measurements().started()) {
      all.push_back({started.set(), {started.first(), started.second()}});
    }
  }
  return all;
}

// The SeqPoints with the largest weights. A recording is of one length exactly.
std::vector<Key> OperatorLengths(std::vector<SeqPointInfo> points) {
  const size_t count = std::min(points.size(), kMostOperatorLengths);
  std::partial_sort(
      points.begin(), points.begin() + static_cast<ptrdiff_t>(count), points.end(),
      [](const SeqPointInfo& a, const SeqPointInfo& b) { return a.weight > b.weight; });
  std::vector<Key> lengths;
  for (size_t i = 0; i < count; ++i) lengths.push_back(points[i].key);
  std::sort(lengths.begin(), lengths.end());
  return lengths;
}

}  // namespace

int64_t RooflineBudget(const MetricCollection& metrics) {
  return static_cast<int64_t>(RooflineMeasurements::kMaxLengths *
                              metrics.choice().roofline().configs.size());
}

PlanOptions MakePlanOptions(const MetricCollection& metrics, int budget) {
  PlanOptions plan{.budget = budget};
  plan.sets = metrics.Configs();
  plan.sets.push_back(kKernelTimeSet);
  plan.max_entries = abi::kMaxPlanEntries;
  return plan;
}

bool MeasurementPlan::Update(const Inputs& inputs) {
  std::vector<PlanEntry> entries;
  std::vector<Key> operator_lengths;
  const OrdersState& orders = inputs.orders;
  const int64_t all_started = StartedMeasurements(inputs.processes);
  const bool idle = orders.paused() || orders.released() ||
                    orders.forced_level() == v1::LEVEL_MARK || !inputs.has_rule;
  if (!idle) {
    const OnlineEngine& engine = inputs.work.current();
    PlanOptions options = MakePlanOptions(inputs.metrics, inputs.measurement_budget);
    // A measurement that failed counts, too: the cap limits the disturbed iterations.
    int started = static_cast<int>(all_started) - inputs.measurement_budget * inputs.work.closed();
    started -= std::min(started, inputs.roofline.attempts());
    options.in_flight = std::max(0, started - engine.MakePlan(options).measured);
    options.started = StartedBy(inputs.processes);
    options.iterations_per_draw = std::max(1, inputs.ranks_alike);
    // The user asked for the roofline by name: it comes first, once the price of a stop is known.
    const std::vector<uint32_t> kernel_configs = inputs.metrics.KernelConfigs();
    if (!kernel_configs.empty() && inputs.measured) {
      entries = inputs.roofline.Plan(kernel_configs, engine.SeqPoints(options));
    }
    const std::vector<PlanEntry> planned = engine.MakePlan(options).entries;
    entries.insert(entries.end(), planned.begin(), planned.end());
    if (entries.size() > abi::kMaxPlanEntries) entries.resize(abi::kMaxPlanEntries);
    if (!orders.operators_folder().empty()) {
      operator_lengths = OperatorLengths(engine.SeqPoints(options));
    }
  }
  waits_.clear();
  if (inputs.affordable <= 0 && !entries.empty()) {
    entries.clear();
    waits_ = absl::StrFormat(
        "measurements wait: they took %.1f ms so far, and the overhead budget is %.3g %% of the "
        "run's time (seqpoint control JOB budget SHARE)",
        static_cast<double>(StoppedNs(inputs.processes)) / 1e6,
        100 * orders.overhead_budget_share());
  }
  const int64_t total = inputs.affordable + all_started;
  const bool same_total = total == std::exchange(affordable_total_, total);
  if (same_total && SamePlan(entries, entries_) && operator_lengths == operator_lengths_) {
    return false;
  }
  entries_ = std::move(entries);
  operator_lengths_ = std::move(operator_lengths);
  return true;
}

}  // namespace seqpoint::jobs
