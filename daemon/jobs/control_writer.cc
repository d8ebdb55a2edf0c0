#include "daemon/jobs/control_writer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/jobs/kernel_statistics.h"
#include "daemon/jobs/rule_codec.h"

namespace seqpoint::jobs {
namespace {

constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
constexpr int64_t kSumTolerance = 32;  // 1/32 of a length

// Few sums over micro-batches are equal, and a window must open before a sum is known. A length
// near the wanted one will do: the iteration counts with its own length.
void Widen(abi::PlanEntry& entry) {
  entry.low[0] -= entry.low[0] / kSumTolerance;
  entry.high[0] += entry.high[0] / kSumTolerance;
  entry.low[1] = kLeast;
  entry.high[1] = kMost;
}

// The share of rank `place`, of `ranks`. The measurements of one configuration go round. Those of
// all configurations begin with the same rank: ranks that have the same lengths would else measure
// different things in one iteration, and the rank that traces would see how long the others' stops
// for counters make it wait in its collectives.
uint32_t ShareOf(const PlanEntry& entry, uint64_t place, uint64_t ranks) {
  // Lengths are multiples of some unit. A hash spreads them over all ranks.
  const uint64_t length =
      static_cast<uint64_t>(entry.low.first) * 31 + static_cast<uint64_t>(entry.low.second);
  const uint64_t first = length * 0x9e3779b97f4a7c15ull >> 32;
  const uint64_t before = (place + ranks - first % ranks) % ranks;  // measurements of other ranks
  const auto quota = static_cast<uint64_t>(entry.quota);
  return quota > before ? static_cast<uint32_t>((quota - before - 1) / ranks + 1) : 0;
}

// The first iteration of a length is cold in each process. The entry is narrowed to lengths that
// this process had, without a gap, and of these to the most frequent ones. False when there are
// none.
bool NarrowToSeen(const Process& process, const Histogram1& observed, abi::PlanEntry& entry) {
  int64_t low = 0, count = 0, most = 0;
  const abi::PlanEntry whole = entry;
  for (auto it = observed.lower_bound(whole.low[0]);
       it != observed.end() && it->first <= whole.high[0]; ++it) {
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

abi::Level LevelOf(const Process& process, const OrdersState& orders) {
  if (orders.released()) return abi::Level::kReleased;
  if (process.learning && process.learning->wants_calls()) return abi::Level::kLearn;
  if (orders.forced_level() == v1::LEVEL_TRACE && !orders.paused()) return abi::Level::kTrace;
  return abi::Level::kMark;
}

// The entries of a hub have other ids than a node's own.
constexpr uint64_t kOfHub = uint64_t{1} << 63;

// Each generation has entries of its own, whose quotas count from now on.
uint64_t EntryId(const abi::Control& control) {
  return (static_cast<uint64_t>(control.generation) << 16) | control.plan_count;
}

void AddConfigs(const std::vector<counters::OnePassConfig>& configs, abi::Ranges ranges,
                abi::Control& control) {
  for (const counters::OnePassConfig& config : configs) {
    if (control.config_count == abi::kMaxConfigs) return;
    abi::MetricConfig& to = control.config[control.config_count++];
    std::string names;
    for (const counters::Metric& metric : config.metrics) {
      absl::StrAppend(&names, metric.name, "\n");
    }
    to.config_id = config.config_id;
    to.metric_count = static_cast<uint8_t>(config.metrics.size());
    to.text_bytes = static_cast<uint32_t>(std::min(names.size(), sizeof(to.names)));
    std::memcpy(to.names, names.data(), to.text_bytes);
    to.ranges = static_cast<uint8_t>(ranges);
  }
}

void AddOperators(const Process& process, const ControlInputs& inputs, abi::Control& control) {
  if (process.row.rank != 0 || process.learning || process.state.concurrent()) return;
  const uint32_t dimensions = inputs.rule != nullptr ? inputs.rule->rule.length_count : 0;
  for (const Key& length : inputs.plan.operator_lengths()) {
    abi::PlanEntry& to = control.plan[control.plan_count++];
    to = {};
    to.low[0] = dimensions > 0 ? length.first : kLeast;
    to.high[0] = dimensions > 0 ? length.first : kMost;
    to.low[1] = dimensions > 1 ? length.second : kLeast;
    to.high[1] = dimensions > 1 ? length.second : kMost;
    to.config_id = abi::kConfigOperators;
    to.entry_id = EntryId(control);
  }
}

// Processes that have measurements left share the plan.
void AddPlan(const Process& process, bool counts, const ControlInputs& inputs,
             abi::Control& control) {
  const bool measures =
      IsAbleToMeasure(process) && StartedMeasurements(process) < inputs.shares.CapOf(process);
  if (!measures || inputs.rule == nullptr) return;
  const uint64_t measuring = inputs.shares.measuring(), place = inputs.shares.PlaceOf(process);
  const abi::Rule& rule = inputs.rule->rule;
  const bool two = rule.length_count > 1, sums = rule.micro_batches > 1;
  const bool others_had_lengths = inputs.processes.size() > 1 && !two && !sums;
  for (const PlanEntry& entry : inputs.plan.entries()) {
    if (control.plan_count == abi::kMaxPlanEntries) break;
    const uint32_t quota = ShareOf(entry, place, measuring);
    if (quota == 0 || (!counts && entry.set != kKernelTimeSet)) continue;
    abi::PlanEntry& to = control.plan[control.plan_count];
    to.low[0] = entry.low.first;
    to.high[0] = entry.high.first;
    to.low[1] = two ? entry.low.second : kLeast;
    to.high[1] = two ? entry.high.second : kMost;
    // Kernels are joined between iterations of the same length alone.
    if (sums && !MetricChoice::OfKernels(entry.set)) Widen(to);
    if (others_had_lengths && !NarrowToSeen(process, inputs.observed.histogram(0), to)) continue;
    ++control.plan_count;
    to.config_id = static_cast<uint16_t>(entry.set);
    to.quota = quota;
    to.entry_id = EntryId(control);
  }
}

// A new plan's quotas count from nothing, and what the process started meanwhile under the earlier
// one is not known yet. The library counts over its whole life: it starts no more than this plan
// has beyond those that are known.
void LimitToPlan(const Process& process, abi::Control& control) {
  auto most = static_cast<uint64_t>(StartedMeasurements(process));
  for (uint32_t i = 0; i < control.plan_count; ++i) most += control.plan[i].quota;
  if (most < control.measurement_cap) control.measurement_cap = static_cast<uint32_t>(most);
}

// Iterations that all ranks take alike. Each library counts its own.
void AddSharedIterations(const Process& process, const ControlInputs& inputs,
                         abi::Control& control) {
  if (process.learning || process.state.concurrent() || process.state.aligning()) return;
  const int64_t behind = process.LibraryNumber(0);
  if (const int64_t period = inputs.channel_period; period > 0) {
    control.channel_period = inputs.channel_period;
    control.channel_phase = static_cast<uint32_t>(((behind % period) + period) % period);
  }
  if (inputs.traced_iteration >= 0 && inputs.traced_iteration + behind >= 0) {
    control.traced_iteration = static_cast<uint64_t>(inputs.traced_iteration + behind) + 1;
  }
}

}  // namespace

abi::Control WriteControl(const Process& process, const ControlInputs& inputs,
                          uint32_t generation) {
  const MetricChoice& metrics = inputs.metrics.choice();
  abi::Control control = {};
  control.generation = generation;
  control.level = static_cast<uint8_t>(LevelOf(process, inputs.orders));
  control.counter_backend = static_cast<uint8_t>(metrics.backend());
  control.flush_interval_ms = 100;
  control.overhead_permille =
      static_cast<uint16_t>(std::lround(1000 * inputs.orders.overhead_budget_share()));
  control.measurement_cap = static_cast<uint32_t>(inputs.shares.CapOf(process));
  if (inputs.rule != nullptr) control.rule = inputs.rule->rule;
  // Another chip's counters have other names.
  const bool counts = process.state.chip().empty() || metrics.Fits(process.state.chip());
  if (counts) {
    AddConfigs(metrics.set().configs, abi::Ranges::kIteration, control);
    AddConfigs(metrics.roofline().configs, abi::Ranges::kKernels, control);
  }
  AddOperators(process, inputs, control);
  AddPlan(process, counts, inputs, control);
  LimitToPlan(process, control);
  AddSharedIterations(process, inputs, control);
  return control;
}

void FollowPlan(const abi::Control& hub, abi::Control& control) {
  if (control.level != static_cast<uint8_t>(abi::Level::kMark) ||
      !SameEvents(hub.rule, control.rule)) {
    return;
  }
  // Numbers of configurations mean the same where all of them do.
  const bool counts = hub.config_count == control.config_count &&
                      std::memcmp(hub.config, control.config, sizeof(hub.config)) == 0;
  std::vector<abi::PlanEntry> entries;
  for (uint32_t i = 0; i < control.plan_count; ++i) {
    if (control.plan[i].config_id == abi::kConfigOperators) entries.push_back(control.plan[i]);
  }
  for (uint32_t i = 0; i < std::min(hub.plan_count, abi::kMaxPlanEntries); ++i) {
    abi::PlanEntry entry = hub.plan[i];
    if (entry.config_id == abi::kConfigOperators) continue;
    if (entry.config_id != abi::kConfigTrace && !counts) continue;
    entry.entry_id |= kOfHub;
    entries.push_back(entry);
  }
  control.plan_count =
      static_cast<uint32_t>(std::min<size_t>(entries.size(), abi::kMaxPlanEntries));
  std::copy_n(entries.begin(), control.plan_count, control.plan);
  control.measurement_cap = hub.measurement_cap;
  control.channel_period = hub.channel_period;
  control.channel_phase = hub.channel_phase;
  control.traced_iteration = hub.traced_iteration;
}

}  // namespace seqpoint::jobs
