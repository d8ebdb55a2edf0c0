// A job's description.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/base/saturate.h"
#include "daemon/jobs/figures.h"
#include "daemon/jobs/hello.h"
#include "daemon/jobs/job.h"
#include "daemon/jobs/process.h"

namespace seqpoint::jobs {
namespace {

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

}  // namespace

v1::ClockKind Job::clock_kind() const {
  v1::ClockKind kind = v1::CLOCK_KIND_UNSPECIFIED;
  for (const auto& [id, process] : processes_) {
    const auto of_process =
        static_cast<v1::ClockKind>(std::min<uint32_t>(process->state.clock_kind(), 2));
    if (of_process != v1::CLOCK_KIND_UNSPECIFIED) kind = of_process;
  }
  return kind;
}

v1::Losses Job::SumLosses() const {
  v1::Losses sum;
  int64_t open_ends = 0;
  for (const auto& [id, process] : processes_) {
    const v1::Losses& losses = process->state.losses();
    sum.set_ring_dropped(SaturatedSum(sum.ring_dropped(), losses.ring_dropped()));
    sum.set_ring_lost(SaturatedSum(SaturatedSum(sum.ring_lost(), losses.ring_lost()),
                                   Saturate(process->builder.lost_iterations())));
    sum.set_rejected(SaturatedSum(sum.rejected(), losses.rejected()));
    sum.set_cupti_dropped(SaturatedSum(sum.cupti_dropped(), losses.cupti_dropped()));
    // The ranks of a node have one clock.
    sum.set_clock_steps(std::max(sum.clock_steps(), losses.clock_steps()));
    sum.set_invalid_timestamps(SaturatedSum(sum.invalid_timestamps(), losses.invalid_timestamps()));
    if (process->uncounted() && !process->state.concurrent()) {
      sum.set_uncounted_processes(sum.uncounted_processes() + 1);
    }
    // The last iteration of a process has no end, and that is no loss.
    if (process->state.open_end()) ++open_ends;
  }
  const EngineTotals totals = engines_.work().Totals();
  sum.set_distorted_iterations(static_cast<int64_t>(totals.distorted));
  sum.set_redone_iterations(static_cast<int64_t>(totals.redone));
  sum.set_untimed_iterations(
      std::max<int64_t>(static_cast<int64_t>(totals.untimed) - open_ends, 0));
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
  rule.set_sentence(WhyUntimed());
  for (const std::string* sentence : {&matching_.message(), &facts_.relearned(), &facts_.gap()}) {
    if (rule.sentence().empty()) rule.set_sentence(*sentence);
  }
  return rule;
}

void Job::SetExpectedEnd(v1::Job& job) const {
  const v1::Projection& time = job.time();
  const int64_t so_far = job.iterations(), total = time.iterations_total();
  if (!live() || orders_.state().released() || clock_kind() != v1::CLOCK_KIND_REAL ||
      so_far >= total)
    return;
  if (!time.has_remaining()) return;
  const Process* lowest = nullptr;
  for (const auto& [id, process] : processes_) {
    if (!process->alive() || process->state.concurrent() || process->state.iterations() == 0)
      continue;
    if (lowest == nullptr || process->row.rank < lowest->row.rank) lowest = process.get();
  }
  if (lowest == nullptr || time.iterations_so_far() >= total) return;
  // The projection is some iterations old.
  const double left =
      static_cast<double>(total - so_far) / static_cast<double>(total - time.iterations_so_far());
  const v1::Estimate& remaining = time.remaining();
  const std::optional<Estimate> wall = lowest->pace.WallTimeOf(
      {left * remaining.value(), left * remaining.low(), left * remaining.high()}, 0.95);
  if (!wall) return;
  const int64_t since_ns = lowest->pace.last_begin_ns();
  v1::ExpectedEnd& end = *job.mutable_expected_end();
  end.set_time_ns(since_ns + static_cast<int64_t>(wall->value));
  end.set_low_ns(since_ns + static_cast<int64_t>(std::max(0.0, wall->low)));
  end.set_high_ns(since_ns + static_cast<int64_t>(wall->high));
  end.set_last_iteration_ns(since_ns);
}

v1::Job Job::Describe(bool with_details, bool with_histogram) {
  const EngineTotals totals = engines_.steps().Totals();
  const Summary& summary =
      snapshots_.Recent(totals.iterations, live(), [this] { return CollectData(); });
  v1::Job job;
  job.set_id(absl::StrCat(row_.job_id));
  job.set_name(row_.name);
  job.set_run_id(row_.run_id);
  job.set_host(row_.host);
  job.set_command(row_.command);
  job.set_imported(facts_.imported());
  if (!facts_.imported()) job.set_time_only(WhyTimeOnly());
  job.set_unused(processes_.empty() && row_.end_ns != 0 && refused_.empty());
  job.set_start_ns(row_.start_ns);
  job.set_end_ns(row_.end_ns);
  job.set_generation(changes_.generation());
  job.set_state(live() && orders_.state().released() ? v1::JOB_STATE_RELEASED
                : live() && orders_.state().paused() ? v1::JOB_STATE_PAUSED
                                                     : static_cast<v1::JobState>(row_.state));
  if (row_.end_ns != 0 && !facts_.imported()) {
    if (const JobEnd end = End(); end.program) {
      if (end.program->signal != 0) {
        job.set_signal(end.program->signal);
      } else {
        job.set_exit_status(end.program->exit_status);
      }
    }
  }
  for (const std::string& tag : tags_) job.add_tags(tag);
  if (rule_) {
    *job.mutable_rule() = DescribeRule();
    SetFit(summary.fit, job.mutable_rule());
  }
  job.set_iterations(static_cast<int64_t>(totals.iterations));
  job.set_unique_lengths(static_cast<int64_t>(totals.unique_keys));
  if (totals.observed_time_ns > 0) {
    job.set_iterations_duration_ns(static_cast<int64_t>(totals.observed_time_ns));
  }
  *job.mutable_losses() = SumLosses();
  if (totals.iterations > 0) {
    *job.mutable_time() = summary.time;
    *job.mutable_seqpoints() = summary.seqpoints;
  }
  SetExpectedEnd(job);
  for (const auto& [name, others] :
       {std::pair("start-up", facts_.startup()), std::pair("evaluation", facts_.evaluation())}) {
    if (others.count() == 0) continue;
    v1::PhaseSummary& phase = *job.add_phases();
    phase.set_name(name);
    phase.set_iterations(others.count());
    phase.set_duration_ns(others.duration_ns());
  }
  job.set_clock_kind(clock_kind());
  job.set_process_count(static_cast<int32_t>(processes_.size()));
  const int64_t stopped_ns = StoppedNs(processes_);
  job.set_trouble(Error());
  for (const auto& [id, process] : processes_) {
    if (process->alive()) job.set_live_processes(job.live_processes() + 1);
  }
  if (!facts_.imported()) {
    job.mutable_overhead()->set_budget_share(orders_.state().overhead_budget_share());
    job.mutable_overhead()->set_stopped_duration_ns(stopped_ns);
    job.mutable_overhead()->set_sentence(plan_.waits());
    SetSpent(*job.mutable_overhead());
    if (totals.observed_time_ns > 0) {
      job.mutable_overhead()->set_spent_share(static_cast<double>(stopped_ns) /
                                              totals.observed_time_ns);
    }
  }
  job.set_operators_folder(orders_.state().operators_folder());
  v1::Horizon& horizon = *job.mutable_horizon();
  if (with_histogram) {
    horizon = matching_.horizon();
  } else {
    horizon.set_kind(matching_.horizon().kind());
    horizon.set_epochs(matching_.horizon().epochs());
    horizon.set_source(matching_.horizon().source());
    horizon.set_data_parallel(matching_.horizon().data_parallel());
  }
  horizon.set_iterations(RunIterations());
  const int64_t shares = DataParallel(matching_.horizon(), Shape());
  if (matching_.horizon().histogram_size() > 0 && shares > 1) {
    absl::StrAppend(horizon.mutable_source(), ", shared out between ", shares, " ranks");
  }
  if (!with_details) return job;
  std::vector<const Process*> by_rank;
  for (const auto& [id, process] : processes_) by_rank.push_back(process.get());
  std::stable_sort(by_rank.begin(), by_rank.end(),
                   [](const Process* a, const Process* b) { return a->row.rank < b->row.rank; });
  for (const Process* process : by_rank) {
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
    to.set_clock_kind(
        static_cast<v1::ClockKind>(std::min<uint32_t>(process->state.clock_kind(), 2)));
    to.set_start_ns(row.start_ns);
    to.set_end_ns(row.end_ns);
    to.set_lost(row.lost);
    to.set_level(ToProtoLevel(process->state.level()));
    to.set_iterations(static_cast<int64_t>(process->state.iterations()));
    for (const auto& [number, feature] : process->features) *to.add_features() = feature;
    *to.mutable_losses() = process->state.losses();
    to.mutable_losses()->set_uncounted_processes(process->uncounted() ? 1 : 0);
    to.set_stopped_duration_ns(process->state.stopped_duration_ns());
    to.set_given_up_windows(process->state.given_up_windows());
    to.set_stood_down_duration_ns(process->state.stood_down_duration_ns());
    to.set_stands_down_for(process->state.stands_down_for());
    to.set_device(process->state.device());
    to.set_chip(process->state.chip());
    to.set_compute_capability(process->state.compute_capability());
  }
  return job;
}

// Level by level what the tool took.
void Job::SetSpent(v1::Overhead& overhead) const {
  v1::Spent learn, mark, trace, counters, traces, rest;
  for (const auto& [id, process] : processes_) {
    const auto add = [](v1::Spent& to, uint64_t count, int64_t duration_ns) {
      to.set_count(SaturatedSum(to.count(), Saturate(count)));
      to.set_duration_ns(SaturatedSum(to.duration_ns(), duration_ns));
    };
    add(learn, process->state.watched_calls()[1], process->state.watching_ns()[1]);
    add(mark, process->state.watched_calls()[2], process->state.watching_ns()[2]);
    add(trace, process->state.watched_calls()[3], process->state.watching_ns()[3]);
    add(counters, static_cast<uint64_t>(process->state.counter_stops()),
        process->state.counter_stops_ns());
    add(traces, static_cast<uint64_t>(process->state.trace_stops()),
        process->state.trace_stops_ns());
    add(rest, 0,
        std::max<int64_t>(
            process->state.stopped_duration_ns() -
                SaturatedSum(process->state.counter_stops_ns(), process->state.trace_stops_ns()),
            0));
  }
  const auto list = [&](v1::Spent& spent, std::string_view what, bool estimated) {
    if (spent.duration_ns() <= 0) return;
    spent.set_what(std::string(what));
    spent.set_estimated(estimated);
    *overhead.add_spent() = std::move(spent);
  };
  list(learn, "watching at learn", true);
  list(mark, "watching at mark", true);
  list(trace, "watching at trace", true);
  list(counters, "stops for counters", false);
  list(traces, "stops for traces", false);
  list(rest, "stops for switching levels", false);
}

}  // namespace seqpoint::jobs
