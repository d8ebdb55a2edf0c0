// A job's description.
#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/base/saturate.h"
#include "daemon/jobs/figures.h"
#include "daemon/jobs/job.h"
#include "daemon/jobs/process.h"
#include "daemon/jobs/process_descriptions.h"
#include "daemon/jobs/rank_losses.h"

namespace seqpoint::jobs {
namespace {

// The ranks that had iterations; 0: starts of the job had different ones.
int32_t RanksOfAllStarts(const ProcessTable& processes) {
  std::map<int32_t, int> starts;  // by rank
  for (const auto& [id, process] : processes) {
    if (process->counts()) ++starts[process->row.rank];
  }
  if (starts.empty()) return 1;
  const bool same = std::all_of(starts.begin(), starts.end(), [&](const auto& entry) {
    return entry.second == starts.begin()->second;
  });
  return same ? static_cast<int32_t>(starts.size()) : 0;
}

}  // namespace

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
    sum.set_unstored_records(SaturatedSum(sum.unstored_records(), losses.unstored_records()));
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
  rule.set_message(WhyUntimed());
  for (const std::string* message : {&matching_.message(), &facts_.relearned(), &facts_.gap()}) {
    if (rule.message().empty()) rule.set_message(*message);
  }
  return rule;
}

void Job::SetExpectedEnd(v1::Job& job) const {
  const v1::Projection& time = job.time();
  const int64_t so_far = job.iterations(), total = time.iterations_total();
  if (!live() || orders_.state().released() || ClockKindOf(processes_) != v1::CLOCK_KIND_REAL ||
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
  if (!facts_.imported()) job.set_time_only(WhyTimeOnly(processes_));
  job.set_unused(processes_.empty() && row_.end_ns != 0 && refused_.empty());
  job.set_start_ns(row_.start_ns);
  job.set_end_ns(row_.end_ns);
  job.set_generation(changes_.generation());
  job.set_state(live() && orders_.state().released() ? v1::JOB_STATE_RELEASED
                : live() && orders_.state().paused() ? v1::JOB_STATE_PAUSED
                                                     : static_cast<v1::JobState>(row_.state));
  if (row_.end_ns != 0 && !facts_.imported()) {
    if (const JobEnd end = End(); end.program) {
      if (end.program->signal() != 0) {
        job.set_signal(end.program->signal());
      } else {
        job.set_exit_status(end.program->exit_status());
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
  for (const v1::PhaseSummary* phase : {&facts_.startup(), &facts_.evaluation()}) {
    if (phase->iterations() > 0) *job.add_phases() = *phase;
  }
  job.set_clock_kind(ClockKindOf(processes_));
  job.set_process_count(static_cast<int32_t>(processes_.size()));
  const int64_t stopped_ns = StoppedNs(processes_);
  job.set_error(Error());
  job.set_working_ranks(RanksOfAllStarts(processes_));
  if (engines_.split()) {
    const v1::GetRanksReply ranks = DescribeRanks();
    job.set_ranks(ranks.summary());
    *job.mutable_rank_losses() = LossesOf(ranks, static_cast<int64_t>(totals.iterations));
  }
  for (const auto& [id, process] : processes_) {
    if (process->alive()) job.set_live_processes(job.live_processes() + 1);
  }
  if (!facts_.imported()) {
    job.mutable_overhead()->set_budget_share(orders_.state().overhead_budget_share());
    job.mutable_overhead()->set_stopped_duration_ns(stopped_ns);
    job.mutable_overhead()->set_message(plan_.waits());
    SetSpent(processes_, job.mutable_overhead());
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
  DescribeProcesses(processes_, job.mutable_processes());
  return job;
}

}  // namespace seqpoint::jobs
