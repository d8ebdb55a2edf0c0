// What a job measures: the plan, shared out between its processes, and what clients change in it.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "daemon/base/saturate.h"
#include "daemon/jobs/hello.h"
#include "daemon/jobs/job.h"
#include "daemon/jobs/process.h"

namespace seqpoint::jobs {
namespace {

constexpr int64_t kUnpricedMeasurements = 2;  // before the first has told its price
constexpr int64_t kSumTolerance = 32;         // 1/32 of a length
// SeqPoints whose operators are recorded. Each slows two iterations down, and a plan for a run
// needs the shape of its distribution, not its every length.
constexpr size_t kMostOperatorLengths = 8;

// Sums over micro-steps hardly ever come twice, and a window must open before they are known: what
// is near the wanted length is as good, as the iteration counts with its own.
void Widen(abi::PlanEntry& entry) {
  entry.low[0] -= entry.low[0] / kSumTolerance;
  entry.high[0] += entry.high[0] / kSumTolerance;
  entry.low[1] = std::numeric_limits<int64_t>::min();
  entry.high[1] = std::numeric_limits<int64_t>::max();
}

// Measurements are shared between the ranks: of one length each configuration goes to another rank,
// and the measurements of one configuration go round. How many are rank `place`'s, of `ranks`.
int ShareOf(const PlanEntry& entry, uint64_t place, uint64_t ranks) {
  // Lengths are multiples of something: mixed, they are spread over all ranks.
  const uint64_t length =
      static_cast<uint64_t>(entry.low.first) * 31 + static_cast<uint64_t>(entry.low.second);
  const uint64_t first = (length * 0x9e3779b97f4a7c15ull >> 32) + entry.set;
  const uint64_t before = (place + ranks - first % ranks) % ranks;  // measurements of other ranks
  const auto quota = static_cast<uint64_t>(entry.quota);
  return quota > before ? static_cast<int>((quota - before - 1) / ranks + 1) : 0;
}

bool SamePlan(const std::vector<PlanEntry>& a, const std::vector<PlanEntry>& b) {
  return std::equal(
      a.begin(), a.end(), b.begin(), b.end(), [](const PlanEntry& x, const PlanEntry& y) {
        return x.low == y.low && x.high == y.high && x.set == y.set && x.quota == y.quota;
      });
}

}  // namespace

PlanOptions Job::MakePlanOptions() const {
  PlanOptions plan{.budget = options_.measurement_budget};
  plan.sets.clear();
  for (const counters::OnePassConfig& config : metrics_.set().configs) {
    if (!refused_configs_.contains(config.config_id)) plan.sets.push_back(config.config_id);
  }
  plan.sets.push_back(kKernelTimeSet);
  plan.max_entries = abi::kMaxPlanEntries;
  return plan;
}

void Job::UpdatePlan() {
  changes_.TakePlanDue();
  std::vector<PlanEntry> plan;
  std::vector<Key> operator_lengths;
  waits_ = "";
  if (!paused_ && !released_ && forced_level_ != v1::LEVEL_MARK && rule_) {
    // A measurement that failed is spent all the same: the cap is on iterations disturbed.
    PlanOptions options = MakePlanOptions();
    int started = -options_.measurement_budget * engine_.closed();
    for (const auto& [id, process] : processes_) {
      started += static_cast<int>(process->state.measurements_started());
    }
    started -= std::min(started, roofline_.attempts());
    options.in_flight = std::max(0, started - work().current().MakePlan(options).measured);
    plan = work().current().MakePlan(options).entries;
    // The roofline was asked for by name: it comes first, once the price of a stop is known.
    std::vector<PlanEntry> kernels = PlanRoofline(options);
    plan.insert(plan.begin(), kernels.begin(), kernels.end());
    if (plan.size() > abi::kMaxPlanEntries) plan.resize(abi::kMaxPlanEntries);
    operator_lengths = PlanOperators(options);
  }
  const int64_t affordable = AffordableMeasurements();
  if (affordable <= 0 && !plan.empty()) {
    plan.clear();
    waits_ = absl::StrFormat(
        "measurements wait: they took %.1f ms so far, and the overhead budget is %.3g %% of the "
        "run's time (seqpoint control JOB budget SHARE)",
        static_cast<double>(StoppedNs()) / 1e6, 100 * options_.overhead_budget_share);
  }
  int64_t total = affordable;
  for (const auto& [id, process] : processes_) {
    total += static_cast<int64_t>(process->state.measurements_started());
  }
  const bool same_total = total == std::exchange(affordable_total_, total);
  if (same_total && SamePlan(plan, plan_) && operator_lengths == operator_lengths_) return;
  plan_ = std::move(plan);
  operator_lengths_ = std::move(operator_lengths);
  changes_.Mark(Change::kPlan);
}

int Job::RooflineBudget() const {
  return static_cast<int>(RooflineMeasurements::kMaxLengths * metrics_.roofline().configs.size());
}

std::vector<PlanEntry> Job::PlanRoofline(const PlanOptions& options) const {
  std::vector<uint32_t> configs;
  for (const counters::OnePassConfig& config : metrics_.roofline().configs) {
    if (!refused_configs_.contains(config.config_id)) configs.push_back(config.config_id);
  }
  if (configs.empty() || measurements_.empty()) return {};
  return roofline_.Plan(configs, work().current().SeqPoints(options));
}

// The SeqPoints that stand for most of the run. A recording is of one length exactly.
std::vector<Key> Job::PlanOperators(const PlanOptions& options) const {
  if (operators_folder_.empty()) return {};
  std::vector<SeqPointInfo> points = work().current().SeqPoints(options);
  const size_t count = std::min(points.size(), kMostOperatorLengths);
  std::partial_sort(
      points.begin(), points.begin() + static_cast<ptrdiff_t>(count), points.end(),
      [](const SeqPointInfo& a, const SeqPointInfo& b) { return a.weight > b.weight; });
  std::vector<Key> lengths;
  for (size_t i = 0; i < count; ++i) lengths.push_back(points[i].key);
  std::sort(lengths.begin(), lengths.end());
  return lengths;
}

void Job::AddOperators(const Process& process, abi::Control& control) const {
  if (process.row.rank != 0 || process.learning || process.state.concurrent()) return;
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const uint32_t dimensions = rule_ ? rule_->rule.length_count : 0;
  for (const Key& length : operator_lengths_) {
    abi::PlanEntry& to = control.plan[control.plan_count++];
    to = {};
    to.low[0] = dimensions > 0 ? length.first : kLeast;
    to.high[0] = dimensions > 0 ? length.first : kMost;
    to.low[1] = dimensions > 1 ? length.second : kLeast;
    to.high[1] = dimensions > 1 ? length.second : kMost;
    to.config_id = abi::kConfigOperators;
    to.entry_id = (static_cast<uint64_t>(control.generation) << 16) | control.plan_count;
  }
}

int64_t Job::StoppedNs() const {
  int64_t stopped_ns = 0;
  for (const auto& [id, process] : processes_) {
    stopped_ns = SaturatedSum(stopped_ns, process->state.stopped_duration_ns());
  }
  return stopped_ns;
}

// A measurement stops the process for a moment: how many the budget still pays for, at the price
// that was measured so far.
int64_t Job::AffordableMeasurements() const {
  const int64_t stopped_ns = StoppedNs();
  int64_t stops = 0, started = 0;
  for (const auto& [id, process] : processes_) {
    stops += process->state.stops();
    // What a process that is gone had under way never comes.
    started += process->alive() ? static_cast<int64_t>(process->state.measurements_started())
                                : process->state.stops();
  }
  const EngineTotals totals = engine_.Totals();
  const double iterations = static_cast<double>(totals.iterations);
  // Most measurements are made early: with their stops the run would seem longer than it is.
  const double undisturbed_ns = std::max(totals.observed_time_ns - static_cast<double>(stopped_ns),
                                         totals.observed_time_ns / 2);
  // What is to come is estimated by the first iterations, which are the slow ones.
  constexpr double kCertain = 0.8;
  const double to_come = std::max(0.0, static_cast<double>(RunIterations()) - iterations);
  const double run_ns = undisturbed_ns * (1 + kCertain * to_come / std::max(iterations, 1.0));
  const double budget_ns = options_.overhead_budget_share * run_ns;
  // What watching takes is in the budget, too; but half of it is for measuring, whatever the rest.
  double watching_ns = 0;  // of one rank: they watch at the same time
  std::map<int32_t, double> per_rank;
  for (const auto& [id, process] : processes_) {
    double& of_rank = per_rank[process->row.rank];
    of_rank += static_cast<double>(process->state.watching_ns()[1]) +
               static_cast<double>(
                   SaturatedSum(process->state.watching_ns()[2], process->state.watching_ns()[3])) *
                   (1 + to_come / std::max(iterations, 1.0));
    watching_ns = std::max(watching_ns, of_rank);
  }
  const double stops_ns = std::max(budget_ns - watching_ns, budget_ns / 2);
  const double left_ns = stops_ns - static_cast<double>(stopped_ns);
  if (left_ns <= 0) return 0;
  if (stops == 0) return kUnpricedMeasurements;
  const double price_ns = std::max(1.0, static_cast<double>(stopped_ns) / stops);
  const double affordable =
      std::min<double>(left_ns / price_ns, options_.measurement_budget + RooflineBudget());
  return static_cast<int64_t>(affordable) - std::max<int64_t>(0, started - stops);
}

abi::Level Job::WantedLevel(const Process& process) const {
  if (released_) return abi::Level::kReleased;
  if (process.learning && process.learning->wants_calls()) return abi::Level::kLearn;
  if (forced_level_ == v1::LEVEL_TRACE && !paused_) return abi::Level::kTrace;
  return abi::Level::kMark;
}

// What is affordable, and never more than the budget of measurements; each rule has lengths of its
// own to measure. Ranks have equal shares, as nobody knows what another has just begun.
int64_t Job::MeasurementCap(const Process& process, const std::vector<const Process*>& able) const {
  const int64_t all = std::min<int64_t>(
      options_.measurement_budget * (1 + engine_.closed()) + RooflineBudget(), affordable_total_);
  int64_t left = all;
  int64_t others = 0;
  for (const auto& [id, other] : processes_) {
    if (other.get() != &process)
      others += static_cast<int64_t>(other->state.measurements_started());
  }
  left -= others;
  int64_t place = 0;
  for (const Process* other : able) {
    if (other->row.rank < process.row.rank) ++place;
    if (other != &process) left += static_cast<int64_t>(other->state.measurements_started());
  }
  const auto shares = static_cast<int64_t>(able.size());
  if (shares == 0) return 0;
  const int64_t share = std::max<int64_t>(left, 0) * (place + 1) / shares -
                        std::max<int64_t>(left, 0) * place / shares;
  // Who came late finds less.
  return std::clamp<int64_t>(all - others, 0, share);
}

std::vector<const Process*> Job::AbleToMeasure() const {
  std::vector<const Process*> able;
  for (const auto& [id, process] : processes_) {
    if (process->alive() && !process->learning && !process->state.aligning() &&
        !process->state.concurrent() && process->HasCupti()) {
      able.push_back(process.get());
    }
  }
  return able;
}

// The first iteration of a length stands for no other, in each process: of an entry's lengths those
// that this process had, the most frequent ones without a gap. False when there are none.
bool Job::NarrowToSeen(const Process& process, abi::PlanEntry& entry) const {
  int64_t low = 0, count = 0, most = 0;
  const abi::PlanEntry whole = entry;
  for (auto it = observed_.histogram(0).lower_bound(whole.low[0]);
       it != observed_.histogram(0).end() && it->first <= whole.high[0]; ++it) {
    if (!process.seen.Contains(it->first)) {
      count = 0;
      continue;
    }
    if (count == 0) low = it->first;
    count += it->second;
    if (count <= most) continue;
    most = count;
    entry.low[0] = low;
    entry.high[0] = it->first;
  }
  return most > 0;
}

void Job::BuildControl(Process& process) {
  abi::Control& control = process.control;
  control = {};
  control.generation = ++control_generation_;
  control.level = static_cast<uint8_t>(WantedLevel(process));
  control.counter_backend = static_cast<uint8_t>(metrics_.backend());
  control.flush_interval_ms = 100;
  control.overhead_permille =
      static_cast<uint16_t>(std::lround(1000 * options_.overhead_budget_share));
  const std::vector<const Process*> able = AbleToMeasure();
  control.measurement_cap = static_cast<uint32_t>(MeasurementCap(process, able));
  if (rule_) control.rule = rule_->rule;
  // Another chip's counters have other names.
  const bool counts = process.state.chip().empty() || metrics_.Fits(process.state.chip());
  const auto add_config = [&](const counters::OnePassConfig& config, abi::Ranges ranges) {
    if (control.config_count == abi::kMaxConfigs || !counts) return;
    abi::MetricConfig& to = control.config[control.config_count++];
    std::string names;
    for (const counters::Metric& metric : config.metrics)
      absl::StrAppend(&names, metric.name, "\n");
    to.config_id = config.config_id;
    to.metric_count = static_cast<uint8_t>(config.metrics.size());
    to.text_bytes = static_cast<uint32_t>(std::min(names.size(), sizeof(to.names)));
    std::memcpy(to.names, names.data(), to.text_bytes);
    to.ranges = static_cast<uint8_t>(ranges);
  };
  for (const counters::OnePassConfig& config : metrics_.set().configs) {
    add_config(config, abi::Ranges::kIteration);
  }
  for (const counters::OnePassConfig& config : metrics_.roofline().configs) {
    add_config(config, abi::Ranges::kKernels);
  }
  AddOperators(process, control);
  // Those that have measurements left share the plan.
  bool measures = false;
  uint64_t measuring = 0, place = 0;
  for (const Process* other : able) {
    if (static_cast<int64_t>(other->state.measurements_started()) >= MeasurementCap(*other, able))
      continue;
    measures |= other == &process;
    if (other->row.rank < process.row.rank) ++place;
    ++measuring;
  }
  if (!measures) return;
  const bool two = rule_ && rule_->rule.length_count > 1;
  const bool others_had_lengths = processes_.size() > 1 && !two && rule_->rule.micro_steps <= 1;
  for (const PlanEntry& entry : plan_) {
    if (control.plan_count == abi::kMaxPlanEntries) break;
    const int quota = ShareOf(entry, place, measuring);
    if (quota == 0 || (!counts && entry.set != kKernelTimeSet)) continue;
    abi::PlanEntry& to = control.plan[control.plan_count];
    to.low[0] = entry.low.first;
    to.high[0] = entry.high.first;
    to.low[1] = two ? entry.low.second : std::numeric_limits<int64_t>::min();
    to.high[1] = two ? entry.high.second : std::numeric_limits<int64_t>::max();
    // Kernels are joined between iterations of the same length alone.
    if (rule_->rule.micro_steps > 1 && !MetricChoice::OfKernels(entry.set)) Widen(to);
    if (others_had_lengths && !NarrowToSeen(process, to)) continue;
    ++control.plan_count;
    to.config_id = static_cast<uint16_t>(entry.set);
    to.quota = static_cast<uint32_t>(quota);
    // A new generation is a new entry: its quota counts from now on.
    to.entry_id = (static_cast<uint64_t>(control.generation) << 16) | control.plan_count;
  }
}

const abi::Control* Job::TakeControl(int64_t process_id) {
  Process& process = processes_.at(process_id);
  if (process.control_made == changes_.controls()) return nullptr;
  process.control_made = changes_.controls();
  BuildControl(process);
  return &process.control;
}

void Job::RepublishControl(int64_t process_id) { processes_.at(process_id).control_made = 0; }

void Job::RecordOperators(const std::string& folder) {
  operators_folder_ = folder;
  changes_.Mark(Change::kOperators);
}

// ----------------------------------------------------------------------------------------- control

absl::Status Job::Control(const v1::ControlRequest& request) {
  if (!refused_.empty()) return absl::DataLossError(refused_);
  if (row_.end_ns != 0) {
    return absl::FailedPreconditionError(absl::StrCat("job \"", row_.name, "@", row_.run_id,
                                                      "\" has ended; there is nothing to control"));
  }
  switch (request.action()) {
    case v1::ControlRequest::ACTION_PAUSE:
      paused_ = true;
      break;
    case v1::ControlRequest::ACTION_RESUME:
      if (released_) {
        const int64_t around = engine_.Totals().iterations;
        gap_ = absl::StrCat("the process was released for a while",
                            around > 0 ? absl::StrCat(" around iteration ", around) : "",
                            ": what it did meanwhile was not seen and is in no figure");
      }
      paused_ = released_ = false;
      break;
    case v1::ControlRequest::ACTION_RELEASE_CUPTI:
      released_ = true;
      break;
    case v1::ControlRequest::ACTION_SET_LEVEL:
      if (request.level() != v1::LEVEL_UNSPECIFIED && request.level() != v1::LEVEL_MARK &&
          request.level() != v1::LEVEL_TRACE) {
        return absl::InvalidArgumentError(absl::StrCat(
            "level: ", static_cast<int>(request.level()),
            " cannot be kept; there are MARK (nothing is measured), TRACE (all GPU work is "
            "recorded) and UNSPECIFIED (the daemon chooses)"));
      }
      if (request.level() == v1::LEVEL_TRACE && !processes_.empty() &&
          std::none_of(processes_.begin(), processes_.end(),
                       [](const auto& entry) { return entry.second->HasCupti(); })) {
        return absl::FailedPreconditionError(
            "level: the processes of this job do not use a GPU, or do not have CUPTI: there is no "
            "GPU work to trace");
      }
      if (request.level() == v1::LEVEL_TRACE) {
        traced_from_ = engine_.Totals().iterations;
        gap_ = absl::StrCat("all GPU work is traced by request, from iteration ", traced_from_,
                            " on: iterations take longer for it, and the figures hold them as they "
                            "are (seqpoint control JOB level auto)");
      } else if (forced_level_ == v1::LEVEL_TRACE) {
        gap_ = absl::StrCat("all GPU work was traced by request between iterations ", traced_from_,
                            " and ", engine_.Totals().iterations,
                            ", which took longer for it; the figures hold them as they were");
      }
      forced_level_ = request.level();
      break;
    case v1::ControlRequest::ACTION_SET_OVERHEAD_BUDGET:
      if (!(request.overhead_budget_share() >= 0 && request.overhead_budget_share() <= 1)) {
        return absl::InvalidArgumentError(absl::StrCat(
            "overhead_budget_share: ", request.overhead_budget_share(), " is not in [0, 1]"));
      }
      options_.overhead_budget_share = request.overhead_budget_share();
      break;
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("action: ", static_cast<int>(request.action()), " is unknown"));
  }
  changes_.Mark(Change::kOrders);
  UpdatePlan();
  return absl::OkStatus();
}

}  // namespace seqpoint::jobs
