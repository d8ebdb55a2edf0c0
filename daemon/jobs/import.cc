#include "daemon/jobs/import.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "daemon/jobs/job_process.h"
#include "daemon/seqpoint/start_up.h"

namespace seqpoint::jobs {
namespace {

// Rows in a transaction: a live job's commit comes between two of them.
constexpr size_t kPieceRows = 4096;
constexpr double kMostDurationNs = 1LL << 56;  // what an engine takes for a time
constexpr double kMostRunNs = 1LL << 60;       // then the end of a run that begins today has a date
constexpr size_t kMostSourceBytes = 1024;
constexpr size_t kMostLengths = 1 << 18;  // what an engine can tell apart

// On one line.
std::string OneLine(std::string text) {
  text.resize(std::min(text.size(), kMostSourceBytes));
  std::replace_if(
      text.begin(), text.end(),
      [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 0x7f; }, ' ');
  return text;
}

IterationRow RowOf(const ImportedIteration& iteration, int64_t job_id, int64_t number,
                   int dimensions) {
  IterationRow row{.job_id = job_id,
                   .number = number,
                   .length_count = dimensions,
                   .length = {iteration.key.first, iteration.key.second},
                   .start_ns = iteration.start_ns,
                   .duration_ns = iteration.duration_ns,
                   .level = v1::LEVEL_MARK,
                   .boundary_ns = iteration.start_ns};
  if (iteration.first) row.flags |= kIterationFirst;
  if (iteration.start_up) {
    row.flags |= kIterationOther;
    row.phase = kStartUpPhase;
  }
  return row;
}

}  // namespace

absl::StatusOr<ImportedRun> ReadImport(const v1::ImportJobRequest& request, int64_t now_ns) {
  const v1::IterationLog& log = request.log();
  const int rows = log.lengths_size();
  ImportedRun run{.source = OneLine(request.source()),
                  .dimensions = log.second_lengths_size() > 0 ? 2 : 1};
  std::vector<KeyTime> times;
  double run_ns = 0;
  for (int i = 0; i < rows; ++i) {
    const double duration_ns = std::max(std::round(log.durations(i)), 1.0);
    run_ns += duration_ns;
    if (duration_ns > kMostDurationNs) {
      return absl::InvalidArgumentError(absl::StrCat("log: durations[", i, "] = ", log.durations(i),
                                                     " ns is ", duration_ns / 86400e9,
                                                     " days; is the unit of time right?"));
    }
    times.push_back(
        {{log.lengths(i), run.dimensions > 1 ? log.second_lengths(i) : 0}, duration_ns});
  }
  if (run_ns > kMostRunNs) {
    return absl::InvalidArgumentError(absl::StrCat("log: its ", rows, " durations sum to ",
                                                   run_ns / 86400e9,
                                                   " days; is the unit of time right?"));
  }
  if (request.start_ns() < 0 || request.start_ns() > INT64_MAX - (int64_t{1} << 61)) {
    return absl::InvalidArgumentError(
        absl::StrCat("start_ns = ", request.start_ns(), " is not a time since 1970"));
  }
  const std::vector<bool> start_up = FindStartUp(times, log.groups());
  absl::flat_hash_set<int64_t> seen[2];
  int64_t start_ns = 0;
  for (size_t i = 0; i < times.size(); ++i) {
    const Key& key = times[i].key;
    ImportedIteration& to = run.iterations.emplace_back();
    to = {.key = key,
          .start_ns = start_ns,
          .duration_ns = static_cast<int64_t>(times[i].time_ns),
          .start_up = start_up[i]};
    start_ns += to.duration_ns;
    if (to.start_up) continue;
    to.first = seen[0].insert(key.first).second;
    if (run.dimensions > 1) to.first |= seen[1].insert(key.second).second;
  }
  run.start_ns =
      request.start_ns() != 0 ? request.start_ns() : std::max<int64_t>(now_ns - start_ns, 1);
  run.end_ns = run.start_ns + start_ns;
  for (ImportedIteration& iteration : run.iterations) iteration.start_ns += run.start_ns;
  return run;
}

void Job::Import(const ImportedRun& run, int64_t process_id) {
  imported_ = true;
  row_.command = run.source;
  row_.state = v1::JOB_STATE_ENDED;
  row_.start_ns = run.start_ns;
  row_.end_ns = run.end_ns;
  const int64_t rows = static_cast<int64_t>(run.iterations.size());
  auto process = std::make_unique<Process>(ProcessRow{.process_id = process_id,
                                                      .job_id = row_.job_id,
                                                      .ring_id = std::string(16, '\0'),
                                                      .text = absl::StrCat("command=", run.source),
                                                      .start_ns = run.start_ns,
                                                      .end_ns = run.end_ns});
  process->iterations = static_cast<uint64_t>(rows);
  process->level = static_cast<uint8_t>(abi::Level::kMark);
  rows_.processes.push_back(process->row);
  processes_[process_id] = std::move(process);
  next_number_[0] = rows;
  rule_.emplace();
  rule_->rule.generation = ++rule_generation_;
  rule_->rule.micro_steps = 1;
  rule_->rule.length_count = static_cast<uint8_t>(run.dimensions);
  rule_->boundary_words = "each row of the imported log";
  rule_->length_words = run.source;
  rule_->confidence = 1;

  std::map<Key, int64_t> counts;
  for (int64_t i = 0; i < rows; ++i) {
    const ImportedIteration& iteration = run.iterations[static_cast<size_t>(i)];
    engine_.current().AddIteration({.iteration = static_cast<uint64_t>(i),
                                    .key = iteration.key,
                                    .time_ns = iteration.duration_ns,
                                    .phase = iteration.start_up ? Phase::kOther : Phase::kTrain});
    if (iteration.start_up) {
      ++startup_.count;
      startup_.duration_ns += iteration.duration_ns;
    } else {
      ++counts[iteration.key];
    }
  }
  v1::Horizon horizon;
  horizon.set_source("the imported log");
  horizon.set_epochs(1);
  const bool too_many = counts.size() > kMostLengths;
  horizon.set_kind(too_many ? v1::Horizon::KIND_ITERATIONS : v1::Horizon::KIND_HISTOGRAM);
  if (too_many) horizon.set_iterations(rows - startup_.count);
  for (const auto& [key, count] : counts) {
    Observe(0, key.first, count);
    if (run.dimensions > 1) Observe(1, key.second, count);
    if (too_many) continue;
    v1::LengthCount& entry = *horizon.add_histogram();
    entry.add_lengths(key.first);
    if (run.dimensions > 1) entry.add_lengths(key.second);
    entry.set_count(count);
  }
  SetHorizon(horizon).IgnoreError();  // it is one of ours
  if (too_many) {
    sentence_ = absl::StrCat("of the log's ", counts.size(), " different lengths only the first ",
                             kMostLengths, " are told apart; round them to a multiple");
  }
  // As a whole, not as it grew.
  engine_log_.Restart();
  observed_log_.Restart();
  job_dirty_ = state_dirty_ = engine_dirty_ = true;
  ++generation_;
}

absl::StatusOr<std::unique_ptr<Job>> StoreImport(Store& store, JobRow row, const ImportedRun& run,
                                                 const JobOptions& options) {
  auto job = std::make_unique<Job>(std::move(row), options);
  job->Import(run, store.NewProcessId());
  const int64_t job_id = job->row().job_id;
  if (absl::Status status = store.BeginJob(job_id); !status.ok()) return status;
  WriteBatch batch;
  for (size_t i = 0; i < run.iterations.size(); ++i) {
    batch.iterations.push_back(
        RowOf(run.iterations[i], job_id, static_cast<int64_t>(i), run.dimensions));
    if (batch.iterations.size() < kPieceRows && i + 1 < run.iterations.size()) continue;
    if (absl::Status status = store.Write(batch); !status.ok()) return status;
    batch.Clear();
  }
  job->TakeRows(batch);
  if (absl::Status status = store.Write(batch); !status.ok()) return status;
  return job;
}

}  // namespace seqpoint::jobs
