#include "daemon/jobs/job.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "daemon/base/status_macros.h"
#include "daemon/jobs/control_writer.h"
#include "daemon/jobs/event_dispatcher.h"
#include "daemon/jobs/hello.h"
#include "daemon/jobs/process.h"
#include "daemon/jobs/process_descriptions.h"
#include "daemon/jobs/rule_codec.h"
#include "injection/abi/ring.h"

namespace seqpoint::jobs {
namespace {

constexpr int64_t kMaxRepeated = 200'000;  // iterations that a resumed run may do again

// The program itself marks the start of an iteration. By other rules it may be the start of an
// evaluation batch, until its step is seen.
bool MarksStarts(const abi::Rule& rule) {
  const auto op = static_cast<abi::Op>(rule.boundary.op);
  return rule.step.op == 0 &&
         (op == abi::Op::kMark || op == abi::Op::kNvtxPush || op == abi::Op::kNvtxMark);
}

}  // namespace

Job::Job(JobRow row, JobOptions options)
    : row_(std::move(row)),
      options_(options),
      orders_(options.overhead_budget_share),
      reports_(options.reports) {}

absl::Status Job::SetMetrics(MetricChoice choice) {
  if (!refused_.empty()) return absl::DataLossError(refused_);
  if (choice.SameAs(metrics_.choice())) return absl::OkStatus();
  // The measurements of one set say nothing about the metrics of another one.
  if (!processes_.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("metric_sets: job \"", row_.name, "@", row_.run_id, "\" collects ",
                     metrics_.choice().InWords(), " and cannot change to ", choice.InWords(),
                     "; use another run id, or the same sets"));
  }
  metrics_.Set(std::move(choice));
  changes_.Mark(Change::kMetrics);
  return absl::OkStatus();
}

void Job::OnChip(Process& process) {
  if (!metrics_.OnChip(process.state.chip(), process.row.rank)) return;
  rows_.configs = metrics_.Rows(row_.job_id);
  changes_.Mark(Change::kMetrics);
}

Job::~Job() = default;

// --------------------------------------------------------------------------------------- processes

absl::Status Job::MayGoOn() const {
  if (!refused_.empty()) return absl::DataLossError(refused_);
  if (!facts_.imported()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("job \"", row_.name, "@", row_.run_id,
                   "\" was made of another tool's log; run under another name or run id"));
}

void Job::AddProcess(const ProcessRow& row, const std::set<int64_t>& gone) {
  auto process = std::make_unique<Process>(row);
  if (processes_.empty() && row_.start_ns == 0) row_.start_ns = row.start_ns;
  if (row_.host.empty()) row_.host = row.host;
  if (row_.command.empty()) row_.command = HelloField(row.text, "command");
  row_.end_ns = 0;
  row_.state = rule_ ? v1::JOB_STATE_MARKING : v1::JOB_STATE_LEARNING;
  process->learning = std::make_unique<Learning>();
  if (!live() && processes_.StartedWith(*process).empty()) ranks_.Start();
  processes_.Place(*process, ranks_, gone);
  if (rule_) process->learning->SetRule(rule_->rule);
  ranks_.Add(row.rank, HelloNumber(row.text, "world_size", 1));
  rows_.processes.push_back(row);
  ReportStart(processes_.Add(std::move(process)));
  if (!processes_.one_rank() && !engines_.split()) SplitRanks();
  changes_.Mark(Change::kProcesses);
}

void Job::SplitRanks() {
  engines_.Split(ranks_);
  matching_.Restart();
  changes_.Mark(Change::kRankSplit);
}

void Job::AddSteps() {
  std::set<int32_t> ranks = processes_.LiveRanks();
  if (awaits_ranks_ && engines_.builder().open_steps() > 0) ranks.merge(UnheardRanks());
  AddStepsOf(ranks);
}

void Job::AddStepsOf(const std::set<int32_t>& ranks) {
  const bool may_come = processes_.any_reported() && delayed_ns_ < kPatienceForRanksNs;
  const bool all_heard = processes_.all_read() && !(awaits_ranks_ && AnyUnheard()) && !may_come;
  for (IterationRow& row : engines_.AddSteps(ranks, all_heard, rule())) {
    row.job_id = row_.job_id;
    rows_.iterations.push_back(std::move(row));
    changes_.Mark(Change::kIterations);
  }
}

void Job::OnProcessEnd(int64_t process_id, bool orderly, int64_t now_ns, bool failed,
                       const EndSeen& seen) {
  Process& process = processes_.at(process_id);
  if (!process.alive()) return;
  process.row.end_ns = now_ns;
  process.row.lost = !orderly;
  process.state.set_ended_well(orderly && !failed);
  process.state.set_ended_after_ns(seen.after_ns);
  process.state.set_ended_before_ns(seen.before_ns);
  if (process.learning) {
    // Too short a run to agree: what the learn stream alone shows is what there is.
    if (!rule_) {
      std::optional<LearnedRule> rule = common_rule_.Choose(processes_, /*last_chance=*/true);
      if (!rule) rule = process.learning->Analyse();
      if (rule) OnRuleLearned(*rule);
      if (!rule_) facts_.set_no_rule(process.learning->Explanation());
    }
    process.FinishLearning();
    process.learning.reset();
    if (rule_) ReportRule(process, /*marks=*/false);
  }
  process.builder.Finish(process.state.ended_well() && rule_ && MarksStarts(rule_->rule));
  Advance();
  EndAlignment(process);
  ReportEnd(process, failed);
  AddSteps();
  rows_.processes.push_back(process.row);
  if (!live()) {
    row_.end_ns = now_ns;
    row_.state = End().state;
  }
  changes_.Mark(Change::kProcesses);
}

void Job::EndProgram(const ProgramEndState& end) {
  if (end.launch().empty() || !refused_.empty() || !program_ends_.Add(end)) return;
  ReportProgramEnd(end);
  if (row_.end_ns != 0) row_.state = End().state;
  changes_.Mark(Change::kRow);
}

void Job::Rename(const std::string& name) {
  row_.name = name;
  changes_.Mark(Change::kRow);
}

void Job::SetTags(std::set<std::string> tags) {
  tags_ = std::move(tags);
  changes_.Mark(Change::kRow);
}

void Job::SetStoreDamage(const std::string& message) {
  if (message == facts_.store_damage()) return;
  facts_.set_store_damage(message);
  changes_.Mark(Change::kDescription);
}

void Job::Reopen(int64_t monotonic_ns) {
  if (live()) return;
  waiting_since_ns_ = monotonic_ns;
  row_.end_ns = 0;
  facts_.clear_unused();
  row_.state = v1::JOB_STATE_WAITING;
  changes_.Mark(Change::kRow);
}

void Job::EndUnused(int64_t now_ns) {
  if (live() || row_.end_ns != 0 || !refused_.empty()) return;
  const JobEnd end = End();
  row_.state = end.state;
  for (const auto& [id, process] : processes_) {
    row_.end_ns = std::max(row_.end_ns, process->row.end_ns);
  }
  if (processes_.empty()) {
    row_.end_ns = now_ns;
    facts_.set_unused(
        "no process of this job used CUDA or trained with PyTorch (backward passes of a "
        "torch.nn.Module, and steps); a program that trains otherwise marks its iterations in two "
        "lines, by seqpoint_attach and seqpoint_iteration_begin, see seqpoint.h or "
        "docs/using/pytorch.md; `seqpoint doctor` says what may stand in the way");
    if (end.program && Failed(*end.program)) {
      facts_.set_unused(absl::StrCat("the program ended with ", EndText(*end.program),
                                     " before it used CUDA or trained"));
    }
  }
  changes_.Mark(Change::kRow);
}

void Job::EndRefused(int64_t now_ns) {
  row_.end_ns = now_ns;
  row_.state = v1::JOB_STATE_LOST;
  changes_.Mark(Change::kRow);
}

void Job::OnLosses(int64_t process_id, const RingLosses& losses) {
  Process& process = processes_.at(process_id);
  if (process.OnLosses(losses)) changes_.Mark(Change::kLosses);
  ReportLosses(process);
  changes_.Mark(Change::kRecords);
}

void Job::OnUnstored(int64_t process_id, int64_t records) {
  Process& process = processes_.at(process_id);
  process.CountUnstored(records);
  // Its end was reported last.
  if (process.alive()) ReportLosses(process);
  changes_.Mark(Change::kLosses);
  changes_.Mark(Change::kRecords);
}

void Job::OnLostBatches(int64_t process_id, int64_t count) {
  ProcessState& state = processes_.at(process_id).state;
  state.set_lost_batches(SaturatedSum(state.lost_batches(), count));
  state.set_missing_events(true);  // until an iteration's number covers them
  changes_.Mark(Change::kLosses);
  changes_.Mark(Change::kCompleteness);
}

void Job::OnCallsMissing(int64_t process_id, uint64_t count) {
  if (processes_.at(process_id).OnCallsMissing(count)) changes_.Mark(Change::kCompleteness);
}

// ----------------------------------------------------------------------------------------- records

void Job::OnEvent(int64_t process_id, abi::EventType type, absl::Span<const uint8_t> payload) {
  Process& process = processes_.at(process_id);
  changes_.Mark(Change::kRecords);
  if (DispatchEvent(type, payload, process, *this, changes_)) {
    ReportEvent(process, type, payload);
  } else {
    process.CountRejected();
  }
}

uint32_t Job::NextRuleGeneration() {
  facts_.set_rule_generation(facts_.rule_generation() + 1);
  return facts_.rule_generation();
}

bool Job::IsShared(const Process& process, uint64_t number) const {
  if (process.hub_plan && process.hub_plan->traced_iteration > 0) {
    const auto library_number = static_cast<uint64_t>(process.hub_plan->traced_iteration) - 1;
    return number == library_number + static_cast<uint64_t>(process.state.number_offset());
  }
  return diagnosis_.wanted() >= 0 && process.JobNumber(number) == diagnosis_.wanted();
}

uint32_t Job::RuleGeneration() const { return rule_ ? rule_->rule.generation : 0; }

void Job::OnName(Process& process, const abi::NameEvent& event, std::string text) {
  rows_.names.push_back({.process_id = process.row.process_id,
                         .name_id = event.name_id,
                         .name_hash = event.name_hash,
                         .text = std::move(text)});
}

void Job::OnCounters(Process& process, const abi::CountersEvent& event, uint64_t number,
                     bool complete, std::vector<double> values) {
  rows_.measurements.push_back({.job_id = row_.job_id,
                                .rank = process.row.rank,
                                .number = process.JobNumber(number),
                                .incarnation = process.row.incarnation,
                                .config_id = event.config_id,
                                .complete = complete,
                                .values = values});
  if (!MetricChoice::OfKernels(event.config_id)) {
    if (complete) {
      OnMeasurement(process, number, event.config_id, values);
    } else {
      OnFailed(number, *process.state.mutable_measurements());
    }
    return;
  }
  // The library knows how often to try a length that nobody wanted.
  if (event.status != abi::kCountersDiscarded && event.status != abi::kCountersAborted) {
    roofline_.CountAttempt();
  }
  if (auto kernels = process.kernels.Take(event)) roofline_.Add(*std::move(kernels));
  changes_.Mark(Change::kRoofline);
}

void Job::OnRank(Process& process, const abi::RankEvent& event) {
  SetHelloField("world_size", event.world_size, process.row.text);
  ranks_.SetWorldSize(event.world_size);
  const int32_t before = process.row.rank;
  // The earlier iterations of a process are in the log under its earlier rank.
  const bool moves = event.rank != before && process.state.iterations() == 0 &&
                     !process.alignment.buffers() && process.learning;
  if (moves) {
    SetHelloField("rank", event.rank, process.row.text);
    const std::vector<Process*> free = processes_.Move(process, event.rank);
    processes_.Place(process, ranks_, {});
    if (rule_) process.learning->SetRule(rule_->rule);
    ranks_.Add(event.rank, event.world_size);
    for (Process* const other : free) EndAlignment(*other);
    if (!processes_.HasLive(before)) ranks_.Remove(before);
    if (!processes_.one_rank() && !engines_.split()) SplitRanks();
  }
  rows_.processes.push_back(process.row);
  changes_.Mark(Change::kProcesses);
}

bool Job::OnConfig(uint32_t config_id, bool collected, const std::string& why) {
  if (collected) {
    if (metrics_.Accept(config_id)) changes_.Mark(Change::kRefusedConfig);
    return true;
  }
  if (metrics_.full()) return false;
  metrics_.Refuse(config_id, why);
  changes_.Mark(Change::kRefusedConfig);
  return true;
}

void Job::OnStoodDown(const abi::StandDownEvent& event, const std::string& holder, uint64_t from,
                      uint64_t number) {
  const auto duration_ns = static_cast<double>(event.end_ns - event.begin_ns);
  facts_.set_gap(absl::StrCat("CUPTI was left to ", holder, " for ",
                              std::round(duration_ns / 1e8) / 10, " s around iteration ", from));
  const EngineTotals totals = engines_.steps().Totals();
  if (totals.observed_time_ns <= 0) return;
  const double mean_ns = totals.observed_time_ns / static_cast<double>(totals.iterations);
  const double missed = std::round(duration_ns / mean_ns) - static_cast<double>(number - from);
  if (missed < 1) return;
  absl::StrAppendFormat(facts_.mutable_gap(),
                        ": about %.0f iterations of that time were not seen and are in no figure",
                        missed);
}

void Job::OnData(int64_t process_id, absl::Span<const abi::DataRecord> records) {
  if (processes_.at(process_id).OnData(records)) facts_.set_host_times(true);
  changes_.Mark(Change::kRecords);
}

bool Job::OnRead(int64_t process_id, bool complete) {
  Process& process = processes_.at(process_id);
  if (complete) {
    process.traces.OnRead();
    process.collectives.OnRead();
  }
  if (process.state.unread()) {
    process.state.set_unread(false);
    changes_.Mark(Change::kCompleteness);
  }
  return process.traces.due();
}

void Job::Advance() {
  if (!rule_) {
    if (std::optional<LearnedRule> rule = common_rule_.Choose(processes_)) {
      OnRuleLearned(PreferHubs(*std::move(rule)));
    }
  }
  for (auto& [id, process] : processes_) {
    if (process->learning && rule_ && process->StartMarking(*rule_)) {
      row_.state = v1::JOB_STATE_MARKING;
      changes_.Mark(Change::kRule);
      ReportRule(*process, /*marks=*/true);
    }
    // First the windows: a measurement waits for its iteration, not the other way round. Both may
    // come in one reading when the machine is busy.
    CountTracedWork(*process);
    for (const FinishedIteration& iteration : process->builder.TakeFinished()) {
      Align(*process, iteration);
    }
  }
  AddSteps();
  AddJoinedIterations();
  observed_.RefreshUnits();
  MatchLengths();
  if (changes_.TakePlanDue()) UpdatePlan();
}

void Job::CheckRules(int64_t monotonic_ns) {
  CheckAwaitedRanks(monotonic_ns);
  CheckDelayedStep(monotonic_ns);
  CheckRanks(monotonic_ns);
  const auto judged = [](const Process& process) {
    return process.alive() && process.monitor && process.state.stands_down_for().empty();
  };
  // A rule that fits most stages of a pipeline counts other micro-batches in the others, from the
  // start.
  const bool has_micro_batches = std::any_of(processes_.begin(), processes_.end(), [&](auto& of) {
    return judged(*of.second) && of.second->monitor->may_have_micro_batches();
  });
  for (auto& [id, process] : processes_) {
    if (!judged(*process)) continue;
    // Pauses on a clock of the program's own are not those of ours.
    const bool foreign =
        process->state.clock_kind() == static_cast<uint32_t>(abi::ClockKind::kForeign);
    const std::optional<std::string> why = process->monitor->Check(
        foreign ? 0 : static_cast<uint64_t>(monotonic_ns), has_micro_batches);
    if (why) return Relearn(*why);
  }
}

void Job::Relearn(std::string_view why) {
  facts_.set_relearned(absl::StrCat("the rule was learned again at iteration ",
                                    engines_.steps().Totals().iterations, ": ", std::string(why)));
  for (auto& [id, process] : processes_) {
    if (!process->alive()) continue;
    if (process->learning) process->FinishLearning();
    process->builder.Finish();
    for (const FinishedIteration& iteration : process->builder.TakeFinished()) {
      Align(*process, iteration);
    }
    EndAlignment(*process);
    process->LearnAgain();
  }
  AddStepsOf({});  // their keys are those of the old rule
  former_rule_ = std::exchange(rule_, std::nullopt);
  row_.state = v1::JOB_STATE_LEARNING;
  plan_.Clear();
  changes_.Mark(Change::kRule);
}

void Job::OnRuleLearned(LearnedRule rule) {
  if (former_rule_) {
    // The same rule once more: the loop only paused. Another one has other lengths.
    if (!SameEvents(rule.rule, former_rule_->rule)) {
      engines_.Close();
      roofline_.Clear();
      for (auto& [id, process] : processes_) {
        process->state.clear_measurements();
        process->seen.Clear();
      }
      observed_.Clear();
      micro_batches_.Clear();
      matching_.Restart(/*forget=*/true);
      changes_.Mark(Change::kLengthFeature);
    }
    former_rule_.reset();
  }
  matching_.Restart();  // micro-batchs change what a batch of the user's is
  rule.rule.generation = NextRuleGeneration();
  rule_ = std::move(rule);
  for (auto& [id, process] : processes_) {
    if (process->learning) process->learning->SetRule(rule_->rule);
  }
  changes_.Mark(Change::kRule);
}

std::vector<Job::WantedLog> Job::WantedLogs() const {
  std::vector<WantedLog> wanted;
  for (const auto& [id, process] : processes_) {
    if (!process->state.aligning() || process->alignment.has_log() ||
        processes_.RoleOf(*process) == Role::kConcurrent)
      continue;
    const int64_t end = process->state.first_number();
    wanted.push_back({id, process->row.rank, std::max<int64_t>(end - kMaxRepeated, 0), end});
  }
  return wanted;
}

void Job::SetLog(int64_t process_id, int64_t begin, std::vector<KnownLengths> log) {
  Process& process = processes_.at(process_id);
  if (!process.state.aligning()) return;
  process.alignment.SetLog(begin, std::move(log), Shape().dimensions());
  if (process.alignment.buffers()) EndAlignmentIfDecided(process);
}

void Job::Align(Process& process, const FinishedIteration& iteration) {
  ReportIteration(process, iteration);
  process.OnBoundary(iteration);
  const bool numbered = static_cast<int64_t>(iteration.number()) < process.state.renumbered_from();
  if (numbered || !process.state.aligning()) return OnFinished(process, iteration);
  changes_.Mark(Change::kRecords);
  process.alignment.Add(iteration, Shape().dimensions());
  EndAlignmentIfDecided(process);
}

void Job::EndAlignmentIfDecided(Process& process) {
  const Role role = processes_.RoleOf(process);
  const bool counted = role == Role::kCounted;
  const bool repeats = process.alignment.Repeated().has_value();
  const bool decided = process.alignment.decided() && counted;
  // Ranks that start together resume at one iteration, which another one may show.
  const std::vector<const Process*> others =
      counted ? processes_.MayShowNumbers(process) : std::vector<const Process*>();
  if (const auto by = NumbersOfOthers(process, others, decided && !repeats)) {
    process.state.set_repeated(*by);
    return EndAlignment(process, /*numbered=*/true);
  }
  const bool alone = decided && (repeats || others.empty());
  if (alone || role == Role::kConcurrent || process.alignment.full(process.state)) {
    EndAlignment(process);
  }
}

std::optional<int64_t> Job::NumbersOfOthers(const Process& process,
                                            const std::vector<const Process*>& others,
                                            bool may_lead) {
  if (others.empty()) return std::nullopt;
  bool all_open = may_lead;
  int64_t most = 0;
  const std::map<const Process*, int64_t> ahead = CountedMore(process, others);
  for (const auto& [other, by] : ahead) {
    all_open &=
        other->state.aligning() && other->alignment.decided() && !other->alignment.Repeated();
    most = std::max(most, by);
    if (!other->counts() || other->state.aligning()) continue;
    const int64_t repeated = other->state.repeated() - by;
    // Damaged records, or a process that has iterations from before the job's first one.
    if (repeated > process.state.first_number() || std::abs(repeated) > kMaxRepeated) continue;
    return repeated;
  }
  // None is numbered yet: what the one that has counted most counted is the number of all.
  if (all_open && ahead.size() == others.size() && most <= kMaxRepeated) return -most;
  return std::nullopt;
}

void Job::EndAlignment(Process& process, bool numbered) {
  if (!process.state.aligning()) return;
  process.state.set_aligning(false);
  changes_.Mark(Change::kProcesses);
  // From the very start of a training that came to its end: another one with the same data.
  const bool another = processes_.StartsLikeEnded(process, process.alignment.Places());
  const std::optional<int64_t> repeated = process.alignment.Repeated();
  if (!numbered && repeated && !another) process.state.set_repeated(*repeated);
  if (numbered || (repeated && !another)) {
    process.state.set_unmatched(false);
    processes_.SetRepeats(process.row.rank);
  }
  for (const FinishedIteration& iteration : process.alignment.End()) OnFinished(process, iteration);
}

void Job::OnFinished(Process& process, const FinishedIteration& iteration) {
  process.state.set_concurrent(processes_.RoleOf(process) == Role::kConcurrent);
  const NumberedIteration numbered =
      process.Number(iteration, rule(), ranks_.NextNumber(process.row.rank));
  rows_.iterations.push_back(RowOf(process, iteration, numbered));
  if (numbered.cold && processes_.size() > 1) process.control_made = 0;
  if (process.state.concurrent()) return changes_.Mark(Change::kDescription);

  if (!process.alive() && !iteration.ended() && iteration.duration_ns() == 0) {
    process.state.set_open_end(true);
  }
  process.pace.Add(iteration.boundary_ns(), iteration.duration_ns());
  if (!numbered.redone) AddToCollectives(process, iteration, numbered);
  if (numbered.sums && !numbered.redone) {
    micro_batches_.Add(iteration.micro_batches(), rule_->rule.micro_batches);
  }
  const bool first = process.state.iterations() == 1;
  v1::PhaseSummary& others = first ? *facts_.mutable_startup() : *facts_.mutable_evaluation();
  others.set_name(first ? "start-up" : "evaluation");
  others.set_iterations(others.iterations() + iteration.other_batches());
  others.set_duration_ns(others.duration_ns() + iteration.other_duration_ns());
  const int64_t first_lost =
      process.state.iterations() > 1 ? ranks_.NextNumber(process.row.rank) : numbered.number;
  ranks_.Advance(process.row.rank, numbered.number + 1);
  const uint64_t sample = engines_.AddIteration(process, iteration, numbered, first_lost);
  changes_.Mark(Change::kIterations);
  if (numbered.known && !numbered.redone) {
    if (numbered.dimensions > 0) observed_.Add(0, numbered.key.first);
    if (numbered.dimensions > 1) observed_.Add(1, numbered.key.second);
  }
  if (iteration.config_id() == abi::kConfigNone) return;
  MeasuredIterationState measured;
  measured.set_first(numbered.key.first);
  measured.set_second(numbered.key.second);
  measured.set_sample(sample);
  measured.set_rank(process.row.rank);
  measured.set_number(numbered.number);
  for (const MeasurementState& measurement :
       OnMeasuredIteration(iteration.number(), measured, *process.state.mutable_measurements())) {
    UseMeasurement(measured, measurement.set(), measurement.values());
  }
}

IterationRow Job::RowOf(const Process& process, const FinishedIteration& iteration,
                        const NumberedIteration& numbered) const {
  const bool learning =
      process.learning || static_cast<int64_t>(iteration.number()) < process.state.marked_from();
  IterationRow row{.job_id = row_.job_id,
                   .rank = process.row.rank,
                   .number = numbered.number,
                   .incarnation = process.row.incarnation,
                   .length_count = numbered.known ? numbered.dimensions : 0,
                   .start_ns = iteration.start_ns(),
                   .duration_ns = iteration.duration_ns(),
                   .rest_ns = iteration.rest_ns(),
                   .level = learning ? v1::LEVEL_LEARN : v1::LEVEL_MARK,
                   .config_id = iteration.config_id(),
                   .boundary_ns = iteration.boundary_ns()};
  row.length[0] = numbered.key.first;
  row.length[1] = numbered.key.second;
  if (iteration.config_id() == abi::kConfigTrace) row.level = v1::LEVEL_TRACE;
  if (iteration.config_id() > abi::kConfigTrace) row.level = v1::LEVEL_COUNTERS;
  const bool concurrent = process.state.concurrent();
  const bool late = engines_.split() && !numbered.redone && !concurrent &&
                    engines_.builder().IsLate(numbered.number);
  for (const auto& [holds, flag] :
       {std::pair(iteration.distorted(), kIterationDistorted),
        std::pair(numbered.redone, kIterationRedone), std::pair(concurrent, kIterationConcurrent),
        std::pair(late, kIterationLate), std::pair(numbered.cold, kIterationFirst)}) {
    if (holds) row.flags |= flag;
  }
  return row;
}

void Job::UseMeasurement(const MeasuredIterationState& iteration, uint32_t set,
                         absl::Span<const double> values) {
  changes_.Mark(Change::kMeasurements);
  engines_.AddMeasurement(set, iteration, values);
}

void Job::OnMeasurement(Process& process, uint64_t number, uint32_t set,
                        absl::Span<const double> values) {
  const auto iteration =
      jobs::OnMeasurement(number, set, values, *process.state.mutable_measurements());
  if (iteration) UseMeasurement(*iteration, set, values);
}

// Adds the kernel times of the traced iterations that have all their records.
void Job::CountTracedWork(Process& process) {
  while (std::optional<TraceWindows::Work> work = process.traces.Take(!process.alive())) {
    if (work->records.empty()) continue;
    diagnosis_.windows().AddWork(process.row.rank, process.JobNumber(work->number), work->records,
                                 process.names);
    const KernelStatistics::Sums sums = kernels_.SumOf(work->records, process.names);
    for (int64_t i = 0; i < sums.unnamed; ++i) process.CountRejected();
    if (!work->unstored.empty())
      AddTraceSegment(process, process.JobNumber(work->number), std::move(work->unstored));
    ReportWork(process, *work, sums);
    AddWork(process, work->number, sums);
  }
}

void Job::AddWork(Process& process, uint64_t number, const KernelStatistics::Sums& sums) {
  MeasurementsState& measurements = *process.state.mutable_measurements();
  if (jobs::IsShared(number, measurements)) return OnFailed(number, measurements);
  OnMeasurement(process, number, kKernelTimeSet, sums.time_ns);
  OnMeasurement(process, number, kKernelLaunchSet, sums.launches);
}

void Job::AddTraceSegment(const Process& process, int64_t number, std::string records) {
  rows_.trace_segments.push_back({.job_id = row_.job_id,
                                  .rank = process.row.rank,
                                  .number = number,
                                  .process_id = process.row.process_id,
                                  .records = std::move(records)});
}

// ----------------------------------------------------------------------------------------- control

void Job::UpdatePlan() {
  changes_.TakePlanDue();
  const EngineTotals totals = engines_.steps().Totals();
  const int64_t affordable = AffordableMeasurements(
      processes_, {.share = orders_.state().overhead_budget_share(),
                   .most_pending = MeasurementBudget() + RooflineBudget(metrics_),
                   .run_iterations = RunIterations(),
                   .observed_time_ns = totals.observed_time_ns,
                   .iterations = static_cast<int64_t>(totals.iterations)});
  const bool alike = engines_.split() && !engines_.builder().lengths_differed();
  const bool changed =
      plan_.Update({.has_rule = rule_.has_value(),
                    .measured = !engines_.measurements().empty(),
                    .measurement_budget = MeasurementBudget(),
                    .orders = orders_.state(),
                    .processes = processes_,
                    .work = engines_.work(),
                    .roofline = roofline_,
                    .metrics = metrics_,
                    .affordable = affordable,
                    .ranks_alike = alike ? static_cast<int>(processes_.LiveRanks().size()) : 1});
  if (changed) changes_.Mark(Change::kPlan);
}

const MeasurementShares& Job::Shares() {
  if (!shares_ || shares_at_ != changes_.marks()) {
    // Each rule has lengths of its own to measure.
    const int64_t most = int64_t{MeasurementBudget()} * (1 + engines_.steps().closed());
    shares_.emplace(processes_,
                    std::min(most + RooflineBudget(metrics_), plan_.affordable_total()));
    shares_at_ = changes_.marks();
  }
  return *shares_;
}

const abi::Control* Job::TakeControl(int64_t process_id) {
  Process& process = processes_.at(process_id);
  if (process.control_made == changes_.controls()) return nullptr;
  process.control_made = changes_.controls();
  process.control = WriteControl(process,
                                 {.orders = orders_.state(),
                                  .processes = processes_,
                                  .metrics = metrics_,
                                  .plan = plan_,
                                  .observed = observed_,
                                  .shares = Shares(),
                                  .rule = rule_ ? &*rule_ : nullptr,
                                  .channel_period = observation_.period(),
                                  .traced_iteration = diagnosis_.wanted()},
                                 orders_.NextGeneration());
  if (process.hub_plan) FollowPlan(*process.hub_plan, process.control);
  return &process.control;
}

void Job::RepublishControl(int64_t process_id) { processes_.at(process_id).control_made = 0; }

void Job::RecordOperators(const std::string& folder) {
  orders_.RecordOperators(folder);
  changes_.Mark(Change::kOperators);
}

absl::Status Job::Control(const v1::ControlRequest& request) {
  if (!refused_.empty()) return absl::DataLossError(refused_);
  if (row_.end_ns != 0) {
    return absl::FailedPreconditionError(absl::StrCat("job \"", row_.name, "@", row_.run_id,
                                                      "\" has ended; there is nothing to control"));
  }
  const auto iterations = static_cast<int64_t>(engines_.steps().Totals().iterations);
  const bool can_trace = processes_.empty() || AnyHasCupti(processes_);
  SEQPOINT_RETURN_IF_ERROR(orders_.Apply(request, iterations, can_trace, *facts_.mutable_gap()));
  orders_.Number(row_.start_ns);
  changes_.Mark(Change::kOrders);
  UpdatePlan();
  return absl::OkStatus();
}

}  // namespace seqpoint::jobs
