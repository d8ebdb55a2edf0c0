// Reports of a job's processes: made on a node, taken on a hub.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "daemon/base/saturate.h"
#include "daemon/base/status_macros.h"
#include "daemon/jobs/coordinated_windows.h"
#include "daemon/jobs/job.h"
#include "daemon/jobs/payload.h"
#include "daemon/jobs/process.h"
#include "daemon/jobs/rule_codec.h"

namespace seqpoint::jobs {
namespace {

absl::Status Contradicts(const Process& process, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("a report of process ", process.row.pid, " on ",
                                                 process.row.host, " cannot be: ", what));
}

// A number that no process reaches.
constexpr uint64_t kLargestNumber = uint64_t{1} << 50;

// Records in one report have at most so many bytes, as a hub reads batches of at most 4 MiB. A hub
// that lacks them asks.
constexpr size_t kMostWorkBytes = 1 << 20;
constexpr size_t kMostAwaiting = 1 << 20;  // iterations of ranks in open steps; 100 MB or so
// Checks are closer together than this, but for a hub that was stopped, when nothing could come.
constexpr int64_t kMostBetweenChecksNs = 2'000'000'000;

// Times from another machine. What is beyond 2^61 ns is no time of CLOCK_REALTIME, and what lasts
// longer than 2^50 ns (13 days) no iteration.
bool IsTime(int64_t ns) { return ns >= 0 && ns <= int64_t{1} << 61; }
bool IsDuration(int64_t ns) { return ns >= 0 && ns <= int64_t{1} << 50; }

uint64_t Unsigned(int64_t value) { return value < 0 ? 0 : static_cast<uint64_t>(value); }

}  // namespace

bool IsOfIterations(abi::EventType type, absl::Span<const uint8_t> payload) {
  switch (type) {
    case abi::EventType::kBoundary:
    case abi::EventType::kStep:
    case abi::EventType::kClock:
    case abi::EventType::kSync:
    case abi::EventType::kMicroBatch:
      return true;
    case abi::EventType::kDecision: {
      const auto event = Fixed<abi::DecisionEvent>(payload);
      return !event || event->config_id == abi::kConfigNone;
    }
    default:
      return false;
  }
}

// ---------------------------------------------------------------------------------------- a node's

void Job::ReportStart(const Process& process) {
  if (!reports_.on()) return;
  v1::ReportedProcess started;
  started.set_job(row_.name);
  started.set_run_id(row_.run_id);
  started.set_command(row_.command);
  started.set_rank(process.row.rank);
  started.set_pid(process.row.pid);
  started.set_host(process.row.host);
  started.set_hello(process.row.text);
  started.set_start_ns(process.row.start_ns);
  started.set_ring_id(process.row.ring_id);
  started.set_metrics(metrics_.choice().state().SerializeAsString());
  started.set_overhead_budget_share(orders_.state().overhead_budget_share());
  reports_.Add(process.row.process_id, std::move(started));
  // Each later one is reported when it is set.
  const v1::Horizon& horizon = matching_.horizon();
  if (processes_.size() > 1 || horizon.kind() == v1::Horizon::KIND_UNKNOWN) return;
  reports_.Add(process.row.process_id, horizon);
}

void Job::ReportRule(const Process& process, bool marks) {
  if (!reports_.on()) return;
  v1::ReportedRule report;
  *report.mutable_rule() = EncodeRule(*rule_);
  if (marks) {
    report.set_number_offset(process.state.number_offset() - process.state.first_number());
  }
  report.set_host_times(facts_.host_times());
  if (process.state.unmatched()) {
    report.set_after_hole(
        std::max<int64_t>(process.state.renumbered_from() - process.state.first_number(), 0));
  }
  reports_.Add(process.row.process_id, std::move(report));
}

void Job::ReportIteration(const Process& process, const FinishedIteration& iteration) {
  if (!reports_.on()) return;
  FinishedIteration report = iteration;
  report.set_number(iteration.number() - static_cast<uint64_t>(process.state.first_number()));
  reports_.Add(process.row.process_id, std::move(report));
}

// Few names of a process are in what a hub needs.
void Job::ReportName(Process& process, uint32_t name_id) {
  const ProcessNames::Name* const name = process.names.Find(name_id);
  if (name == nullptr || !reports_.AddName(process.row.process_id, name_id)) return;
  const abi::NameEvent event = {.name_id = name_id,
                                .length = static_cast<uint32_t>(name->text.size()),
                                .name_hash = abi::NameHash(name->text.data(), name->text.size())};
  v1::ReportedEvent report;
  report.set_type(static_cast<uint32_t>(abi::EventType::kName));
  report.set_payload(&event, sizeof(event));
  report.mutable_payload()->append(name->text);
  reports_.Add(process.row.process_id, std::move(report));
}

void Job::ReportEvent(Process& process, abi::EventType type, absl::Span<const uint8_t> payload) {
  if (!reports_.on() || type == abi::EventType::kName || IsOfIterations(type, payload)) return;
  if (type == abi::EventType::kKernelCounters) {
    if (const auto event = Fixed<abi::KernelCountersEvent>(payload)) {
      ReportName(process, event->name_id);
    }
  }
  v1::ReportedEvent report;
  report.set_type(static_cast<uint32_t>(type));
  report.set_payload(payload.data(), payload.size());
  reports_.Add(process.row.process_id, std::move(report));
}

void Job::ReportWork(Process& process, const TraceWindows::Work& work,
                     const KernelStatistics::Sums& sums) {
  if (!reports_.on()) return;
  v1::ReportedWork report;
  report.set_number(work.number - static_cast<uint64_t>(process.state.first_number()));
  for (size_t i = 0; i < sums.launches.size(); ++i) {
    if (sums.launches[i] == 0) continue;
    report.add_kernels(kernels_.names()[i]);
    report.add_time_ns(sums.time_ns[i]);
    report.add_launches(sums.launches[i]);
  }
  const size_t bytes = work.records.size() * sizeof(abi::DataRecord);
  if (jobs::IsShared(work.number, process.state.measurements()) && bytes <= kMostWorkBytes) {
    for (const abi::DataRecord& record : work.records) {
      const bool kernel = record.type == static_cast<uint16_t>(abi::DataType::kKernel);
      if (kernel) ReportName(process, record.kernel.name_id);
    }
    report.set_records(work.records.data(), bytes);
  }
  reports_.Add(process.row.process_id, std::move(report));
}

void Job::ReportLosses(const Process& process) {
  if (!reports_.on()) return;
  const v1::Losses& losses = process.state.losses();
  v1::ReportedLosses report;
  report.set_dropped(losses.ring_dropped());
  report.set_events_dropped(Saturate(process.state.events_dropped()));
  report.set_lost(losses.ring_lost());
  report.set_rejected(losses.rejected());
  report.set_cupti_dropped(losses.cupti_dropped());
  report.set_invalid_timestamps(losses.invalid_timestamps());
  report.set_unstored_records(losses.unstored_records());
  report.set_clock_kind(process.state.clock_kind());
  report.set_missing_calls(Saturate(process.state.missing_calls()));
  report.set_missing_since_ns(process.state.missing_since_ns());
  reports_.AddLosses(process.row.process_id, std::move(report));
}

void Job::ReportEnd(const Process& process, bool failed) {
  v1::ReportedEnd report;
  report.set_orderly(!process.row.lost);
  report.set_failed(failed);
  report.set_end_ns(process.row.end_ns);
  reports_.Add(process.row.process_id, std::move(report));
}

void Job::ReportProgramEnd(const ProgramEndState& end) {
  if (!reports_.on()) return;
  v1::ReportedProgramEnd report;
  report.set_job(row_.name);
  report.set_run_id(row_.run_id);
  report.set_launch(end.launch());
  report.set_exit_status(end.exit_status());
  report.set_signal(end.signal());
  reports_.Add(0, std::move(report));
}

void Job::FollowHub(int64_t process_id, std::optional<LearnedRule> rule, const abi::Control& plan) {
  Process& process = processes_.at(process_id);
  process.hub_plan = plan;
  process.control_made = 0;
  if (!rule) return;
  if (hub_rule_ && !SameEvents(hub_rule_->rule, rule->rule)) hub_rule_refused_ = false;
  hub_rule_ = std::move(rule);
  if (!rule_ || hub_rule_refused_ || SameEvents(rule_->rule, hub_rule_->rule)) return;
  Relearn("the ranks on other nodes follow another one");
}

void Job::FollowOrders(const v1::HubOrders& orders) {
  const auto iterations = static_cast<int64_t>(engines_.steps().Totals().iterations);
  if (!orders_.Follow(orders, iterations, *facts_.mutable_gap())) return;
  changes_.Mark(Change::kOrders);
  UpdatePlan();
}

void Job::LeaveHub() {
  for (auto& [id, process] : processes_) {
    if (process->hub_plan) process->control_made = 0;
    process->hub_plan.reset();
  }
}

LearnedRule Job::PreferHubs(LearnedRule own) {
  if (!hub_rule_) return own;
  hub_rule_refused_ = !common_rule_.FitsAll(*hub_rule_, processes_);
  return hub_rule_refused_ ? own : *hub_rule_;
}

// ----------------------------------------------------------------------------------------- a hub's

void Job::AddReportedProcess(const ProcessRow& row) {
  AddProcess(row);
  processes_.at(row.process_id).state.set_reported(true);
  AwaitRanks();
}

bool Job::AnyUnheard() const {
  return static_cast<int64_t>(processes_.rank_count()) < ranks_.world_size();
}

std::set<int32_t> Job::UnheardRanks() const {
  std::set<int32_t> ranks;
  if (!AnyUnheard()) return ranks;
  for (int32_t rank = 0; rank < ranks_.world_size(); ++rank) {
    if (processes_.OfRank(rank).empty()) ranks.insert(ranks.end(), rank);
  }
  return ranks;
}

void Job::AwaitRanks() {
  awaits_ranks_ = AnyUnheard();
  awaits_ranks_since_ns_ = 0;
  if (awaits_ranks_ && !engines_.split()) SplitRanks();
}

void Job::CheckAwaitedRanks(int64_t monotonic_ns) {
  if (!awaits_ranks_) return;
  if (awaits_ranks_since_ns_ == 0) awaits_ranks_since_ns_ = monotonic_ns;
  const size_t waiting = engines_.builder().open_steps() * ranks_.next_numbers().size();
  awaits_ranks_ = AnyUnheard() && waiting < kMostAwaiting &&
                  monotonic_ns - awaits_ranks_since_ns_ < kPatienceForRanksNs;
  if (awaits_ranks_) return;
  AddSteps();
  changes_.Mark(Change::kDescription);
}

void Job::CheckDelayedStep(int64_t monotonic_ns) {
  if (!engines_.split() || !processes_.any_reported()) return;
  const int64_t passed_ns = monotonic_ns - std::exchange(delay_checked_ns_, monotonic_ns);
  const int64_t step = engines_.builder().DelayedStep(processes_.LiveRanks());
  if (step < 0 || std::exchange(delayed_step_, step) != step) {
    delayed_ns_ = 0;
    return;
  }
  delayed_ns_ += std::min(passed_ns, kMostBetweenChecksNs);
  const size_t waiting = engines_.builder().open_steps() * ranks_.next_numbers().size();
  if (waiting >= kMostAwaiting) delayed_ns_ = kPatienceForRanksNs;
  if (delayed_ns_ < kPatienceForRanksNs) return;
  AddSteps();
  delayed_ns_ = 0;
  changes_.Mark(Change::kDescription);
}

absl::Status Job::SetReportedOptions(const v1::ReportedProcess& report) {
  const double share = report.overhead_budget_share();
  if (!(share >= 0 && share <= 1)) {
    return absl::InvalidArgumentError(absl::StrCat("a share of ", share, " of the time"));
  }
  MetricChoiceState state;
  if (!state.ParseFromString(report.metrics())) {
    return absl::InvalidArgumentError("the choice of metrics is damaged");
  }
  // A client of the hub may have said more already.
  if (orders_.state().number() == 0) orders_.SetOverheadBudget(share);
  SEQPOINT_ASSIGN_OR_RETURN(MetricChoice restored, MetricChoice::Restore(state));
  return SetMetrics(std::move(restored));
}

std::optional<v1::LearnedRule> Job::EncodedRule() const {
  return rule_ ? std::optional(EncodeRule(*rule_)) : std::nullopt;
}

absl::Status Job::OnReport(int64_t process_id, const Report::What& report) {
  Process& process = processes_.at(process_id);
  if (!process.alive()) return Contradicts(process, "it has ended");
  changes_.Mark(Change::kRecords);
  return std::visit(
      [&]<typename What>(const What& what) {
        if constexpr (std::is_same_v<What, v1::ReportedProcess>) {
          return Contradicts(process, "it has started before");
        } else if constexpr (std::is_same_v<What, v1::ReportedProgramEnd>) {
          return Contradicts(process, "it is one of a program's");
        } else {
          return OnReported(process, what);
        }
      },
      report);
}

void Job::FollowRule(const Process& process, LearnedRule rule) {
  for (auto& [id, other] : processes_) {
    if (other->alive() && !other->learning) other->state.set_other_rule(other.get() != &process);
  }
  facts_.set_relearned(absl::StrCat("rank ", process.row.rank,
                                    ": the rule was learned again at iteration ",
                                    engines_.steps().Totals().iterations));
  AddStepsOf({});  // their keys are those of the old rule
  former_rule_ = std::exchange(rule_, std::nullopt);
  plan_.Clear();
  OnRuleLearned(std::move(rule));
}

absl::Status Job::OnReported(Process& process, const v1::ReportedRule& report) {
  std::optional<LearnedRule> rule = DecodeRule(report.rule());
  if (!rule) return Contradicts(process, "its rule is damaged");
  constexpr auto kMost = static_cast<int64_t>(kLargestNumber);
  if (std::abs(report.number_offset() / 2) > kMost / 2 || report.after_hole() < 0 ||
      report.after_hole() > kMost) {
    return Contradicts(process, "its numbers");
  }
  if (report.host_times()) facts_.set_host_times(true);
  const bool followed = !process.learning && !process.state.other_rule();
  if (!rule_) {
    OnRuleLearned(*rule);
  } else if (followed && !SameEvents(rule_->rule, rule->rule)) {
    FollowRule(process, *rule);
  }
  if (report.has_after_hole()) {
    process.SetUnmatched(report.after_hole() + process.state.first_number());
  }
  process.state.set_other_rule(!SameEvents(rule_->rule, rule->rule));
  if (report.has_number_offset()) {
    process.state.set_number_offset(report.number_offset() + process.state.first_number());
    process.state.set_marked_from(process.builder.next_number());
    process.learning.reset();
    row_.state = v1::JOB_STATE_MARKING;
  }
  changes_.Mark(Change::kRule);
  return absl::OkStatus();
}

absl::Status Job::OnReported(Process& process, const FinishedIteration& report) {
  if (report.number() > kLargestNumber) {
    return Contradicts(process, absl::StrCat("iteration ", report.number()));
  }
  if (!rule_) return Contradicts(process, "an iteration without a rule");
  if (!IsTime(report.boundary_ns()) || !IsTime(report.start_ns()) ||
      !IsDuration(report.duration_ns()) || !IsDuration(report.rest_ns()) ||
      !IsDuration(report.stretch_ns()) || !IsDuration(report.other_duration_ns())) {
    return Contradicts(process, absl::StrCat("the times of iteration ", report.number()));
  }
  FinishedIteration iteration = report;
  iteration.set_number(report.number() + static_cast<uint64_t>(process.state.first_number()));
  if (process.state.other_rule()) {
    iteration.set_valid(0);
    iteration.clear_micro_lengths();
  }
  process.builder.Add(std::move(iteration));
  process.state.set_missing_events(false);  // its number covers what came before
  return absl::OkStatus();
}

absl::Status Job::OnReported(Process& process, const v1::ReportedEvent& report) {
  const std::string& text = report.payload();
  const absl::Span<const uint8_t> payload(reinterpret_cast<const uint8_t*>(text.data()),
                                          text.size());
  if (report.type() > std::numeric_limits<uint16_t>::max()) {
    return Contradicts(process, absl::StrCat("event ", report.type()));
  }
  const auto type = static_cast<abi::EventType>(report.type());
  if (IsOfIterations(type, payload)) return Contradicts(process, "an event of an iteration");
  OnEvent(process.row.process_id, type, payload);
  return absl::OkStatus();
}

absl::Status Job::OnReported(Process& process, const abi::DataRecord& report) {
  const auto type = static_cast<abi::DataType>(report.type);
  if (type != abi::DataType::kArrivals && type != abi::DataType::kCollective) {
    return Contradicts(process, absl::StrCat("record ", report.type, " of a collective"));
  }
  OnCollectives(process.row.process_id, report);
  return absl::OkStatus();
}

absl::Status Job::OnReported(Process& process, const v1::ReportedWork& report) {
  const int count = report.kernels_size();
  if (report.time_ns_size() != count || report.launches_size() != count) {
    return Contradicts(process, "kernels without a time or without launches");
  }
  if (report.number() > kLargestNumber) {
    return Contradicts(process, absl::StrCat("work of iteration ", report.number()));
  }
  if (report.records().size() % sizeof(abi::DataRecord) != 0) {
    return Contradicts(process, absl::StrCat(report.records().size(), " bytes of records"));
  }
  KernelStatistics::Sums sums;
  for (int i = 0; i < count; ++i) {
    const auto kernel = static_cast<size_t>(kernels_.IndexOf(report.kernels(i)));
    if (kernel >= sums.time_ns.size()) {
      sums.time_ns.resize(kernel + 1);
      sums.launches.resize(kernel + 1);
    }
    sums.time_ns[kernel] += report.time_ns(i);
    sums.launches[kernel] += report.launches(i);
  }
  sums.time_ns.resize(std::max(sums.time_ns.size(), std::min(kernels_.names().size(), kMaxValues)));
  sums.launches.resize(sums.time_ns.size());
  const uint64_t number = report.number() + static_cast<uint64_t>(process.state.first_number());
  if (!report.records().empty()) {
    std::vector<abi::DataRecord> records(report.records().size() / sizeof(abi::DataRecord));
    std::memcpy(records.data(), report.records().data(), records.size() * sizeof(records[0]));
    const int64_t job_number = process.JobNumber(number);
    diagnosis_.windows().AddWork(process.row.rank, job_number, records, process.names);
    AddTraceSegment(process, job_number, report.records());
  }
  AddWork(process, number, sums);
  process.state.set_work_reported_to(static_cast<int64_t>(report.number()));
  return absl::OkStatus();
}

absl::Status Job::OnReported(Process& process, const v1::ReportedLosses& report) {
  process.state.set_missing_calls(Unsigned(report.missing_calls()));
  process.state.set_missing_since_ns(report.missing_since_ns());
  OnLosses(process.row.process_id, {.dropped = Unsigned(report.dropped()),
                                    .events_dropped = Unsigned(report.events_dropped()),
                                    .lost = Unsigned(report.lost()),
                                    .rejected = Unsigned(report.rejected()),
                                    .cupti_dropped = Unsigned(report.cupti_dropped()),
                                    .invalid_timestamps = Unsigned(report.invalid_timestamps()),
                                    .unstored_records = Unsigned(report.unstored_records()),
                                    .clock_kind = report.clock_kind()});
  return absl::OkStatus();
}

absl::Status Job::OnReported(Process&, const v1::Horizon& report) {
  if (report.SerializeAsString() == matching_.horizon().SerializeAsString()) {
    return absl::OkStatus();
  }
  return SetHorizon(report);
}

absl::Status Job::OnReported(Process& process, const v1::ReportedEnd& report) {
  if (report.end_ns() <= 0 || !IsTime(report.end_ns())) {
    return Contradicts(process, "an end without a time");
  }
  OnProcessEnd(process.row.process_id, report.orderly(), report.end_ns(), report.failed());
  return absl::OkStatus();
}

}  // namespace seqpoint::jobs
