// Reports of a job's processes: made on a node, taken on a hub.
#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "daemon/base/saturate.h"
#include "daemon/base/status_macros.h"
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
  reports_.Add(process.row.process_id, std::move(started));
}

void Job::ReportRule(const Process& process, bool marks) {
  v1::ReportedRule report;
  *report.mutable_rule() = EncodeRule(*rule_);
  if (marks) {
    report.set_number_offset(process.state.number_offset() - process.state.first_number());
  }
  report.set_host_times(facts_.host_times());
  reports_.Add(process.row.process_id, std::move(report));
}

void Job::ReportIteration(const Process& process, const FinishedIteration& iteration) {
  if (!reports_.on()) return;
  FinishedIteration report = iteration;
  report.set_number(iteration.number() - static_cast<uint64_t>(process.state.first_number()));
  reports_.Add(process.row.process_id, std::move(report));
}

void Job::ReportEvent(Process& process, abi::EventType type, absl::Span<const uint8_t> payload) {
  if (!reports_.on() || type == abi::EventType::kName || IsOfIterations(type, payload)) return;
  const auto add = [&](abi::EventType of, absl::Span<const uint8_t> bytes) {
    v1::ReportedEvent report;
    report.set_type(static_cast<uint32_t>(of));
    report.set_payload(bytes.data(), bytes.size());
    reports_.Add(process.row.process_id, std::move(report));
  };
  // Few names of a process are in what a hub needs.
  if (type == abi::EventType::kKernelCounters) {
    const auto event = Fixed<abi::KernelCountersEvent>(payload);
    const ProcessNames::Name* const name = event ? process.names.Find(event->name_id) : nullptr;
    if (name != nullptr && reports_.AddName(process.row.process_id, event->name_id)) {
      abi::NameEvent told = {.name_id = event->name_id,
                             .length = static_cast<uint32_t>(name->text.size())};
      std::string bytes(reinterpret_cast<const char*>(&told), sizeof(told));
      bytes += name->text;
      add(abi::EventType::kName, {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
    }
  }
  add(type, payload);
}

void Job::ReportWork(const Process& process, uint64_t number, const KernelStatistics::Sums& sums) {
  if (!reports_.on()) return;
  v1::ReportedWork report;
  report.set_number(number - static_cast<uint64_t>(process.state.first_number()));
  for (size_t i = 0; i < sums.launches.size(); ++i) {
    if (sums.launches[i] == 0) continue;
    report.add_kernels(kernels_.names()[i]);
    report.add_time_ns(sums.time_ns[i]);
    report.add_launches(sums.launches[i]);
  }
  reports_.Add(process.row.process_id, std::move(report));
}

void Job::ReportLosses(const Process& process, const RingLosses& losses) {
  v1::ReportedLosses report;
  report.set_dropped(Saturate(losses.dropped));
  report.set_events_dropped(Saturate(losses.events_dropped));
  report.set_lost(Saturate(losses.lost));
  report.set_rejected(process.state.losses().rejected());
  report.set_cupti_dropped(Saturate(losses.cupti_dropped));
  report.set_invalid_timestamps(Saturate(losses.invalid_timestamps));
  report.set_clock_kind(losses.clock_kind);
  report.set_missing_calls(Saturate(process.state.missing_calls()));
  report.set_missing_since_ns(process.state.missing_since_ns());
  reports_.Add(process.row.process_id, std::move(report));
}

void Job::ReportEnd(const Process& process, bool failed) {
  v1::ReportedEnd report;
  report.set_orderly(!process.row.lost);
  report.set_failed(failed);
  report.set_end_ns(process.row.end_ns);
  reports_.Add(process.row.process_id, std::move(report));
}

// ----------------------------------------------------------------------------------------- a hub's

void Job::AddReportedProcess(const ProcessRow& row) {
  AddProcess(row);
  processes_.at(row.process_id).state.set_reported(true);
}

absl::Status Job::OnReport(int64_t process_id, const Report::What& report) {
  Process& process = processes_.at(process_id);
  if (!process.alive()) return Contradicts(process, "it has ended");
  changes_.Mark(Change::kRecords);
  return std::visit(
      [&]<typename What>(const What& what) {
        if constexpr (std::is_same_v<What, v1::ReportedProcess>) {
          return Contradicts(process, "it has started before");
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
  AddSteps({});  // their keys are those of the old rule
  former_rule_ = std::exchange(rule_, std::nullopt);
  plan_.Clear();
  OnRuleLearned(std::move(rule));
}

absl::Status Job::OnReported(Process& process, const v1::ReportedRule& report) {
  std::optional<LearnedRule> rule = DecodeRule(report.rule());
  if (!rule) return Contradicts(process, "its rule is damaged");
  if (report.host_times()) facts_.set_host_times(true);
  const bool followed = !process.learning && !process.state.other_rule();
  if (!rule_) {
    OnRuleLearned(*rule);
  } else if (followed && !SameEvents(rule_->rule, rule->rule)) {
    FollowRule(process, *rule);
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
  AddWork(process, report.number() + static_cast<uint64_t>(process.state.first_number()), sums);
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
                                    .clock_kind = report.clock_kind()});
  return absl::OkStatus();
}

absl::Status Job::OnReported(Process& process, const v1::ReportedEnd& report) {
  if (report.end_ns() <= 0) return Contradicts(process, "an end without a time");
  OnProcessEnd(process.row.process_id, report.orderly(), report.end_ns(), report.failed());
  return absl::OkStatus();
}

}  // namespace seqpoint::jobs
