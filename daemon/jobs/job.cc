#include "daemon/jobs/job.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <limits>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "daemon/jobs/state_codec.h"

namespace seqpoint::jobs {
namespace {

constexpr char kJobPart[] = "job";
constexpr char kEnginePart[] = "engine";
constexpr size_t kMaxBufferedWork = 1 << 21;  // trace records that wait for their window's event
constexpr size_t kMaxWaiting = 4096;
constexpr uint64_t kResultPatience = 1000;  // iterations
constexpr int64_t kSumTolerance = 32;       // 1/32 of a length
constexpr int64_t kScaleRetryIterations = 50;

// The fixed part of an event payload; absent when the payload is too short.
template <typename T>
std::optional<T> Fixed(absl::Span<const uint8_t> payload) {
  if (payload.size() < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, payload.data(), sizeof(T));
  return value;
}

template <typename T>
std::string_view TextAfter(absl::Span<const uint8_t> payload, uint32_t length) {
  const size_t available = payload.size() - sizeof(T);
  return {reinterpret_cast<const char*>(payload.data()) + sizeof(T),
          std::min<size_t>(length, available)};
}

// Text from a ring may hold anything; answers are UTF-8. What is not printable ASCII becomes '?':
// names are mangled symbols, sentences are the library's own.
std::string CleanText(std::string_view text) {
  std::string clean(text);
  for (char& c : clean) {
    if (c < ' ' || c > '~') c = '?';
  }
  return clean;
}

std::string_view FeatureName(uint16_t feature) {
  switch (static_cast<abi::Feature>(feature)) {
    case abi::Feature::kCupti:
      return "cupti";
    case abi::Feature::kCallbacks:
      return "callbacks";
    case abi::Feature::kActivity:
      return "activity";
    case abi::Feature::kCounters:
      return "counters";
    case abi::Feature::kNvtx:
      return "nvtx";
    case abi::Feature::kRing:
      return "ring";
    case abi::Feature::kMatcher:
      return "matcher";
    case abi::Feature::kFork:
      return "fork";
    case abi::Feature::kExit:
      return "exit";
    default:
      return "";
  }
}

v1::Level ToProtoLevel(uint8_t level) {
  switch (static_cast<abi::Level>(level)) {
    case abi::Level::kLearn:
      return v1::LEVEL_LEARN;
    case abi::Level::kMark:
      return v1::LEVEL_MARK;
    case abi::Level::kTrace:
      return v1::LEVEL_TRACE;
    default:
      return v1::LEVEL_OFF;
  }
}

void ToProto(const Estimate& from, v1::Estimate* to) {
  to->set_value(from.value);
  to->set_low(from.low);
  to->set_high(from.high);
}

std::string HelloField(const ProcessRow& row, std::string_view key) {
  for (const absl::string_view line : absl::StrSplit(row.text, '\n')) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(line, absl::MaxSplits('=', 1));
    if (pair.first == absl::string_view(key.data(), key.size())) return std::string(pair.second);
  }
  return "";
}

// Sums over micro-steps hardly ever come twice, and a window must open before they are known: what
// is near the wanted length is as good, as the iteration counts with its own.
void Widen(abi::PlanEntry& entry) {
  entry.low[0] -= entry.low[0] / kSumTolerance;
  entry.high[0] += entry.high[0] / kSumTolerance;
  entry.low[1] = std::numeric_limits<int64_t>::min();
  entry.high[1] = std::numeric_limits<int64_t>::max();
}

bool SamePlan(const std::vector<PlanEntry>& a, const std::vector<PlanEntry>& b) {
  return std::equal(
      a.begin(), a.end(), b.begin(), b.end(), [](const PlanEntry& x, const PlanEntry& y) {
        return x.low == y.low && x.high == y.high && x.set == y.set && x.quota == y.quota;
      });
}

int HelloNumber(const ProcessRow& row, std::string_view key, int fallback) {
  int value;
  return absl::SimpleAtoi(HelloField(row, key), &value) ? value : fallback;
}

}  // namespace

struct Job::Process {
  explicit Process(ProcessRow row) : row(std::move(row)) {}

  struct Name {
    uint64_t hash = 0;
    std::string text;
    int kernel = -1;  // index in the kernel statistics
  };
  struct Window {
    uint64_t number;
    int64_t begin_ns, end_ns;
  };

  ProcessRow row;
  std::vector<Name> names;             // by name id
  std::unique_ptr<Learning> learning;  // null once marking
  IterationBuilder builder;
  int64_t number_offset = 0;  // job's number - the library's number
  int64_t marked_from = 0;    // first iteration that did not run at level learn
  absl::flat_hash_map<uint64_t, std::vector<WaitingMeasurement>> waiting;  // by job's number
  std::deque<abi::DataRecord> work;  // trace records whose window is not known yet
  std::deque<Window> windows;
  v1::Losses losses;
  std::map<uint16_t, v1::Feature> features;
  int64_t stopped_ns = 0;
  uint8_t level = static_cast<uint8_t>(abi::Level::kLearn);
  uint64_t measurements_started = 0;
  absl::flat_hash_set<uint64_t> in_flight;  // job's numbers of iterations being measured
  uint64_t iterations = 0;
  uint32_t clock_kind = 0;
  std::string learn_log;  // call records since the last commit
  abi::Control control = {};
  bool control_stale = true;

  bool alive() const { return row.end_ns == 0; }
};

Job::Job(JobRow row, JobOptions options)
    : row_(std::move(row)),
      options_(options),
      metric_set_(*counters::FindMetricSet(counters::kDefaultMetricSet)) {
  for (const counters::OnePassConfig& config : metric_set_->configs) {
    ConfigRow config_row{
        .job_id = row_.job_id, .config_id = config.config_id, .name = metric_set_->name};
    for (const counters::Metric& metric : config.metrics) config_row.metrics.push_back(metric.name);
    rows_.configs.push_back(std::move(config_row));
  }
}

Job::~Job() = default;

// ---------------------------------------------------------------------------------- processes

void Job::AddProcess(const ProcessRow& row) {
  auto process = std::make_unique<Process>(row);
  if (processes_.empty() && row_.start_ns == 0) row_.start_ns = row.start_ns;
  if (row_.host.empty()) row_.host = row.host;
  if (row_.command.empty()) row_.command = HelloField(row, "command");
  row_.end_ns = 0;
  row_.state = rule_ ? v1::JOB_STATE_MARKING : v1::JOB_STATE_LEARNING;
  process->learning = std::make_unique<Learning>();
  // A new incarnation goes on counting where the job is.
  process->learning->SetFirstNumber(next_number_);
  if (rule_) process->learning->SetRule(rule_->rule);
  rows_.processes.push_back(row);
  processes_[row.process_id] = std::move(process);
  job_dirty_ = state_dirty_ = true;
  ++generation_;
}

bool Job::live() const {
  return std::any_of(processes_.begin(), processes_.end(),
                     [](const auto& entry) { return entry.second->alive(); });
}

int32_t Job::NextIncarnation(int32_t rank) const {
  int32_t next = 0;
  for (const auto& [id, process] : processes_) {
    if (process->row.rank == rank) next = std::max(next, process->row.incarnation + 1);
  }
  return next;
}

std::vector<std::pair<int64_t, int32_t>> Job::LiveProcesses() const {
  std::vector<std::pair<int64_t, int32_t>> live;
  for (const auto& [id, process] : processes_) {
    if (process->alive()) live.emplace_back(id, process->row.pid);
  }
  return live;
}

void Job::OnProcessEnd(int64_t process_id, bool orderly, int64_t now_ns) {
  Process& process = *processes_.at(process_id);
  if (!process.alive()) return;
  process.row.end_ns = now_ns;
  process.row.lost = !orderly;
  if (process.learning) {
    // Too short a run to agree: what the learn stream alone shows is what there is.
    if (!rule_) {
      if (std::optional<LearnedRule> rule = process.learning->Analyse()) OnRuleLearned(*rule);
    }
    process.learning->Finish(process.builder);
    process.learning.reset();
  }
  process.builder.Finish();
  Advance();
  rows_.processes.push_back(process.row);
  if (!live()) {
    row_.end_ns = now_ns;
    const bool lost = std::any_of(processes_.begin(), processes_.end(),
                                  [](const auto& entry) { return entry.second->row.lost; });
    row_.state = lost ? v1::JOB_STATE_LOST : v1::JOB_STATE_ENDED;
  }
  job_dirty_ = state_dirty_ = true;
  ++generation_;
}

void Job::EndUnused(int64_t now_ns) {
  if (!processes_.empty() || row_.end_ns != 0) return;
  row_.end_ns = now_ns;
  row_.state = v1::JOB_STATE_ENDED;
  sentence_ = "no process of this job used CUDA under the library";
  job_dirty_ = state_dirty_ = true;
  ++generation_;
}

void Job::OnLosses(int64_t process_id, const RingLosses& losses) {
  Process& process = *processes_.at(process_id);
  v1::Losses& to = process.losses;
  process.clock_kind = losses.clock_kind;
  to.set_ring_dropped(static_cast<int64_t>(losses.dropped));
  to.set_ring_lost(static_cast<int64_t>(losses.lost));
  to.set_rejected(static_cast<int64_t>(losses.rejected));
  to.set_cupti_dropped(static_cast<int64_t>(losses.cupti_dropped));
  to.set_invalid_timestamps(static_cast<int64_t>(losses.invalid_timestamps));
  state_dirty_ = true;
}

// ---------------------------------------------------------------------------------- records

void Job::OnEvent(int64_t process_id, abi::EventType type, absl::Span<const uint8_t> payload) {
  Process& process = *processes_.at(process_id);
  state_dirty_ = true;
  switch (type) {
    case abi::EventType::kName: {
      const auto event = Fixed<abi::NameEvent>(payload);
      if (!event || event->name_id == 0 || event->name_id > (1u << 22)) break;
      rows_.names.push_back({.process_id = process_id,
                             .name_id = event->name_id,
                             .name_hash = event->name_hash,
                             .text = CleanText(TextAfter<abi::NameEvent>(payload, event->length))});
      SetName(process, rows_.names.back());
      return;
    }
    case abi::EventType::kBoundary:
    case abi::EventType::kDecision:
    case abi::EventType::kStep:
    case abi::EventType::kClock:
    case abi::EventType::kSync:
      if (type == abi::EventType::kDecision) {
        if (const auto event = Fixed<abi::DecisionEvent>(payload); event && event->config_id != 0) {
          ++process.measurements_started;
          process.in_flight.insert(event->iteration + process.number_offset);
        }
      }
      if (process.learning) {
        process.learning->OnLibraryEvent(type, payload);
      } else if (!FeedBuilder(type, payload, process.number_offset, process.builder)) {
        break;
      }
      return;
    case abi::EventType::kCounters: {
      const auto event = Fixed<abi::CountersEvent>(payload);
      if (!event || payload.size() < sizeof(*event) + event->count * sizeof(double)) break;
      process.stopped_ns += static_cast<int64_t>(event->stopped_ns);
      const uint64_t number = event->iteration + process.number_offset;
      const bool complete = event->status == abi::kCountersOk;
      process.in_flight.erase(number);
      std::vector<double> values(event->count);
      std::memcpy(values.data(), payload.data() + sizeof(*event), event->count * sizeof(double));
      rows_.measurements.push_back({.job_id = row_.job_id,
                                    .rank = process.row.rank,
                                    .number = static_cast<int64_t>(number),
                                    .incarnation = process.row.incarnation,
                                    .config_id = event->config_id,
                                    .complete = complete,
                                    .values = values});
      if (complete) OnMeasurement(process, number, event->config_id, std::move(values));
      return;
    }
    case abi::EventType::kFeature: {
      const auto event = Fixed<abi::FeatureEvent>(payload);
      if (!event || FeatureName(event->feature).empty()) break;
      v1::Feature& feature = process.features[event->feature];
      feature.set_name(std::string(FeatureName(event->feature)));
      feature.set_state(static_cast<v1::FeatureState>(event->state + 1));
      feature.set_code(static_cast<int32_t>(event->code));
      feature.set_sentence(CleanText(TextAfter<abi::FeatureEvent>(payload, event->length)));
      ++generation_;
      return;
    }
    case abi::EventType::kRule: {
      const auto event = Fixed<abi::RuleEvent>(payload);
      if (!event) break;
      process.level = event->level;
      ++generation_;
      return;
    }
    case abi::EventType::kWindow: {
      const auto event = Fixed<abi::WindowEvent>(payload);
      if (!event) break;
      process.stopped_ns += static_cast<int64_t>(event->stopped_ns);
      if (event->level == static_cast<uint8_t>(abi::Level::kTrace)) {
        process.windows.push_back({.number = event->iteration + process.number_offset,
                                   .begin_ns = static_cast<int64_t>(event->begin_ns),
                                   .end_ns = static_cast<int64_t>(event->end_ns)});
      }
      return;
    }
    case abi::EventType::kTimePair:
      return;
    case abi::EventType::kConfig: {
      const auto event = Fixed<abi::ConfigEvent>(payload);
      if (!event) break;
      if (event->status != 0 || event->passes != 1) {
        sentence_ = absl::StrCat("configuration ", event->config_id, " cannot be collected: ",
                                 CleanText(TextAfter<abi::ConfigEvent>(payload, event->length)));
        ++generation_;
      }
      return;
    }
    default:
      break;
  }
  process.losses.set_rejected(process.losses.rejected() + 1);
}

void Job::OnData(int64_t process_id, absl::Span<const abi::DataRecord> records) {
  Process& process = *processes_.at(process_id);
  for (const abi::DataRecord& record : records) {
    switch (static_cast<abi::DataType>(record.type)) {
      case abi::DataType::kCall:
        if (process.learning) {
          process.learning->OnCall(record.call);
          process.learn_log.append(reinterpret_cast<const char*>(&record), sizeof(record));
        }
        break;
      case abi::DataType::kCopy:
      case abi::DataType::kMemset:
      case abi::DataType::kGraph: {
        const bool graph = record.type == static_cast<uint16_t>(abi::DataType::kGraph);
        const uint32_t correlation_id =
            graph ? record.graph.correlation_id : record.copy.correlation_id;
        const uint64_t start_ns = graph ? record.graph.start_ns : record.copy.start_ns;
        process.builder.OnGpuStart(correlation_id, start_ns);
        if (process.learning) {
          process.learning->OnGpuStart(correlation_id, start_ns);
          process.learn_log.append(reinterpret_cast<const char*>(&record), sizeof(record));
        }
        [[fallthrough]];
      }
      case abi::DataType::kKernel:
      case abi::DataType::kApi:
      case abi::DataType::kSync:
        process.work.push_back(record);
        break;
      default:
        process.losses.set_rejected(process.losses.rejected() + 1);
    }
  }
  state_dirty_ = true;
}

void Job::Advance() {
  for (auto& [id, process] : processes_) {
    if (process->learning) {
      if (!rule_ && process->learning->learned()) OnRuleLearned(*process->learning->learned());
      if (const std::optional<int64_t> offset = process->learning->Agree(process->builder)) {
        process->number_offset = *offset;
        process->marked_from = process->builder.next_number();
        process->learning.reset();
        process->control_stale = true;
        row_.state = v1::JOB_STATE_MARKING;
        plan_stale_ = true;
        ++generation_;
      }
    }
    for (FinishedIteration& iteration : process->builder.TakeFinished()) {
      OnFinished(*process, iteration);
    }
    ResolveWindows(*process);
  }
  MatchLengths();
  if (plan_stale_) UpdatePlan();
}

void Job::OnRuleLearned(LearnedRule rule) {
  rule.rule.generation = ++rule_generation_;
  rule_ = std::move(rule);
  for (auto& [id, process] : processes_) {
    if (process->learning) process->learning->SetRule(rule_->rule);
    process->control_stale = true;
  }
  job_dirty_ = true;
  ++generation_;
}

void Job::OnFinished(Process& process, const FinishedIteration& iteration) {
  const int64_t number = static_cast<int64_t>(iteration.number);
  const int dimensions = rule_ ? static_cast<int>(rule_->rule.length_count) : 0;
  const uint32_t wanted = (1u << dimensions) - 1;
  const bool known = (iteration.valid & wanted) == wanted;
  next_number_ = std::max(next_number_, number + 1);
  // Its result is lost: results come within a few iterations.
  absl::erase_if(process.in_flight, [&](uint64_t started) {
    return started + kResultPatience < static_cast<uint64_t>(number);
  });
  ++process.iterations;

  IterationRow row{
      .job_id = row_.job_id,
      .rank = process.row.rank,
      .number = number,
      .incarnation = process.row.incarnation,
      .length_count = known ? dimensions : 0,
      .start_ns = iteration.start_ns,
      .duration_ns = iteration.duration_ns,
      .level = process.learning || number < process.marked_from ? v1::LEVEL_LEARN : v1::LEVEL_MARK,
      .config_id = iteration.config_id,
      .boundary_ns = iteration.boundary_ns};
  if (iteration.config_id == abi::kConfigTrace) row.level = v1::LEVEL_TRACE;
  if (iteration.config_id > abi::kConfigTrace) row.level = v1::LEVEL_COUNTERS;
  if (iteration.distorted) row.flags |= kIterationDistorted;
  for (int i = 0; i < dimensions; ++i) row.length[i] = iteration.length[i];
  rows_.iterations.push_back(row);
  ++generation_;

  other_batches_ += iteration.other_batches;
  other_duration_ns_ += iteration.other_duration_ns;

  // One rank speaks for the job; the others are in the log.
  if (process.row.rank != processes_.begin()->second->row.rank) return;
  IterationSample sample{.iteration = static_cast<uint64_t>(number),
                         .time_ns = iteration.duration_ns,
                         .distorted = iteration.distorted,
                         .measured = iteration.config_id != 0};
  if (known && dimensions > 0) sample.key.first = iteration.length[0];
  if (known && dimensions > 1) sample.key.second = iteration.length[1];
  engine_.AddIteration(sample);
  engine_dirty_ = true;
  plan_stale_ = true;
  if (known) {
    for (int i = 0; i < dimensions; ++i) ++observed_[i][iteration.length[i]];
  }
  if (const auto it = process.waiting.find(static_cast<uint64_t>(number));
      it != process.waiting.end()) {
    for (const WaitingMeasurement& measurement : it->second) {
      const std::vector<double> values(measurement.values().begin(), measurement.values().end());
      // A refusal (the length's first occurrence) is counted by the engine.
      if (engine_
              .AddMeasurement(measurement.set(), static_cast<uint64_t>(number), sample.key, values)
              .ok()) {
        ++measurements_[measurement.set()];
      }
    }
    process.waiting.erase(it);
  }
}

void Job::OnMeasurement(Process& process, uint64_t number, uint32_t set,
                        std::vector<double> values) {
  if (process.waiting.size() >= kMaxWaiting) process.waiting.clear();
  WaitingMeasurement measurement;
  measurement.set_number(number);
  measurement.set_set(set);
  measurement.mutable_values()->Add(values.begin(), values.end());
  process.waiting[number].push_back(std::move(measurement));
}

int Job::KernelIndex(const std::string& name) {
  const auto [it, added] = kernel_index_.try_emplace(name, static_cast<int>(kernels_.size()));
  if (added) kernels_.push_back(name);
  return it->second;
}

// Which traced work belongs to which iteration: a window opens and closes with the GPU idle, so
// its work lies between its two stamps.
void Job::ResolveWindows(Process& process) {
  while (!process.windows.empty()) {
    const Process::Window window = process.windows.front();
    process.windows.pop_front();
    std::vector<double> time_ns(kernels_.size()), launches(kernels_.size());
    TraceSegmentRow segment{.job_id = row_.job_id,
                            .rank = process.row.rank,
                            .number = static_cast<int64_t>(window.number),
                            .process_id = process.row.process_id};
    std::deque<abi::DataRecord> later;
    for (const abi::DataRecord& record : process.work) {
      // Every trace record has its start at the same place.
      const int64_t start_ns = static_cast<int64_t>(record.kernel.start_ns);
      if (start_ns > window.end_ns) later.push_back(record);
      if (start_ns < window.begin_ns || start_ns > window.end_ns) continue;
      segment.records.append(reinterpret_cast<const char*>(&record), sizeof(record));
      if (record.type != static_cast<uint16_t>(abi::DataType::kKernel)) continue;
      const uint32_t name_id = record.kernel.name_id;
      if (name_id >= process.names.size() || process.names[name_id].text.empty()) {
        process.losses.set_rejected(process.losses.rejected() + 1);
        continue;
      }
      Process::Name& name = process.names[name_id];
      if (name.kernel < 0) name.kernel = KernelIndex(name.text);
      if (static_cast<size_t>(name.kernel) >= time_ns.size()) {
        time_ns.resize(name.kernel + 1);
        launches.resize(name.kernel + 1);
      }
      time_ns[name.kernel] +=
          static_cast<double>(record.kernel.end_ns) - static_cast<double>(record.kernel.start_ns);
      launches[name.kernel] += 1;
    }
    process.work = std::move(later);
    process.in_flight.erase(window.number);
    if (segment.records.empty()) continue;
    rows_.trace_segments.push_back(std::move(segment));
    OnMeasurement(process, window.number, kKernelTimeSet, std::move(time_ns));
    OnMeasurement(process, window.number, kKernelLaunchSet, std::move(launches));
  }
  while (process.work.size() > kMaxBufferedWork) process.work.pop_front();
}

// ---------------------------------------------------------------------------------- the plan

PlanOptions Job::MakePlanOptions() const {
  PlanOptions plan{.budget = options_.measurement_budget};
  plan.sets.clear();
  for (const counters::OnePassConfig& config : metric_set_->configs) {
    plan.sets.push_back(config.config_id);
  }
  plan.sets.push_back(kKernelTimeSet);
  plan.max_entries = abi::kMaxPlanEntries;
  return plan;
}

void Job::UpdatePlan() {
  plan_stale_ = false;
  std::vector<PlanEntry> plan;
  if (!paused_ && !released_ && rule_) {
    // A measurement that failed is spent all the same: the cap is on iterations disturbed.
    PlanOptions options = MakePlanOptions();
    int started = 0;
    for (const auto& [id, process] : processes_) {
      started += static_cast<int>(process->measurements_started);
    }
    options.in_flight = std::max(0, started - engine_.MakePlan(options).measured);
    plan = engine_.MakePlan(options).entries;
  }
  if (SamePlan(plan, plan_)) return;
  plan_ = std::move(plan);
  for (auto& [id, process] : processes_) process->control_stale = true;
}

abi::Level Job::WantedLevel(const Process& process) const {
  if (released_) return abi::Level::kReleased;
  if (paused_) return abi::Level::kPaused;
  if (process.learning && process.learning->wants_calls()) return abi::Level::kLearn;
  if (forced_level_ == v1::LEVEL_TRACE) return abi::Level::kTrace;
  return abi::Level::kMark;
}

void Job::BuildControl(Process& process) {
  abi::Control& control = process.control;
  control = {};
  control.generation = ++control_generation_;
  control.level = static_cast<uint8_t>(WantedLevel(process));
  control.flush_interval_ms = 100;
  control.measurement_cap = static_cast<uint32_t>(options_.measurement_budget);
  if (rule_) control.rule = rule_->rule;
  for (const counters::OnePassConfig& config : metric_set_->configs) {
    if (control.config_count == abi::kMaxConfigs) break;
    abi::MetricConfig& to = control.config[control.config_count++];
    std::string names;
    for (const counters::Metric& metric : config.metrics)
      absl::StrAppend(&names, metric.name, "\n");
    to.config_id = config.config_id;
    to.metric_count = static_cast<uint16_t>(config.metrics.size());
    to.text_bytes = static_cast<uint32_t>(std::min(names.size(), sizeof(to.names)));
    std::memcpy(to.names, names.data(), to.text_bytes);
  }
  // Only the rank that speaks for the job measures.
  if (process.learning || process.row.rank != processes_.begin()->second->row.rank) return;
  const bool two = rule_ && rule_->rule.length_count > 1;
  for (const PlanEntry& entry : plan_) {
    if (control.plan_count == abi::kMaxPlanEntries) break;
    abi::PlanEntry& to = control.plan[control.plan_count++];
    to.low[0] = entry.low.first;
    to.high[0] = entry.high.first;
    to.low[1] = two ? entry.low.second : std::numeric_limits<int64_t>::min();
    to.high[1] = two ? entry.high.second : std::numeric_limits<int64_t>::max();
    if (rule_->rule.micro_steps > 1) Widen(to);
    to.config_id = static_cast<uint16_t>(entry.set);
    to.quota = static_cast<uint32_t>(entry.quota);
    // A new generation is a new entry: its quota counts from now on.
    to.entry_id = (static_cast<uint64_t>(control.generation) << 16) | control.plan_count;
  }
}

const abi::Control* Job::TakeControl(int64_t process_id) {
  Process& process = *processes_.at(process_id);
  if (!process.control_stale) return nullptr;
  process.control_stale = false;
  BuildControl(process);
  return &process.control;
}

void Job::RepublishControl(int64_t process_id) { processes_.at(process_id)->control_stale = true; }

// ---------------------------------------------------------------------------------- lengths

absl::Status Job::SetHorizon(const v1::Horizon& horizon) {
  for (const v1::LengthCount& entry : horizon.histogram()) {
    if (entry.lengths_size() < 1 || entry.lengths_size() > 2 || entry.count() < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("horizon.histogram: an entry needs one or two lengths and a count, not ",
                       entry.lengths_size(), " and ", entry.count()));
    }
    for (const int64_t length : entry.lengths()) {
      if (length < 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("horizon.histogram: length ", length, " is negative"));
      }
    }
  }
  if (horizon.iterations() < 0 || horizon.epochs() < 0) {
    return absl::InvalidArgumentError(absl::StrCat("horizon: iterations ", horizon.iterations(),
                                                   " and epochs ", horizon.epochs(),
                                                   " must not be negative"));
  }
  horizon_ = horizon;
  horizon_applied_ = false;
  next_match_ = 0;
  factor_[0] = factor_[1] = 0;
  MatchLengths();
  plan_stale_ = true;
  state_dirty_ = true;
  ++generation_;
  return absl::OkStatus();
}

namespace {

int64_t HorizonIterations(const v1::Horizon& horizon) {
  if (horizon.iterations() > 0) return horizon.iterations();
  int64_t total = 0;
  for (const v1::LengthCount& entry : horizon.histogram()) total += entry.count();
  return total * std::max<int64_t>(horizon.epochs(), 1);
}

Histogram1 Marginal(const v1::Horizon& horizon, int dimension) {
  Histogram1 histogram;
  for (const v1::LengthCount& entry : horizon.histogram()) {
    if (dimension < entry.lengths_size()) histogram[entry.lengths(dimension)] += entry.count();
  }
  return histogram;
}

}  // namespace

void Job::MatchLengths() {
  const int64_t seen = static_cast<int64_t>(engine_.Totals().iterations);
  if (horizon_.kind() == v1::Horizon::KIND_UNKNOWN || seen < next_match_) return;
  const bool by_length = horizon_.kind() != v1::Horizon::KIND_ITERATIONS;
  if (by_length && (seen < kScaleRetryIterations || !rule_)) {
    if (horizon_applied_) return;
    // The number of iterations is good from the start.
    engine_.SetHorizon(Horizon::Iterations(HorizonIterations(horizon_))).IgnoreError();
    horizon_applied_ = plan_stale_ = engine_dirty_ = true;
    return;
  }
  const bool known_before = factor_[0] > 0;
  if (by_length) FindFactors();
  absl::StatusOr<Horizon> horizon = EngineHorizon(horizon_);
  // Looked at again and again: what fits the first lengths may not fit the later ones.
  next_match_ = horizon.ok() ? std::max<int64_t>(2 * seen, 1) : seen + kScaleRetryIterations;
  if (horizon.ok() || known_before || !horizon_applied_) {
    engine_.SetHorizon(horizon.ok() ? *horizon : Horizon::Iterations(HorizonIterations(horizon_)))
        .IgnoreError();
    plan_stale_ = engine_dirty_ = true;
  }
  sentence_ = horizon.ok() ? "" : std::string(horizon.status().message());
  horizon_applied_ = true;
  ++generation_;
}

// Which of the user's lengths is which feature, and what one step of it is. Zero: no match.
void Job::FindFactors() {
  const int dimensions = static_cast<int>(rule_->rule.length_count);
  const int given = horizon_.histogram_size() == 0 ? 0 : horizon_.histogram(0).lengths_size();
  factor_[0] = factor_[1] = 0;
  double best = 2;
  for (const bool swapped : {false, true}) {
    if (dimensions == 0 || given == 0 || (swapped && given < 2)) continue;
    double distance = 0;
    int64_t factor[2] = {0, 0};
    bool matched = true;
    for (int i = 0; i < dimensions && matched; ++i) {
      const int column = given == 1 ? 0 : (swapped ? 1 - i : i);
      const auto scale = FindScale(observed_[i], Marginal(horizon_, column));
      matched = scale.has_value();
      if (!matched) break;
      factor[i] = scale->factor;
      distance = std::max(distance, scale->distance);
    }
    if (matched && distance < best) {
      best = distance;
      swapped_ = swapped;
      factor_[0] = factor[0];
      factor_[1] = factor[1];
    }
  }
}

absl::StatusOr<Horizon> Job::EngineHorizon(const v1::Horizon& horizon) const {
  switch (horizon.kind()) {
    case v1::Horizon::KIND_UNKNOWN:
      return Horizon::Unknown();
    case v1::Horizon::KIND_ITERATIONS:
      return Horizon::Iterations(horizon.iterations());
    default:
      break;
  }
  const int dimensions = rule_ ? static_cast<int>(rule_->rule.length_count) : 0;
  if (dimensions == 0 || factor_[0] == 0) {
    return absl::FailedPreconditionError(
        "the given lengths do not match the length feature that was learned, so only the number of "
        "iterations is used; check the column and the batch size");
  }
  std::map<Key, int64_t> counts;
  for (const v1::LengthCount& entry : horizon.histogram()) {
    const auto value = [&](int dimension) -> int64_t {
      if (dimension >= dimensions) return 0;
      const int column = entry.lengths_size() == 1 ? 0 : (swapped_ ? 1 - dimension : dimension);
      return entry.lengths(column) * factor_[dimension];
    };
    counts[{value(0), value(1)}] += entry.count();
  }
  std::vector<KeyCount> histogram;
  for (const auto& [key, count] : counts) histogram.push_back({key, count});
  const int64_t epochs = std::max<int64_t>(horizon.epochs(), 1);
  return horizon.kind() == v1::Horizon::KIND_HISTOGRAM
             ? Horizon::Histogram(std::move(histogram), epochs)
             : Horizon::Distribution(std::move(histogram), epochs);
}

absl::StatusOr<const OnlineEngine*> Job::EngineFor(const v1::Horizon* horizon,
                                                   std::optional<OnlineEngine>& other) const {
  if (horizon == nullptr) return &engine_;
  absl::StatusOr<OnlineEngine> copy = OnlineEngine::Parse(engine_.Serialize());
  if (!copy.ok()) return copy.status();
  absl::StatusOr<Horizon> wanted = EngineHorizon(*horizon);
  if (!wanted.ok()) return wanted.status();
  if (const absl::Status status = copy->SetHorizon(*std::move(wanted)); !status.ok()) return status;
  other = *std::move(copy);
  return &*other;
}

std::vector<int64_t> Job::UserLengths(const int64_t length[2], int count) const {
  std::vector<int64_t> lengths(count);
  for (int i = 0; i < count; ++i) {
    const int64_t unit = factor_[i] > 0 ? factor_[i] : NaturalUnit(observed_[i]);
    lengths[swapped_ && count == 2 ? 1 - i : i] = length[i] / unit;
  }
  return lengths;
}

// ---------------------------------------------------------------------------------- control

absl::Status Job::Control(const v1::ControlRequest& request) {
  switch (request.action()) {
    case v1::ControlRequest::ACTION_PAUSE:
      paused_ = true;
      break;
    case v1::ControlRequest::ACTION_RESUME:
      paused_ = released_ = false;
      break;
    case v1::ControlRequest::ACTION_RELEASE_CUPTI:
      released_ = true;
      break;
    case v1::ControlRequest::ACTION_SET_LEVEL:
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
  UpdatePlan();
  for (auto& [id, process] : processes_) process->control_stale = true;
  state_dirty_ = true;
  ++generation_;
  return absl::OkStatus();
}

// ---------------------------------------------------------------------------------- answers

v1::ClockKind Job::clock_kind() const {
  v1::ClockKind kind = v1::CLOCK_KIND_UNSPECIFIED;
  for (const auto& [id, process] : processes_) {
    const auto of_process = static_cast<v1::ClockKind>(std::min<uint32_t>(process->clock_kind, 2));
    if (of_process != v1::CLOCK_KIND_UNSPECIFIED) kind = of_process;
  }
  return kind;
}

v1::Losses Job::SumLosses() const {
  v1::Losses sum;
  for (const auto& [id, process] : processes_) {
    const v1::Losses& losses = process->losses;
    sum.set_ring_dropped(sum.ring_dropped() + losses.ring_dropped());
    sum.set_ring_lost(sum.ring_lost() + losses.ring_lost() +
                      static_cast<int64_t>(process->builder.lost_iterations()));
    sum.set_rejected(sum.rejected() + losses.rejected());
    sum.set_cupti_dropped(sum.cupti_dropped() + losses.cupti_dropped());
    sum.set_invalid_timestamps(sum.invalid_timestamps() + losses.invalid_timestamps());
  }
  const EngineTotals totals = engine_.Totals();
  sum.set_distorted_iterations(static_cast<int64_t>(totals.distorted));
  sum.set_redone_iterations(static_cast<int64_t>(totals.redone));
  sum.set_untimed_iterations(static_cast<int64_t>(totals.untimed));
  sum.set_refused_measurements(static_cast<int64_t>(totals.measurements_refused));
  return sum;
}

v1::Rule Job::DescribeRule() const {
  v1::Rule rule;
  rule.set_generation(static_cast<int32_t>(rule_->rule.generation));
  rule.set_boundary(rule_->boundary_words);
  rule.set_length(rule_->length_words);
  rule.set_confidence(rule_->confidence);
  rule.set_length_dimensions(static_cast<int32_t>(rule_->rule.length_count));
  const KeyFit fit = engine_.Explained();
  rule.set_explained_share(fit.explained);
  switch (fit.verdict) {
    case KeyVerdict::kTooFew:
      rule.set_verdict(v1::VERDICT_TOO_FEW);
      break;
    case KeyVerdict::kExplained:
      rule.set_verdict(v1::VERDICT_EXPLAINED);
      break;
    case KeyVerdict::kNotExplained:
      rule.set_verdict(v1::VERDICT_NOT_EXPLAINED);
      break;
    case KeyVerdict::kTimeHardlyVaries:
      rule.set_verdict(v1::VERDICT_TIME_HARDLY_VARIES);
      break;
  }
  rule.set_sentence(sentence_);
  return rule;
}

v1::Projection Job::ToProto(const Projection& projection, std::string_view metric,
                            std::string_view unit) const {
  v1::Projection to;
  to.set_metric(std::string(metric));
  to.set_unit(std::string(unit));
  to.set_confidence(projection.confidence);
  if (projection.total) {
    jobs::ToProto(*projection.total, to.mutable_total());
    jobs::ToProto(projection.remaining, to.mutable_remaining());
  }
  jobs::ToProto(projection.so_far, to.mutable_so_far());
  jobs::ToProto(projection.per_1000, to.mutable_per_1000_iterations());
  to.set_horizon_kind(projection.total ? horizon_.kind() : v1::Horizon::KIND_UNKNOWN);
  to.set_iterations_so_far(projection.iterations_so_far);
  to.set_iterations_total(projection.iterations_total);
  to.set_basis(projection.basis);
  to.set_clock_kind(clock_kind());
  return to;
}

v1::Job Job::Describe(bool with_details) const {
  v1::Job job;
  job.set_id(absl::StrCat(row_.job_id));
  job.set_name(row_.name);
  job.set_run_id(row_.run_id);
  job.set_host(row_.host);
  job.set_command(row_.command);
  job.set_start_ns(row_.start_ns);
  job.set_end_ns(row_.end_ns);
  job.set_generation(generation_);
  job.set_state(paused_ && live() ? v1::JOB_STATE_PAUSED : static_cast<v1::JobState>(row_.state));
  if (rule_) *job.mutable_rule() = DescribeRule();
  const EngineTotals totals = engine_.Totals();
  job.set_iterations(static_cast<int64_t>(totals.iterations));
  job.set_unique_lengths(static_cast<int64_t>(totals.unique_keys));
  job.set_iterations_duration_ns(static_cast<int64_t>(totals.observed_time_ns));
  *job.mutable_losses() = SumLosses();
  if (totals.iterations > 0) {
    *job.mutable_time() = ToProto(engine_.ProjectTime(0.95), "time", "ns");
    const Plan plan = engine_.MakePlan(MakePlanOptions());
    v1::SeqPointsSummary& summary = *job.mutable_seqpoints();
    for (const SeqPointInfo& point : engine_.SeqPoints(MakePlanOptions())) {
      summary.set_seqpoints(summary.seqpoints() + 1);
      if (point.measured > 0 && point.measured >= point.wanted) {
        summary.set_measured(summary.measured() + 1);
      }
    }
    summary.set_measurements(plan.measured);
    summary.set_measurements_wanted(plan.wanted);
  }
  if (other_batches_ > 0) {
    v1::PhaseSummary& phase = *job.add_phases();
    phase.set_name("evaluation");
    phase.set_iterations(other_batches_);
    phase.set_duration_ns(other_duration_ns_);
  }
  job.set_clock_kind(clock_kind());
  job.set_process_count(static_cast<int32_t>(processes_.size()));
  int64_t stopped_ns = 0;
  for (const auto& [id, process] : processes_) {
    stopped_ns += process->stopped_ns;
    if (process->alive()) job.set_live_processes(job.live_processes() + 1);
    for (const auto& [number, feature] : process->features) {
      if (feature.state() == v1::FEATURE_STATE_FAILED && job.trouble().empty()) {
        job.set_trouble(feature.sentence());
      }
    }
  }
  if (!rule_ && job.trouble().empty()) job.set_trouble(sentence_);
  for (const auto& [id, process] : processes_) {
    if (job.trouble().empty() && process->learning && !process->learning->wants_calls()) {
      job.set_trouble(process->learning->Explanation());
    }
  }
  job.mutable_overhead()->set_budget_share(options_.overhead_budget_share);
  job.mutable_overhead()->set_stopped_duration_ns(stopped_ns);
  if (totals.observed_time_ns > 0) {
    job.mutable_overhead()->set_spent_share(static_cast<double>(stopped_ns) /
                                            totals.observed_time_ns);
  }
  *job.mutable_horizon() = horizon_;
  if (!with_details) {
    job.mutable_horizon()->clear_histogram();
    return job;
  }
  for (const auto& [id, process] : processes_) {
    v1::Process& to = *job.add_processes();
    const ProcessRow& row = process->row;
    to.set_rank(row.rank);
    to.set_local_rank(HelloNumber(row, "local_rank", row.rank));
    to.set_world_size(HelloNumber(row, "world_size", 1));
    to.set_pid(row.pid);
    to.set_incarnation(row.incarnation);
    to.set_host(row.host);
    to.set_command(HelloField(row, "command"));
    to.set_working_directory(HelloField(row, "cwd"));
    to.set_library_version(HelloField(row, "library_version"));
    to.set_cupti_version(HelloField(row, "cupti_version"));
    to.set_driver_version(HelloField(row, "driver_version"));
    to.set_clock_kind(static_cast<v1::ClockKind>(std::min<uint32_t>(process->clock_kind, 2)));
    to.set_start_ns(row.start_ns);
    to.set_end_ns(row.end_ns);
    to.set_lost(row.lost);
    to.set_level(ToProtoLevel(process->level));
    for (const auto& [number, feature] : process->features) *to.add_features() = feature;
    *to.mutable_losses() = process->losses;
    to.set_stopped_duration_ns(process->stopped_ns);
  }
  return job;
}

absl::StatusOr<v1::ProjectReply> Job::Project(const v1::ProjectRequest& request) const {
  std::optional<OnlineEngine> other;
  const auto found = EngineFor(request.has_horizon() ? &request.horizon() : nullptr, other);
  if (!found.ok()) return found.status();
  const OnlineEngine& engine = **found;
  if (engine.Totals().iterations == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("job \"", row_.name,
                     "\": no iteration was found yet; ask again when `seqpoint jobs` shows some"));
  }
  v1::ProjectReply reply;
  reply.set_job_id(absl::StrCat(row_.job_id));
  *reply.mutable_losses() = SumLosses();
  const std::string metric = request.metric().empty() ? "time" : request.metric();
  if (metric == "time") {
    *reply.mutable_projection() = ToProto(engine.ProjectTime(request.confidence()), "time", "ns");
    return reply;
  }
  std::vector<std::string> known = {"time"};
  for (const counters::OnePassConfig& config : metric_set_->configs) {
    for (size_t i = 0; i < config.metrics.size(); ++i) {
      known.push_back(config.metrics[i].name);
      if (config.metrics[i].name != metric) continue;
      absl::StatusOr<Projection> projection =
          engine.ProjectStatistic(config.config_id, static_cast<int>(i), request.confidence());
      if (!projection.ok()) return projection.status();
      *reply.mutable_projection() = ToProto(*projection, metric, config.metrics[i].unit);
      return reply;
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("metric: \"", metric,
                   "\" is not collected for this job; there are: ", absl::StrJoin(known, ", ")));
}

std::string Job::ConfigName(uint32_t config_id) const {
  if (config_id == abi::kConfigNone) return "";
  if (config_id == abi::kConfigTrace) return "trace";
  for (const counters::OnePassConfig& config : metric_set_->configs) {
    if (config.config_id == config_id) return metric_set_->name;
  }
  return absl::StrCat("configuration ", config_id);
}

int32_t Job::MeasurementsOf(uint32_t set) const {
  const auto it = measurements_.find(set);
  return it == measurements_.end() ? 0 : it->second;
}

std::map<int32_t, int64_t> Job::IterationsPerRank() const {
  std::map<int32_t, int64_t> ranks;
  for (const auto& [id, process] : processes_) {
    ranks[process->row.rank] += static_cast<int64_t>(process->iterations);
  }
  return ranks;
}

absl::StatusOr<v1::GetSeqPointsReply> Job::GetSeqPoints() const {
  v1::GetSeqPointsReply reply;
  const EngineTotals totals = engine_.Totals();
  if (totals.iterations == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("job \"", row_.name, "\": no iteration was found yet; SeqPoints need some"));
  }
  const int dimensions = rule_ ? static_cast<int>(rule_->rule.length_count) : 0;
  const std::vector<SeqPointInfo> points = engine_.SeqPoints(MakePlanOptions());
  double total_weight = 0;
  for (const SeqPointInfo& point : points) total_weight += point.weight;
  for (const SeqPointInfo& point : points) {
    v1::SeqPoint& to = *reply.add_seqpoints();
    const int64_t length[2] = {point.key.first, point.key.second};
    for (const int64_t value : UserLengths(length, dimensions)) to.add_lengths(value);
    to.set_weight(point.weight);
    to.set_share(total_weight > 0 ? point.weight / total_weight : 0);
    to.set_mean_duration_ns(engine_.PredictTime(point.key));
    to.set_measured(point.measured);
    to.set_wanted(point.wanted);
  }
  if (rule_) *reply.mutable_rule() = DescribeRule();
  reply.set_unique_lengths(static_cast<int64_t>(totals.unique_keys));
  reply.set_iterations(static_cast<int64_t>(totals.iterations));
  *reply.mutable_losses() = SumLosses();
  reply.set_job_id(absl::StrCat(row_.job_id));
  return reply;
}

absl::StatusOr<v1::GetCountersReply> Job::GetCounters(const v1::GetCountersRequest& request) const {
  std::optional<OnlineEngine> other;
  const auto found = EngineFor(request.has_horizon() ? &request.horizon() : nullptr, other);
  if (!found.ok()) return found.status();
  const OnlineEngine& engine = **found;
  const auto wanted = [&](const std::string& name) {
    return request.metrics().empty() ||
           std::find(request.metrics().begin(), request.metrics().end(), name) !=
               request.metrics().end();
  };
  v1::GetCountersReply reply;
  std::map<std::string, Projection> projected;
  std::string missing;
  for (const counters::OnePassConfig& config : metric_set_->configs) {
    for (size_t i = 0; i < config.metrics.size(); ++i) {
      const counters::Metric& metric = config.metrics[i];
      absl::StatusOr<Projection> projection =
          engine.ProjectStatistic(config.config_id, static_cast<int>(i), request.confidence());
      if (!projection.ok()) {
        missing = std::string(projection.status().message());
        if (!wanted(metric.name)) continue;
        v1::Counter& counter = *reply.add_counters();
        counter.set_metric(metric.name);
        counter.set_unit(metric.unit);
        counter.set_sentence(missing);
        continue;
      }
      projected[metric.name] = *projection;
      if (!wanted(metric.name)) continue;
      v1::Counter& counter = *reply.add_counters();
      counter.set_metric(metric.name);
      counter.set_unit(metric.unit);
      *counter.mutable_projection() = ToProto(*projection, metric.name, metric.unit);
      jobs::ToProto(Estimate{projection->per_1000.value / 1000, projection->per_1000.low / 1000,
                             projection->per_1000.high / 1000},
                    counter.mutable_per_iteration());
      counter.set_measured_iterations(MeasurementsOf(config.config_id));
      counter.set_complete(true);
    }
  }
  for (const counters::Ratio& ratio : metric_set_->ratios) {
    if (!wanted(ratio.name)) continue;
    const auto numerator = projected.find(ratio.numerator);
    const auto denominator = projected.find(ratio.denominator);
    v1::Counter& counter = *reply.add_counters();
    counter.set_metric(ratio.name);
    counter.set_unit(ratio.unit);
    counter.set_ratio(true);
    if (numerator == projected.end() || denominator == projected.end()) {
      counter.set_sentence(missing);
      continue;
    }
    const auto value = RatioOf(numerator->second.per_1000, denominator->second.per_1000);
    if (!value) {
      counter.set_sentence(absl::StrCat(ratio.denominator, " may be zero"));
      continue;
    }
    jobs::ToProto(
        Estimate{value->value * ratio.scale, value->low * ratio.scale, value->high * ratio.scale},
        counter.mutable_per_iteration());
    counter.set_complete(true);
  }
  if (projected.empty() && !missing.empty() && engine.Totals().iterations == 0) {
    return absl::FailedPreconditionError(absl::StrCat("job \"", row_.name, "\": ", missing));
  }
  reply.set_measured_iterations(engine.MakePlan(MakePlanOptions()).measured);
  *reply.mutable_losses() = SumLosses();
  reply.set_job_id(absl::StrCat(row_.job_id));
  return reply;
}

absl::StatusOr<v1::GetKernelsReply> Job::GetKernels(const v1::GetKernelsRequest& request) const {
  std::optional<OnlineEngine> other;
  const auto found = EngineFor(request.has_horizon() ? &request.horizon() : nullptr, other);
  if (!found.ok()) return found.status();
  const OnlineEngine& engine = **found;
  v1::GetKernelsReply reply;
  double total_ns = 0;
  std::vector<v1::Kernel> kernels;
  for (size_t i = 0; i < kernels_.size(); ++i) {
    const int index = static_cast<int>(i);
    const absl::StatusOr<Projection> time =
        engine.ProjectStatistic(kKernelTimeSet, index, request.confidence());
    if (!time.ok()) return time.status();
    const absl::StatusOr<Projection> launches =
        engine.ProjectStatistic(kKernelLaunchSet, index, request.confidence());
    if (!launches.ok()) return launches.status();
    v1::Kernel kernel;
    kernel.set_name(kernels_[i]);
    const Estimate& duration = time->total ? *time->total : time->so_far;
    jobs::ToProto(duration, kernel.mutable_duration_ns());
    kernel.set_launches(launches->total ? launches->total->value : launches->so_far.value);
    total_ns += duration.value;
    reply.set_horizon_kind(time->total ? horizon_.kind() : v1::Horizon::KIND_UNKNOWN);
    kernels.push_back(std::move(kernel));
  }
  if (kernels.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "job \"", row_.name, "\": no iteration was traced yet; kernels are known after the first"));
  }
  std::sort(kernels.begin(), kernels.end(), [](const v1::Kernel& a, const v1::Kernel& b) {
    return a.duration_ns().value() > b.duration_ns().value();
  });
  const int limit = request.limit() > 0 ? request.limit() : static_cast<int>(kernels.size());
  for (v1::Kernel& kernel : kernels) {
    if (reply.kernels_size() == limit) break;
    kernel.set_share(total_ns > 0 ? kernel.duration_ns().value() / total_ns : 0);
    *reply.add_kernels() = std::move(kernel);
  }
  reply.set_kernel_names(static_cast<int32_t>(kernels.size()));
  reply.set_measured_iterations(MeasurementsOf(kKernelTimeSet));
  reply.set_confidence(request.confidence());
  *reply.mutable_losses() = SumLosses();
  reply.set_job_id(absl::StrCat(row_.job_id));
  return reply;
}

// ---------------------------------------------------------------------------------- the store

void Job::TakeRows(WriteBatch& batch) {
  for (auto& [id, process] : processes_) {
    if (process->learn_log.empty()) continue;
    batch.trace_segments.push_back({.job_id = row_.job_id,
                                    .rank = process->row.rank,
                                    .number = LearnLogNumber(id),
                                    .process_id = process->row.process_id,
                                    .records = std::exchange(process->learn_log, {})});
  }
  if (job_dirty_) batch.jobs.push_back(row_);
  const auto move = [](auto& from, auto& to) {
    to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
    from.clear();
  };
  move(rows_.processes, batch.processes);
  move(rows_.names, batch.names);
  move(rows_.iterations, batch.iterations);
  move(rows_.configs, batch.configs);
  move(rows_.measurements, batch.measurements);
  move(rows_.trace_segments, batch.trace_segments);
  if (state_dirty_) {
    batch.states.push_back({.job_id = row_.job_id,
                            .part = kJobPart,
                            .version = kJobStateVersion,
                            .bytes = SaveState().SerializeAsString()});
  }
  if (engine_dirty_) {
    batch.states.push_back({.job_id = row_.job_id,
                            .part = kEnginePart,
                            .version = kJobStateVersion,
                            .bytes = engine_.Serialize()});
  }
  job_dirty_ = state_dirty_ = engine_dirty_ = false;
}

JobState Job::SaveState() const {
  JobState state;
  if (rule_) {
    state.set_rule(std::string(reinterpret_cast<const char*>(&rule_->rule), sizeof(abi::Rule)));
    state.set_boundary_words(rule_->boundary_words);
    state.set_length_words(rule_->length_words);
    state.set_confidence(rule_->confidence);
  }
  for (const auto& [id, process] : processes_) {
    ProcessState& to = *state.add_processes();
    to.set_process_id(id);
    to.set_phase(process->learning ? 0 : 1);
    to.set_number_offset(process->number_offset);
    to.set_marked_from(process->marked_from);
    EncodeBuilder(process->builder.SaveState(), to.mutable_builder());
    for (const auto& [number, measurements] : process->waiting) {
      for (const WaitingMeasurement& measurement : measurements) *to.add_waiting() = measurement;
    }
    *to.mutable_losses() = process->losses;
    for (const auto& [number, feature] : process->features) *to.add_features() = feature;
    to.set_stopped_duration_ns(process->stopped_ns);
    to.set_level(process->level);
    to.set_measurements_started(process->measurements_started);
    to.set_clock_kind(process->clock_kind);
    to.set_iterations(process->iterations);
    if (process->learning) process->learning->SaveQueue(to.mutable_library_events());
  }
  for (const std::string& kernel : kernels_) state.add_kernels(kernel);
  *state.mutable_horizon() = horizon_;
  state.set_overhead_budget_share(options_.overhead_budget_share);
  state.set_paused(paused_);
  state.set_released(released_);
  state.set_forced_level(forced_level_);
  for (int i = 0; i < 2; ++i) {
    state.add_factor(factor_[i]);
    LengthHistogramState& histogram = *state.add_observed();
    for (const auto& [value, count] : observed_[i]) {
      LengthCountState& entry = *histogram.add_counts();
      entry.set_value(value);
      entry.set_count(count);
    }
  }
  state.set_swapped(swapped_);
  state.set_horizon_applied(horizon_applied_);
  state.set_other_batches(other_batches_);
  state.set_other_duration_ns(other_duration_ns_);
  state.set_next_number(next_number_);
  state.set_sentence(sentence_);
  state.set_rule_generation(rule_generation_);
  state.set_control_generation(control_generation_);
  for (const auto& [set, count] : measurements_) (*state.mutable_measurements())[set] = count;
  return state;
}

void Job::RestoreProcess(const ProcessState& saved, Process& process) {
  if (saved.phase() == 1) process.learning.reset();
  process.number_offset = saved.number_offset();
  process.marked_from = saved.marked_from();
  process.builder.LoadState(DecodeBuilder(saved.builder()));
  for (const WaitingMeasurement& measurement : saved.waiting()) {
    process.waiting[measurement.number()].push_back(measurement);
  }
  process.losses = saved.losses();
  for (const v1::Feature& feature : saved.features()) {
    for (uint16_t i = 1; i < static_cast<uint16_t>(abi::Feature::kCount); ++i) {
      if (FeatureName(i) == feature.name()) process.features[i] = feature;
    }
  }
  process.stopped_ns = saved.stopped_duration_ns();
  process.level = static_cast<uint8_t>(saved.level());
  process.measurements_started = saved.measurements_started();
  process.clock_kind = saved.clock_kind();
  process.iterations = saved.iterations();
  if (process.learning) process.learning->LoadQueue(saved.library_events());
}

void Job::SetName(Process& process, const NameRow& name) {
  if (name.name_id >= process.names.size()) process.names.resize(name.name_id + 1);
  process.names[name.name_id] = {.hash = name.name_hash, .text = name.text};
  if (process.learning) process.learning->OnName(name.name_id, name.text);
}

absl::Status Job::Restore(const std::vector<StateRow>& states,
                          const std::vector<StoredProcess>& processes) {
  const auto refuse = [&](std::string_view what, std::string_view why) {
    // What is stored stays as it is, for the version that can read it.
    job_dirty_ = state_dirty_ = engine_dirty_ = false;
    rows_.Clear();
    sentence_ = absl::StrCat("the stored ", std::string(what), " state of job \"", row_.name, "@",
                             row_.run_id, "\" cannot be read (", std::string(why),
                             "); its iterations and measurements are still there: `seqpoint "
                             "iterations`, `seqpoint export --csv`");
    return absl::DataLossError(sentence_);
  };
  JobState state;
  for (const StateRow& row : states) {
    if (row.version != kJobStateVersion) {
      return refuse(row.part, absl::StrCat("version ", row.version, ", this daemon knows ",
                                           kJobStateVersion));
    }
    if (row.part == kJobPart && !state.ParseFromString(row.bytes)) {
      return refuse(row.part, "damaged");
    }
    if (row.part == kEnginePart) {
      absl::StatusOr<OnlineEngine> engine = OnlineEngine::Parse(row.bytes);
      if (!engine.ok()) {
        return refuse(row.part, std::string_view(engine.status().message().data(),
                                                 engine.status().message().size()));
      }
      engine_ = *std::move(engine);
    }
  }
  if (state.rule().size() == sizeof(abi::Rule)) {
    LearnedRule rule;
    std::memcpy(&rule.rule, state.rule().data(), sizeof(abi::Rule));
    rule.boundary_words = state.boundary_words();
    rule.length_words = state.length_words();
    rule.confidence = state.confidence();
    rule_ = std::move(rule);
  }
  for (const std::string& kernel : state.kernels()) KernelIndex(kernel);
  horizon_ = state.horizon();
  horizon_applied_ = state.horizon_applied();
  options_.overhead_budget_share = state.overhead_budget_share();
  paused_ = state.paused();
  released_ = state.released();
  forced_level_ = static_cast<v1::Level>(state.forced_level());
  for (int i = 0; i < 2 && i < state.factor_size(); ++i) factor_[i] = state.factor(i);
  for (int i = 0; i < 2 && i < state.observed_size(); ++i) {
    for (const LengthCountState& entry : state.observed(i).counts()) {
      observed_[i][entry.value()] = entry.count();
    }
  }
  swapped_ = state.swapped();
  other_batches_ = state.other_batches();
  other_duration_ns_ = state.other_duration_ns();
  next_number_ = static_cast<int64_t>(state.next_number());
  sentence_ = state.sentence();
  rule_generation_ = state.rule_generation();
  control_generation_ = state.control_generation();
  for (const auto& [set, count] : state.measurements()) measurements_[set] = count;
  for (const StoredProcess& stored : processes) {
    const int64_t process_id = stored.row.process_id;
    Process& process = *(processes_[process_id] = std::make_unique<Process>(stored.row));
    process.learning = std::make_unique<Learning>();
    process.learning->SetFirstNumber(next_number_);
    if (rule_) process.learning->SetRule(rule_->rule);
    for (const NameRow& name : stored.names) SetName(process, name);
    for (const ProcessState& saved : state.processes()) {
      if (saved.process_id() == process_id) RestoreProcess(saved, process);
    }
    if (!process.learning) continue;
    std::vector<abi::DataRecord> log(stored.learn_log.size() / sizeof(abi::DataRecord));
    std::memcpy(log.data(), stored.learn_log.data(), log.size() * sizeof(abi::DataRecord));
    OnData(process_id, log);
    process.learn_log.clear();
  }
  plan_stale_ = true;
  job_dirty_ = state_dirty_ = engine_dirty_ = false;
  rows_.Clear();
  return absl::OkStatus();
}

}  // namespace seqpoint::jobs
