// What of a job lasts: rows for the store, and back.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "daemon/jobs/job.h"
#include "daemon/jobs/job_process.h"
#include "daemon/jobs/state_codec.h"

namespace seqpoint::jobs {
namespace {

constexpr char kJobPart[] = "job";
constexpr char kHorizonPart[] = "horizon";
constexpr char kRooflinePart[] = "roofline";
// And the index of a closed engine; the current ones are PartLogs.
constexpr char kClosedPart[] = "engine-";
constexpr char kClosedWorkPart[] = "work-";

void EncodeRule(const LearnedRule& from, RuleState* to) {
  to->set_rule(std::string(reinterpret_cast<const char*>(&from.rule), sizeof(abi::Rule)));
  to->set_boundary_words(from.boundary_words);
  to->set_length_words(from.length_words);
  to->set_confidence(from.confidence);
}

std::optional<LearnedRule> DecodeRule(const RuleState& from) {
  if (from.rule().size() != sizeof(abi::Rule)) return std::nullopt;
  LearnedRule to;
  std::memcpy(&to.rule, from.rule().data(), sizeof(abi::Rule));
  to.boundary_words = from.boundary_words();
  to.length_words = from.length_words();
  to.confidence = from.confidence();
  return to;
}

}  // namespace

void Job::TakeRows(WriteBatch& batch) {
  if (!refused_.empty()) {
    if (changes_.unsaved(StatePart::kRow)) batch.jobs.push_back(row_);
    changes_.SetSaved();
    return;
  }
  if (row_.end_ns != 0 && !stored()) {
    batch.states.push_back({.job_id = row_.job_id,
                            .part = kSummaryPart,
                            .version = kJobStateVersion,
                            .bytes = Describe(false).SerializeAsString()});
  }
  for (auto& [id, process] : processes_) {
    FileTrace(*process);
    if (process->learn_log.empty()) continue;
    batch.trace_segments.push_back({.job_id = row_.job_id,
                                    .rank = process->row.rank,
                                    .number = process->LearnLogNumber(),
                                    .process_id = process->row.process_id,
                                    .records = std::exchange(process->learn_log, {})});
  }
  if (changes_.unsaved(StatePart::kRow)) batch.jobs.push_back(row_);
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
  if (changes_.unsaved(StatePart::kJob)) {
    batch.states.push_back({.job_id = row_.job_id,
                            .part = kJobPart,
                            .version = kJobStateVersion,
                            .bytes = SaveState().SerializeAsString()});
  }
  if (changes_.unsaved(StatePart::kEngine)) {
    engine_log_.Write(
        row_.job_id, kJobStateVersion, engine_.current().TakeLog(),
        [&] { return engine_.Serialize(); }, batch.states);
    if (work_) {
      work_log_.Write(
          row_.job_id, kJobStateVersion, work_->current().TakeLog(),
          [&] { return work_->Serialize(); }, batch.states);
    }
  }
  observed_log_.Write(
      row_.job_id, kJobStateVersion, observed_added_.SerializeAsString(),
      [&] { return SaveObserved().SerializeAsString(); }, batch.states);
  observed_added_.Clear();
  kernels_log_.Write(
      row_.job_id, kJobStateVersion, kernels_added_.SerializeAsString(),
      [&] {
        KernelsState all;
        for (const std::string& kernel : kernels_) all.add_names(kernel);
        return all.SerializeAsString();
      },
      batch.states);
  kernels_added_.Clear();
  StoreClosed(engine_, kClosedPart, closed_stored_, batch);
  if (work_) StoreClosed(*work_, kClosedWorkPart, closed_work_stored_, batch);
  if (changes_.unsaved(StatePart::kHorizon)) {
    batch.states.push_back({.job_id = row_.job_id,
                            .part = kHorizonPart,
                            .version = kJobStateVersion,
                            .bytes = horizon_.SerializeAsString()});
  }
  if (changes_.unsaved(StatePart::kRoofline)) {
    batch.states.push_back({.job_id = row_.job_id,
                            .part = kRooflinePart,
                            .version = kJobStateVersion,
                            .bytes = roofline_.state().SerializeAsString()});
  }
  changes_.SetSaved();
}

void Job::StoreClosed(const RunEngine& engine, std::string_view part, int& stored,
                      WriteBatch& batch) const {
  for (; stored < engine.closed(); ++stored) {
    batch.states.push_back({.job_id = row_.job_id,
                            .part = absl::StrFormat("%s%06d", part, stored),
                            .version = kJobStateVersion,
                            .bytes = engine.SerializeClosed(stored)});
  }
}

bool Job::stored() const { return changes_.all_saved() && rows_.Empty(); }

ObservedState Job::SaveObserved() const {
  ObservedState state;
  for (int i = 0; i < 2; ++i) {
    for (const auto& [value, count] : observed_[i]) {
      LengthCountState& entry = *(i == 0 ? state.add_first() : state.add_second());
      entry.set_value(value);
      entry.set_count(count);
    }
  }
  return state;
}

JobState Job::SaveState() const {
  JobState state;
  if (rule_) EncodeRule(*rule_, state.mutable_rule());
  if (former_rule_) EncodeRule(*former_rule_, state.mutable_former_rule());
  state.set_relearned(relearned_);
  state.set_gap(gap_);
  state.set_store_damage(store_damage_);
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
    to.set_given_up_windows(process->given_up_windows);
    to.set_stood_down_duration_ns(process->stood_down_ns);
    to.set_stands_down_for(process->stands_down_for);
    to.set_stood_down_from(process->stood_down_from);
    to.mutable_watched_calls()->Add(process->watched_calls.begin(), process->watched_calls.end());
    to.mutable_watching_ns()->Add(process->watching_ns.begin(), process->watching_ns.end());
    to.set_counter_stops(process->counter_stops);
    to.set_counter_stops_ns(process->counter_stops_ns);
    *to.mutable_sampled() = process->sampled;
    to.set_trace_stops(process->trace_stops);
    to.set_trace_stops_ns(process->trace_stops_ns);
    to.set_beside(process->beside);
    to.mutable_overlaps()->Add(process->overlaps.begin(), process->overlaps.end());
    to.set_ended_well(process->ended_well);
    to.set_unread(process->unread);
    to.set_missing_calls(process->missing_calls);
    to.set_missing_since_ns(process->missing_since_ns);
    to.set_missing_in(process->missing_in);
    to.set_missing_events(process->missing_events);
    to.set_events_dropped(process->events_dropped);
    to.set_open_end(process->open_end);
    to.set_first_boundary_ns(process->first_boundary_ns);
    to.set_last_boundary_ns(process->last_boundary_ns);
    to.set_device(process->device);
    to.set_chip(process->chip);
    to.set_compute_capability(process->compute_capability);
    to.set_level(process->level);
    to.set_measurements_started(process->measurements_started);
    to.set_clock_kind(process->clock_kind);
    to.set_iterations(process->iterations);
    for (const auto& [number, iteration] : process->awaited) {
      AwaitedState& awaited = *to.add_awaited();
      awaited.set_number(number);
      awaited.set_first(iteration.key.first);
      awaited.set_second(iteration.key.second);
      awaited.set_sample(iteration.sample);
    }
    for (const Process::Window& window : process->windows) {
      WindowState& saved = *to.add_windows();
      saved.set_number(window.number);
      saved.set_begin_ns(window.begin_ns);
      saved.set_end_ns(window.end_ns);
    }
    to.set_stops(process->stops);
    to.set_learn_round(process->learn_round);
    to.set_library_rule(process->library_rule);
    to.set_first_number(process->first_number);
    to.set_rank_next(process->rank_next);
    to.set_repeated(process->repeated);
    to.set_aligning(process->aligning);
    for (const FinishedIteration& iteration : process->held) Encode(iteration, to.add_held());
    to.mutable_open_traces()->Add(process->open_traces.begin(), process->open_traces.end());
    if (process->learning) {
      to.set_learning_from(process->learning->first_number());
      process->learning->SaveQueue(to.mutable_library_events());
    }
  }
  *state.mutable_metrics() = metrics_.Save();
  state.set_overhead_budget_share(options_.overhead_budget_share);
  state.set_operators_folder(operators_folder_);
  state.set_paused(paused_);
  state.set_released(released_);
  state.set_forced_level(forced_level_);
  for (int i = 0; i < 2; ++i) {
    state.add_factor(map_.factor[i]);
  }
  state.set_swapped(map_.swapped);
  state.set_horizon_applied(horizon_applied_);
  state.set_other_batches(evaluation_.count);
  state.set_other_duration_ns(evaluation_.duration_ns);
  state.set_startup_batches(startup_.count);
  state.set_startup_duration_ns(startup_.duration_ns);
  for (const auto& [rank, number] : next_number_) (*state.mutable_next_number())[rank] = number;
  state.set_sentence(sentence_);
  state.set_no_rule(no_rule_);
  state.set_host_times(host_times_);
  state.set_summed_iterations(summed_iterations_);
  state.set_otherwise_summed(otherwise_summed_);
  state.set_micro_steps(micro_steps_);
  program_ends_.Save(&state);
  for (const std::string& tag : tags_) state.add_tags(tag);
  state.set_world_size(world_size_);
  state.mutable_start_ranks()->Add(start_ranks_.begin(), start_ranks_.end());
  state.set_rule_generation(rule_generation_);
  state.set_control_generation(control_generation_);
  state.set_imported(imported_);
  if (work_) {
    *state.mutable_steps() = steps_.Save();
    state.set_next_sample(next_sample_);
  }
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
  process.given_up_windows = saved.given_up_windows();
  process.stood_down_ns = saved.stood_down_duration_ns();
  process.stands_down_for = saved.stands_down_for();
  process.stood_down_from = saved.stood_down_from();
  for (size_t i = 0; i < process.watching_ns.size(); ++i) {
    const int level = static_cast<int>(i);
    if (level < saved.watched_calls_size()) process.watched_calls[i] = saved.watched_calls(level);
    if (level < saved.watching_ns_size()) process.watching_ns[i] = saved.watching_ns(level);
  }
  process.counter_stops = saved.counter_stops();
  process.counter_stops_ns = saved.counter_stops_ns();
  process.sampled = saved.sampled();
  process.trace_stops = saved.trace_stops();
  process.trace_stops_ns = saved.trace_stops_ns();
  process.beside = saved.beside();
  process.overlaps.assign(saved.overlaps().begin(), saved.overlaps().end());
  process.ended_well = saved.ended_well();
  process.unread = saved.unread();
  process.missing_calls = saved.missing_calls();
  process.missing_since_ns = saved.missing_since_ns();
  process.missing_in = saved.missing_in();
  process.missing_events = saved.missing_events();
  process.events_dropped = saved.events_dropped();
  process.open_end = saved.open_end();
  process.first_boundary_ns = saved.first_boundary_ns();
  process.last_boundary_ns = saved.last_boundary_ns();
  process.device = saved.device();
  process.chip = saved.chip();
  process.compute_capability = saved.compute_capability();
  process.level = static_cast<uint8_t>(saved.level());
  process.measurements_started = saved.measurements_started();
  process.clock_kind = saved.clock_kind();
  process.iterations = saved.iterations();
  for (const AwaitedState& awaited : saved.awaited()) {
    process.awaited[awaited.number()] = {{awaited.first(), awaited.second()}, awaited.sample()};
  }
  for (const WindowState& window : saved.windows()) {
    process.windows.push_back({.number = window.number(),
                               .begin_ns = window.begin_ns(),
                               .end_ns = window.end_ns(),
                               .resolved_at = 2});
  }
  process.stops = saved.stops();
  process.learn_round = saved.learn_round();
  process.library_rule = saved.library_rule();
  process.first_number = saved.first_number();
  process.rank_next = saved.rank_next();
  process.repeated = saved.repeated();
  process.aligning = saved.aligning();
  for (const FinishedState& iteration : saved.held()) process.held.push_back(Decode(iteration));
  process.open_traces.insert(saved.open_traces().begin(), saved.open_traces().end());
}

void Job::SetName(Process& process, const NameRow& name) {
  if (name.name_id >= process.names.size()) process.names.resize(name.name_id + 1);
  process.names_bytes += name.text.size() - process.names[name.name_id].text.size();
  process.names[name.name_id] = {.hash = name.name_hash, .text = name.text};
  if (process.learning) process.learning->OnName(name.name_id, name.text);
}

absl::Status Job::Restore(const std::vector<StateRow>& states,
                          const std::vector<StoredProcess>& processes) {
  const auto refuse = [&](std::string_view what, std::string_view why) {
    // What is stored stays as it is, for the version that can read it.
    processes_.clear();
    changes_.SetSaved();
    refused_ = absl::StrCat("the stored ", std::string(what), " state of job \"", row_.name, "@",
                            row_.run_id, "\" cannot be read (", std::string(why),
                            "); its iterations and measurements are still there: `seqpoint "
                            "iterations`, `seqpoint export --csv`");
    return absl::DataLossError(refused_);
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
    if (row.part == kHorizonPart && !horizon_.ParseFromString(row.bytes)) {
      return refuse(row.part, "damaged");
    }
    if (row.part == kRooflinePart) {
      RooflineState roofline;
      if (!roofline.ParseFromString(row.bytes)) return refuse(row.part, "damaged");
      roofline_.Load(std::move(roofline));
    }
    // By part, and so in their order.
    const bool of_work = absl::StartsWith(row.part, kClosedWorkPart);
    if (!of_work && !absl::StartsWith(row.part, kClosedPart)) continue;
    if (of_work && !work_) work_.emplace();
    const absl::Status status = (of_work ? *work_ : engine_).RestoreClosed(row.bytes);
    if (!status.ok()) return refuse(row.part, std::string(status.message()));
  }
  const auto restore = [](const PartLog::Content& content, RunEngine& engine) {
    absl::Status status = content.base.empty() ? absl::OkStatus() : engine.Restore(content.base);
    if (status.ok()) status = engine.current().Replay(content.added);
    if (status.ok()) engine.current().KeepLog();
    return status;
  };
  absl::Status status = restore(engine_log_.Load(states), engine_);
  if (!status.ok()) return refuse("engine", std::string(status.message()));
  if (state.has_steps()) {
    if (!work_) work_.emplace();
    status = restore(work_log_.Load(states), *work_);
    if (!status.ok()) return refuse("work", std::string(status.message()));
    steps_.Load(state.steps());
    next_sample_ = state.next_sample();
    closed_work_stored_ = work_->closed();
  }
  const PartLog::Content observed_bytes = observed_log_.Load(states);
  ObservedState observed;
  if (!observed.ParseFromString(observed_bytes.base + observed_bytes.added)) {
    return refuse("observed", "damaged");
  }
  const PartLog::Content kernel_bytes = kernels_log_.Load(states);
  KernelsState kernels;
  if (!kernels.ParseFromString(kernel_bytes.base + kernel_bytes.added)) {
    return refuse("kernels", "damaged");
  }
  if (state.has_metrics()) {
    auto metrics = MetricChoice::Restore(state.metrics());
    if (!metrics.ok()) return refuse(kJobPart, std::string(metrics.status().message()));
    metrics_ = *std::move(metrics);
  }
  closed_stored_ = engine_.closed();
  rule_ = DecodeRule(state.rule());
  former_rule_ = DecodeRule(state.former_rule());
  relearned_ = state.relearned();
  gap_ = state.gap();
  store_damage_ = state.store_damage();
  for (const std::string& kernel : kernels.names()) KernelIndex(kernel);
  kernels_added_.Clear();
  horizon_applied_ = state.horizon_applied();
  options_.overhead_budget_share = state.overhead_budget_share();
  operators_folder_ = state.operators_folder();
  paused_ = state.paused();
  released_ = state.released();
  forced_level_ = static_cast<v1::Level>(state.forced_level());
  for (int i = 0; i < 2 && i < state.factor_size(); ++i) map_.factor[i] = state.factor(i);
  for (const LengthCountState& entry : observed.first()) Observe(0, entry.value(), entry.count());
  for (const LengthCountState& entry : observed.second()) Observe(1, entry.value(), entry.count());
  map_.swapped = state.swapped();
  evaluation_ = {state.other_batches(), state.other_duration_ns()};
  startup_ = {state.startup_batches(), state.startup_duration_ns()};
  for (const auto& [rank, number] : state.next_number()) next_number_[rank] = number;
  sentence_ = state.sentence();
  no_rule_ = state.no_rule();
  host_times_ = state.host_times();
  summed_iterations_ = state.summed_iterations();
  otherwise_summed_ = state.otherwise_summed();
  micro_steps_ = state.micro_steps();
  program_ends_.Restore(state);
  tags_ = {state.tags().begin(), state.tags().end()};
  world_size_ = std::max<int64_t>(state.world_size(), 1);
  start_ranks_.insert(state.start_ranks().begin(), state.start_ranks().end());
  rule_generation_ = state.rule_generation();
  control_generation_ = state.control_generation();
  imported_ = state.imported();
  for (const auto& [set, count] : state.measurements()) measurements_[set] = count;
  for (const StoredProcess& stored : processes) {
    const int64_t process_id = stored.row.process_id;
    Process& process = *(processes_[process_id] = std::make_unique<Process>(stored.row));
    process.learning = std::make_unique<Learning>();
    for (const NameRow& name : stored.names) SetName(process, name);
    const auto saved = std::find_if(
        state.processes().begin(), state.processes().end(),
        [&](const ProcessState& candidate) { return candidate.process_id() == process_id; });
    const bool found = saved != state.processes().end();
    if (found) RestoreProcess(*saved, process);
    if (process.alive()) process.unread = true;  // until it comes back
    for (int kind = 0; kind < 3; ++kind) {
      for (int i = 0; i < 2; ++i) {
        for (const int64_t length :
             work().current().SeenLengths(i, static_cast<Part::Kind>(kind))) {
          process.seen[kind][i].insert(length);
        }
      }
    }
    if (!process.learning) {
      if (rule_)
        process.monitor.emplace(rule_->rule.micro_steps, rule_->rule.length_count,
                                rule_->rule.step.op == static_cast<uint8_t>(abi::Op::kStep));
      continue;
    }
    process.learning->SetFirstNumber(found ? saved->learning_from() : process.first_number);
    if (rule_) process.learning->SetRule(rule_->rule);
    if (found) process.learning->LoadQueue(saved->library_events());
  }
  changes_.SetSaved();
  rows_.Clear();
  return absl::OkStatus();
}

std::optional<int64_t> Job::LearnLog(int64_t process_id) const {
  const Process& process = *processes_.at(process_id);
  if (!process.learning) return std::nullopt;
  return process.LearnLogNumber();
}

void Job::RestoreLearnLog(int64_t process_id, std::string_view records) {
  std::vector<abi::DataRecord> log(records.size() / sizeof(abi::DataRecord));
  std::memcpy(log.data(), records.data(), log.size() * sizeof(abi::DataRecord));
  OnData(process_id, log);
  processes_.at(process_id)->learn_log.clear();  // it is in the store
}

}  // namespace seqpoint::jobs
