// The rows of a job for the store, and back.
#include <google/protobuf/arena.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/jobs/job.h"
#include "daemon/jobs/process.h"
#include "daemon/jobs/rule_codec.h"

namespace seqpoint::jobs {
namespace {

constexpr char kJobPart[] = "job";
constexpr char kHorizonPart[] = "horizon";
constexpr char kRooflinePart[] = "roofline";
constexpr char kRanksPart[] = "ranks";

}  // namespace

void Job::TakeRows(WriteBatch& batch) {
  if (!refused_.empty()) {
    if (changes_.unsaved(StatePart::kRow)) batch.jobs.push_back(row_);
    changes_.SetSaved();
    return;
  }
  const auto add_part = [&](std::string_view part, std::string bytes) {
    batch.states.push_back({.job_id = row_.job_id,
                            .part = std::string(part),
                            .version = kJobStateVersion,
                            .bytes = std::move(bytes)});
  };
  if (row_.end_ns != 0 && !stored()) add_part(kSummaryPart, Describe(false).SerializeAsString());
  for (auto& [id, process] : processes_) {
    const auto next_number = static_cast<uint64_t>(process->builder.next_number());
    for (auto& [number, records] : process->traces.TakeUnstored(next_number)) {
      AddTraceSegment(*process, process->JobNumber(number), std::move(records));
    }
    if (process->learn_log.empty()) continue;
    AddTraceSegment(*process, process->LearnLogNumber(), std::exchange(process->learn_log, {}));
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
    // A job of thousands of ranks has a million messages here; the arena frees them at once.
    google::protobuf::Arena arena;
    JobState& state = *google::protobuf::Arena::CreateMessage<JobState>(&arena);
    SaveState(state);
    add_part(kJobPart, state.SerializeAsString());
  }
  engines_.Store(row_.job_id, kJobStateVersion, changes_.unsaved(StatePart::kEngine), batch.states);
  observed_.Store(row_.job_id, kJobStateVersion, batch.states);
  kernels_.Store(row_.job_id, kJobStateVersion, batch.states);
  if (changes_.unsaved(StatePart::kHorizon)) {
    add_part(kHorizonPart, matching_.horizon().SerializeAsString());
  }
  if (changes_.unsaved(StatePart::kRoofline)) {
    add_part(kRooflinePart, roofline_.state().SerializeAsString());
  }
  if (changes_.unsaved(StatePart::kRanks)) {
    RankObservationState ranks = observation_.Save();
    *ranks.mutable_diagnosis() = diagnosis_.Save();
    if (standstill_.found()) *ranks.mutable_verdicts()->mutable_standstill() = *standstill_.found();
    add_part(kRanksPart, ranks.SerializeAsString());
  }
  changes_.SetSaved();
}

bool Job::stored() const { return changes_.all_saved() && rows_.Empty(); }

void Job::SaveState(JobState& state) const {
  if (rule_) *state.mutable_rule() = EncodeRule(*rule_);
  if (former_rule_) *state.mutable_former_rule() = EncodeRule(*former_rule_);
  for (const auto& [id, process] : processes_) {
    process->Save(&(*state.mutable_processes())[id]);
  }
  *state.mutable_metrics() = metrics_.choice().state();
  *state.mutable_orders() = orders_.state();
  *state.mutable_matching() = matching_.state();
  *state.mutable_micro_batches() = micro_batches_.state();
  *state.mutable_facts() = facts_;
  *state.mutable_program_ends() = program_ends_.list();
  for (const std::string& tag : tags_) state.add_tags(tag);
  ranks_.Save(state.mutable_ranks());
  engines_.Save(state.mutable_engines());
}

absl::Status Job::Restore(const std::vector<StateRow>& states,
                          const std::vector<StoredProcess>& processes) {
  const auto refuse = [&](absl::string_view what, absl::string_view why) {
    // The stored parts stay as they are, for the version that can read them.
    processes_.Clear();
    changes_.SetSaved();
    refused_ = absl::StrCat("the stored ", what, " state of job \"", row_.name, "@", row_.run_id,
                            "\" cannot be read (", why,
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
    if (row.part == kHorizonPart) {
      v1::Horizon horizon;
      if (!horizon.ParseFromString(row.bytes) || !CheckJobHorizon(horizon).ok()) {
        return refuse(row.part, "damaged");
      }
      matching_.SetHorizon(horizon);
    }
    if (row.part == kRooflinePart) {
      RooflineState roofline;
      if (!roofline.ParseFromString(row.bytes)) return refuse(row.part, "damaged");
      roofline_.Load(std::move(roofline));
    }
    if (row.part == kRanksPart) {
      RankObservationState ranks;
      if (!ranks.ParseFromString(row.bytes)) return refuse(row.part, "damaged");
      observation_.Load(ranks);
      diagnosis_.Load(ranks.diagnosis());
      if (ranks.verdicts().has_standstill()) standstill_.Load(ranks.verdicts().standstill());
    }
  }
  const absl::Status status = engines_.Load(states, state.engines());
  if (!status.ok()) return refuse("engine", status.message());
  if (!observed_.Load(states)) return refuse("observed", "damaged");
  if (!kernels_.Load(states) ||
      engines_.work().MeasuredSums(kKernelTimeSet).size() > kernels_.names().size()) {
    return refuse("kernels", "damaged");
  }
  if (state.has_metrics()) {
    auto metrics = MetricChoice::Restore(state.metrics());
    if (!metrics.ok()) return refuse(kJobPart, metrics.status().message());
    metrics_.Set(*std::move(metrics));
  }
  if (state.has_rule() && !(rule_ = DecodeRule(state.rule()))) return refuse(kJobPart, "damaged");
  if (state.has_former_rule() && !(former_rule_ = DecodeRule(state.former_rule()))) {
    return refuse(kJobPart, "damaged");
  }
  matching_.state() = state.matching();
  micro_batches_.Load(state.micro_batches());
  orders_.Load(state.orders());
  facts_ = state.facts();
  program_ends_.Load(state.program_ends());
  tags_ = {state.tags().begin(), state.tags().end()};
  ranks_.Load(state.ranks());
  for (const StoredProcess& stored : processes) {
    Process& process = processes_.Add(std::make_unique<Process>(stored.row));
    for (const NameRow& name : stored.names) process.SetName(name.name_id, name.text);
    const auto saved = state.processes().find(stored.row.process_id);
    if (saved != state.processes().end()) {
      process.Load(saved->second, rule());
    } else {
      process.StartLearning(0, rule());
    }
    if (process.alive()) process.state.set_unread(true);  // until it comes back
    process.seen.Load(engines_.work().current());
  }
  if (processes_.any_reported() && (live() || engines_.builder().open_steps() > 0)) AwaitRanks();
  changes_.SetSaved();
  rows_ = {};
  return absl::OkStatus();
}

std::vector<int64_t> Job::WantedSegments(int64_t process_id) const {
  const Process& process = processes_.at(process_id);
  std::vector<int64_t> numbers;
  if (process.learning) numbers.push_back(process.LearnLogNumber());
  for (const uint64_t number : process.traces.open()) {
    numbers.push_back(process.JobNumber(number));
  }
  return numbers;
}

void Job::RestoreSegment(int64_t process_id, int64_t number, std::string_view records) {
  Process& process = processes_.at(process_id);
  if (!process.learning || number != process.LearnLogNumber()) {
    return process.traces.Restore(records);
  }
  if (records.empty()) return;
  std::vector<abi::DataRecord> log(records.size() / sizeof(abi::DataRecord));
  std::memcpy(log.data(), records.data(), log.size() * sizeof(abi::DataRecord));
  OnData(process_id, log);
  process.learn_log.clear();  // it is in the store
}

}  // namespace seqpoint::jobs
