// What a job answers to its clients.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/base/saturate.h"
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

std::string Job::UncountedInWords() const {
  const Process* first = nullptr;
  int64_t others = -1;
  for (const auto& [id, process] : processes_) {
    if (!process->uncounted() || process->state.concurrent()) continue;
    if (first == nullptr) first = process.get();
    ++others;
  }
  if (first == nullptr) return "";
  constexpr absl::string_view kFull =
      ", since its ring was full (give the daemon processor time, or a larger ring to the program: "
      "SEQPOINT_RING_BYTES)";
  std::vector<std::string> why;
  const bool between = first->state.missing_calls() > 0 && first->state.losses().ring_dropped() > 0;
  if (between) {
    why.push_back(absl::StrCat("lost ", first->state.missing_calls(),
                               first->state.missing_calls() == 1 ? " call" : " calls",
                               " while its iterations were counted by them", kFull));
  }
  if (first->state.unread()) {
    why.emplace_back(first->alive() ? "has not come back since the daemon was started again"
                                    : "ended while no daemon read it");
  } else if (!between) {
    why.push_back(absl::StrCat("lost its last records", kFull));
  }
  // Iterations whose records were lost between others are counted, too.
  uint64_t counted = first->state.iterations() + first->builder.lost_iterations();
  if (const int64_t next = ranks_.NextNumber(first->row.rank); next > 0) {
    counted = std::max(first->state.iterations(), std::min(counted, static_cast<uint64_t>(next)));
  }
  return absl::StrCat(
      "rank ", first->row.rank, ": process ", first->row.pid, " ", absl::StrJoin(why, " and "),
      others == 0 ? "" : absl::StrCat(", and ", others, others == 1 ? " other" : " others"), "; ",
      between ? "what it did beside" : "what it did after", " the ", counted,
      counted == 1 ? " iteration" : " iterations",
      " that are counted is in no figure: counts and sums are lower bounds");
}

std::string Job::OvercountedInWords() const {
  for (const auto& [id, process] : processes_) {
    const auto found = process->features.find(static_cast<uint16_t>(abi::Feature::kEvaluation));
    if (found == process->features.end() || process->state.concurrent()) continue;
    if (found->second.state() != v1::FEATURE_STATE_FAILED) continue;
    return absl::StrCat("rank ", process->row.rank, ": ", found->second.sentence());
  }
  return "";
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

// Single ones; those of stretches among them. One or two may still wait for what ends them.
bool Job::MostlyUntimed() const {
  constexpr uint64_t kSome = 8;
  const EngineTotals totals = engines_.steps().Totals();
  return !facts_.imported() && rule_ && rule_->rule.clock.op == 0 && totals.iterations >= kSome &&
         (totals.untimed + totals.together) * 2 >= totals.iterations;
}

std::string Job::WhyUntimed() const {
  if (!MostlyUntimed()) return "";
  const EngineTotals totals = engines_.steps().Totals();
  const std::string stamp =
      "a cudaMemsetAsync of a few bytes on the stream that computes, where an iteration begins, ";
  if (totals.together > 0) {
    return absl::StrCat("iterations are not timed one by one, but ",
                        totals.together / totals.stretches,
                        " at a time, where the host waits for the GPU; ", stamp, "times each");
  }
  return absl::StrCat(
      "the time of ",
      totals.untimed >= totals.iterations
          ? "its iterations"
          : absl::StrCat(totals.untimed, " of its ", totals.iterations, " iterations"),
      " is not known: the stream that computes does nothing where each of them begins that leaves "
      "a time stamp (a copy, a memset, a graph launch), and the host runs ahead of the GPU; ",
      stamp, "is enough");
}

std::string Job::WhyTimeOnly() const {
  std::string why;
  for (const auto& [id, process] : processes_) {
    if (process->HasCupti()) return "";
    why = process->features.at(static_cast<uint16_t>(abi::Feature::kCupti)).sentence();
  }
  return why;
}

// A process that goes on from one that is over does its last, open iteration again. No iteration is
// missing where all that were said are there.
bool Job::HasOpenEnd() const {
  const int64_t said = RunIterations();
  if (said > 0 && static_cast<int64_t>(engines_.steps().Totals().iterations) == said) return false;
  return std::any_of(processes_.begin(), processes_.end(), [&](const auto& entry) {
    const Process& process = *entry.second;
    if (process.alive() || !process.counts() || !process.builder.has_begun()) return false;
    return process.state.ended_well() ||
           std::none_of(processes_.begin(), processes_.end(), [&](const auto& other) {
             const ProcessRow& row = other.second->row;
             return row.rank == process.row.rank && row.incarnation > process.row.incarnation &&
                    other.second->counts();
           });
  });
}

// As far as it is the same for all epochs. Of a run that has more iterations than were said,
// nothing tells to which epoch they belong.
int64_t Job::EpochIterations() const {
  const int64_t epochs = matching_.horizon().epochs(), run = RunIterations();
  if (epochs < 1 || run == 0 || run % epochs != 0) return 0;
  if (static_cast<int64_t>(engines_.steps().Totals().iterations) > run) return 0;
  if (matching_.horizon().kind() != v1::Horizon::KIND_ITERATIONS && micro_batches_.vary()) return 0;
  return run / epochs;
}

absl::StatusOr<std::shared_ptr<const Answers>> Job::AskPart(std::vector<KeyCount> steps,
                                                            std::vector<KeyCount> work) const {
  Answers::Facts facts = CollectFacts();
  Horizon of_steps = Horizon::Histogram(std::move(steps));
  of_steps.another = true;
  absl::Status status = facts.engine.SetHorizon(std::move(of_steps));
  if (facts.work) {
    Horizon of_work = Horizon::Histogram(std::move(work));
    of_work.another = true;
    status.Update(facts.work->SetHorizon(std::move(of_work)));
  }
  if (!status.ok()) return status;
  facts.horizon_kind = v1::Horizon::KIND_UNKNOWN;
  facts.another = true;
  return std::make_shared<const Answers>(std::move(facts));
}

Answers::Facts Job::CollectFacts() const {
  Answers::Facts facts{.job_id = row_.job_id,
                       .name = row_.name,
                       .run_id = row_.run_id,
                       .batch = matching_.horizon().batch(),
                       .generation = changes_.generation(),
                       .horizon_kind = matching_.horizon().kind(),
                       .epoch_iterations = EpochIterations(),
                       .live = live(),
                       .imported = facts_.imported(),
                       .measurable = HasCupti(),
                       .host_times = facts_.host_times(),
                       .clock_kind = clock_kind(),
                       .losses = SumLosses(),
                       .dimensions = rule_ ? static_cast<int>(rule_->rule.length_count) : 0,
                       .units = Units(),
                       .metrics = metrics_.choice(),
                       .refused_configs = metrics_.refused(),
                       .plan = MakePlanOptions(metrics_, options_.measurement_budget),
                       .measurements = engines_.measurements(),
                       .kernels = kernels_.names(),
                       .engine = engines_.steps().Copy()};
  facts.uncounted = UncountedInWords();
  facts.overcounted = OvercountedInWords();
  for (const auto& [id, process] : processes_) {
    if (!process->uncounted() || process->state.concurrent()) continue;
    facts.counted_to = std::min(facts.counted_to, process->CountedTo());
  }
  if (!facts.overcounted.empty()) facts.counted_to = 0;
  facts.begun = HasOpenEnd();
  if (engines_.steps().Totals().iterations == 0 && row_.end_ns != 0) {
    facts.ended_without = Error();
    if (facts.ended_without.empty()) facts.ended_without = "it is not known why";
  }
  for (const auto& [rank, next] : ranks_.next_numbers()) facts.ranks.push_back(rank);
  for (const auto& [id, process] : processes_) AddSampled(process->state.sampled(), &facts.sampled);
  if (engines_.split()) {
    facts.work = engines_.work().Copy();
    facts.late = engines_.builder().late();
  }
  if (rule_) facts.rule = DescribeRule();
  const EngineTotals totals = engines_.steps().Totals();
  facts.mostly_untimed = MostlyUntimed() && totals.untimed * 2 >= totals.iterations;
  return facts;
}

absl::StatusOr<std::shared_ptr<const Answers>> Job::Ask(const v1::Horizon* horizon) {
  if (horizon == nullptr) return answers_.Copy([this] { return CollectFacts(); });
  Answers::Facts facts = CollectFacts();
  absl::StatusOr<EngineHorizons> other = matching_.OtherRun(*horizon, Shape(), observed_);
  if (!other.ok()) return other.status();
  absl::Status status = facts.engine.SetHorizon(std::move(other->steps));
  if (status.ok() && facts.work) status = facts.work->SetHorizon(std::move(other->work));
  if (!status.ok()) return status;
  facts.horizon_kind = horizon->kind();
  facts.another = true;
  return std::make_shared<const Answers>(std::move(facts));
}

std::shared_ptr<const Answers> Job::TakeDueSummary() {
  return answers_.TakeDue(engines_.steps().Totals().iterations, live(),
                          [this] { return CollectFacts(); });
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

// The first that applies, the gravest first.
std::string Job::Error() const {
  // With these, every figure is another.
  std::vector<std::string> missing;
  for (std::string message : {UncountedInWords(), OvercountedInWords(), facts_.store_damage()}) {
    if (!message.empty()) missing.push_back(std::move(message));
  }
  if (!missing.empty()) return absl::StrJoin(missing, "; ");
  for (const auto& [id, process] : processes_) {
    for (const auto& [number, feature] : process->features) {
      if (feature.state() == v1::FEATURE_STATE_FAILED) return feature.sentence();
    }
  }
  if (!refused_.empty()) return refused_;
  if (!metrics_.error().empty()) return metrics_.error();
  for (const auto& [id, process] : processes_) {
    if (process->state.stands_down_for().empty()) continue;
    return process->alive()
               ? absl::StrCat("rank ", process->row.rank, ": standing down while ",
                              process->state.stands_down_for(),
                              " has CUPTI; what NVTX ranges or marks do not tell is not seen")
               : absl::StrCat("rank ", process->row.rank, ": CUPTI was left to ",
                              process->state.stands_down_for(),
                              " until the process ended; what NVTX ranges or marks do not tell was "
                              "not seen");
  }
  for (const auto& [id, process] : processes_) {
    if (!process->state.concurrent()) continue;
    return absl::StrCat("rank ", process->row.rank, ": process ", process->row.pid,
                        " ran beside another one of this rank: its iterations (",
                        process->state.iterations(),
                        ") are in the log and in no figure; trainings of their own need a --run-id "
                        "of their own");
  }
  if (!rule_) {
    if (std::string error = NoRuleError(); !error.empty()) return error;
  }
  constexpr uint64_t kLongEnough = 500;  // iterations of others
  for (const auto& [id, process] : processes_) {
    if (!rule_ || !process->learning || !process->alive()) continue;
    if (process->state.iterations() > 0 || engines_.steps().Totals().iterations < kLongEnough)
      continue;
    return absl::StrCat("rank ", process->row.rank,
                        ": what it does does not fit the rule learned from another process; it is "
                        "in no figure");
  }
  if (const int64_t dropped = SumLosses().ring_dropped(); dropped > 0) {
    return absl::StrCat(
        dropped, " records were dropped: the daemon did not keep up. Give it processor time, or a ",
        "larger ring to the program (SEQPOINT_RING_BYTES)",
        orders_.traces_everything() ? ", or do not trace everything (control JOB level auto)" : "");
  }
  return "";
}

// Why no rule was learned, where that is known.
std::string Job::NoRuleError() const {
  const auto ignored = [](const Process& process, abi::Feature wanted) -> std::string {
    const auto feature = process.features.find(static_cast<uint16_t>(wanted));
    const bool known =
        feature != process.features.end() && feature->second.state() == v1::FEATURE_STATE_IGNORED;
    return known ? feature->second.sentence() : "";
  };
  // What the program can do.
  for (const auto& [id, process] : processes_) {
    if (std::string why = ignored(*process, abi::Feature::kFramework); !why.empty()) return why;
  }
  if (const std::string& why = former_rule_         ? facts_.relearned()
                               : processes_.empty() ? facts_.unused()
                                                    : matching_.message();
      !why.empty())
    return why;
  for (const auto& [id, process] : processes_) {
    if (!process->learning || process->learning->wants_calls()) continue;
    if (std::string why = process->learning->Explanation(); !why.empty()) return why;
  }
  // Where another tool has CUPTI there are no calls to learn from, however long the run is.
  for (const auto& [id, process] : processes_) {
    if (std::string why = ignored(*process, abi::Feature::kCallbacks); !why.empty()) return why;
  }
  if (facts_.imported() || live() || processes_.empty()) return "";
  return absl::StrCat("the run ended before it was found where its iterations begin: ",
                      facts_.no_rule().empty() ? "there were too few" : facts_.no_rule());
}

v1::Job Job::Describe(bool with_details, bool with_histogram) {
  const EngineTotals totals = engines_.steps().Totals();
  const Answers::Summary& summary =
      answers_.Recent(totals.iterations, live(), [this] { return CollectFacts(); });
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

absl::StatusOr<v1::GetRooflineReply> Job::GetRoofline(const v1::GetRooflineRequest& request) const {
  const std::string name = absl::StrCat("job \"", row_.name, "@", row_.run_id, "\"");
  if (!metrics_.choice().wants_roofline()) {
    return absl::FailedPreconditionError(absl::StrCat(
        name, ": single kernels were not measured; ask for them with `seqpoint run --roofline`"));
  }
  if (roofline_.measurements() == 0) {
    std::string why = metrics_.choice().no_roofline();
    for (const abi::Feature of : {abi::Feature::kRoofline, abi::Feature::kCounters}) {
      for (const auto& [id, process] : processes_) {
        const auto feature = process->features.find(static_cast<uint16_t>(of));
        if (!why.empty() || feature == process->features.end() ||
            feature->second.state() == v1::FEATURE_STATE_READY) {
          continue;
        }
        why = feature->second.sentence();
      }
    }
    if (why.empty()) why = plan_.waits();
    if (why.empty()) why = "each length is first measured otherwise";
    return absl::FailedPreconditionError(
        absl::StrCat(name, ": no kernel was measured by itself yet: ", why));
  }
  v1::GetRooflineReply reply = roofline_.Answer(metrics_.choice().roofline());
  if (reply.kernels().empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(name, ": of no length the kernels' time and bytes were measured yet"));
  }
  const int dimensions = rule_ ? static_cast<int>(rule_->rule.length_count) : 0;
  for (v1::RooflineLength& length : *reply.mutable_lengths()) {
    const int64_t feature[2] = {length.lengths(0), length.lengths(1)};
    length.clear_lengths();
    for (const int64_t value : UserLengths(feature, dimensions)) length.add_lengths(value);
  }
  if (request.limit() > 0 && reply.kernels_size() > request.limit()) {
    reply.mutable_kernels()->DeleteSubrange(request.limit(),
                                            reply.kernels_size() - request.limit());
  }
  std::vector<std::string> sentences;
  for (const counters::OnePassConfig& config : metrics_.choice().roofline().configs) {
    const auto refused = metrics_.refused().find(config.config_id);
    if (refused != metrics_.refused().end()) {
      sentences.push_back(absl::StrCat(config.metrics[0].name, " and others cannot be collected: ",
                                       refused->second, "; no kernel has a position without"));
    }
  }
  for (const auto& [id, process] : processes_) {
    const auto feature = process->features.find(static_cast<uint16_t>(abi::Feature::kRoofline));
    if (feature == process->features.end() || feature->second.state() != v1::FEATURE_STATE_FAILED) {
      continue;
    }
    sentences.push_back(absl::StrCat("rank ", process->row.rank, ": ", feature->second.sentence()));
  }
  reply.set_sentence(absl::StrJoin(sentences, "; "));
  reply.set_chip(metrics_.choice().chip());
  *reply.mutable_losses() = SumLosses();
  reply.set_job_id(absl::StrCat(row_.job_id));
  return reply;
}

std::map<int32_t, int64_t> Job::IterationsPerRank() const {
  std::map<int32_t, int64_t> ranks;
  for (const auto& [id, process] : processes_) {
    ranks[process->row.rank] += static_cast<int64_t>(process->state.iterations());
  }
  return ranks;
}

}  // namespace seqpoint::jobs
