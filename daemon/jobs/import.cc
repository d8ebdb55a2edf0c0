#include "daemon/jobs/import.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "daemon/jobs/downsampled.h"
#include "daemon/jobs/hello.h"
#include "daemon/jobs/process.h"
#include "daemon/jobs/trace_import.h"
#include "daemon/seqpoint/start_up.h"

namespace seqpoint::jobs {
namespace {

// Rows in a transaction: a live job's commit comes between two of them.
constexpr size_t kPieceRows = 4096;
constexpr double kMostDurationNs = 1LL << 56;  // what an engine takes for a time
constexpr double kMostRunNs = 1LL << 60;       // then the end of a run that begins today has a date
constexpr size_t kMostSourceBytes = 1024;
// Of traced iterations, for the engine: as many as a live job measures.
constexpr size_t kMostMeasured = 64;
constexpr size_t kMostLengths = 1 << 18;  // what an engine can tell apart

}  // namespace

std::string OneLine(std::string text) {
  text.resize(std::min(text.size(), kMostSourceBytes));
  std::replace_if(
      text.begin(), text.end(),
      [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 0x7f; }, ' ');
  return text;
}

namespace {

IterationRow RowOf(const ImportedRun& run, int32_t rank, const ImportedIteration& iteration,
                   int64_t job_id, int64_t number) {
  IterationRow row{
      .job_id = job_id,
      .rank = rank,
      .number = number,
      .length_count = run.dimensions,
      .length = {iteration.key.first, iteration.key.second},
      .start_ns = iteration.start_ns,
      .duration_ns = iteration.duration_ns,
      .level = run.traced ? v1::LEVEL_TRACE : v1::LEVEL_MARK,
      .config_id = run.traced && iteration.whole ? uint32_t{abi::kConfigTrace} : 0,
      .boundary_ns = iteration.boundary_ns != 0 ? iteration.boundary_ns : iteration.start_ns};
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
  // Start-up is looked for among those with a time.
  std::vector<KeyTime> timed;
  std::vector<int32_t> groups_of_timed;
  double run_ns = 0;
  for (int i = 0; i < rows; ++i) {
    const double duration_ns =
        log.durations(i) == 0 ? 0 : std::max(std::round(log.durations(i)), 1.0);
    run_ns += duration_ns;
    if (duration_ns > kMostDurationNs) {
      return absl::InvalidArgumentError(absl::StrCat("log: durations[", i, "] = ", log.durations(i),
                                                     " ns is ", duration_ns / 86400e9,
                                                     " days; is the unit of time right?"));
    }
    times.push_back(
        {{log.lengths(i), run.dimensions > 1 ? log.second_lengths(i) : 0}, duration_ns});
    if (duration_ns == 0) continue;
    timed.push_back(times.back());
    if (log.groups_size() > 0) groups_of_timed.push_back(log.groups(i));
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
  const std::vector<bool> start_up = FindStartUp(timed, groups_of_timed);
  absl::flat_hash_set<int64_t> seen[2];
  int64_t start_ns = 0;
  size_t next_timed = 0;
  for (size_t i = 0; i < times.size(); ++i) {
    const Key& key = times[i].key;
    ImportedIteration& to = run.iterations.emplace_back();
    to = {.key = key,
          .start_ns = start_ns,
          .duration_ns = static_cast<int64_t>(times[i].time_ns),
          .start_up = times[i].time_ns > 0 && start_up[next_timed++]};
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

void Job::AddKernels(const ImportedRun& run) {
  for (const std::string& name : run.kernel_names) kernels_.IndexOf(name);
  const size_t kernels = std::min(kernels_.names().size(), kMaxValues);
  std::vector<size_t> traced;  // iterations
  std::vector<Key> keys;
  for (size_t i = 0; i < run.iterations.size(); ++i) {
    if (run.iterations[i].kernels.empty()) continue;
    traced.push_back(i);
    keys.push_back(run.iterations[i].key);
  }
  const auto count = static_cast<int32_t>(traced.size());
  for (const std::vector<size_t>& group : Groups(keys, kMostMeasured)) {
    std::vector<double> values(2 * kernels);  // times, then launches
    for (const size_t i : group) {
      for (const KernelSum& sum : run.iterations[traced[i]].kernels) {
        const auto index = static_cast<size_t>(std::min(sum.kernel, kOtherKernels));
        values[index] += sum.time_ns / static_cast<double>(group.size());
        values[kernels + index] += sum.launches / static_cast<double>(group.size());
      }
    }
    const absl::Span<const double> all(values);
    engines_.steps()
        .current()
        .AddMeasurement(kKernelTimeSet, traced[group[0]], keys[group[0]], all.first(kernels))
        .IgnoreError();  // counted
    engines_.steps()
        .current()
        .AddMeasurement(kKernelLaunchSet, traced[group[0]], keys[group[0]], all.subspan(kernels))
        .IgnoreError();
  }
  if (count == 0) return;
  engines_.SetMeasurements(kKernelTimeSet, count);
  engines_.SetMeasurements(kKernelLaunchSet, count);
}

void Job::Import(const ImportedRun& run, absl::FunctionRef<int64_t()> new_process_id) {
  facts_.set_imported(true);
  row_.command = run.source;
  row_.state = v1::JOB_STATE_ENDED;
  row_.start_ns = run.start_ns;
  row_.end_ns = run.end_ns;
  const int64_t rows = static_cast<int64_t>(run.iterations.size());
  const auto add_process = [&](int32_t rank, size_t iterations) {
    const int64_t process_id = new_process_id();
    auto process =
        std::make_unique<Process>(ProcessRow{.process_id = process_id,
                                             .job_id = row_.job_id,
                                             .rank = rank,
                                             .ring_id = std::string(16, '\0'),
                                             .text = absl::StrCat("command=", run.source),
                                             .start_ns = run.start_ns,
                                             .end_ns = run.end_ns});
    process->state.set_iterations(iterations);
    process->SetLevel(static_cast<uint8_t>(run.traced ? abi::Level::kTrace : abi::Level::kMark));
    rows_.processes.push_back(process->row);
    processes_.Add(std::move(process));
    ranks_.Advance(rank, static_cast<int64_t>(iterations));
  };
  for (const ImportedRank& rank : run.ranks) add_process(rank.rank, rank.iterations.size());
  if (run.ranks.empty()) add_process(0, run.iterations.size());
  rule_.emplace();
  rule_->rule.generation = NextRuleGeneration();
  rule_->rule.micro_steps = 1;
  rule_->rule.length_count = static_cast<uint8_t>(run.dimensions);
  rule_->boundary_words = run.traced ? run.boundary_words : "each row of the imported log";
  rule_->length_words = run.traced ? run.length_words : run.source;
  rule_->confidence = 1;

  OtherBatchesState& startup = *facts_.mutable_startup();
  std::map<Key, int64_t> counts;
  for (int64_t i = 0; i < rows; ++i) {
    const ImportedIteration& iteration = run.iterations[static_cast<size_t>(i)];
    // A profiler is started when a run is under way: the first iteration of a length that it sees
    // is like any other.
    engines_.steps().current().AddIteration(
        {.iteration = static_cast<uint64_t>(i),
         .key = iteration.key,
         .time_ns = iteration.duration_ns,
         .combined = run.traced,
         .phase = iteration.start_up ? Phase::kOther : Phase::kTrain});
    if (iteration.start_up) {
      startup.set_count(startup.count() + 1);
      startup.set_duration_ns(startup.duration_ns() + iteration.duration_ns);
    } else {
      ++counts[iteration.key];
    }
  }
  AddKernels(run);
  v1::Horizon horizon;
  horizon.set_source(run.traced ? "the imported traces" : "the imported log");
  horizon.set_epochs(1);
  const bool too_many = counts.size() > kMostLengths || run.dimensions == 0;
  horizon.set_kind(too_many ? v1::Horizon::KIND_ITERATIONS : v1::Horizon::KIND_HISTOGRAM);
  if (too_many) horizon.set_iterations(rows - startup.count());
  for (const auto& [key, count] : counts) {
    observed_.Add(0, key.first, count);
    if (run.dimensions > 1) observed_.Add(1, key.second, count);
    if (too_many) continue;
    v1::LengthCount& entry = *horizon.add_histogram();
    entry.add_lengths(key.first);
    if (run.dimensions > 1) entry.add_lengths(key.second);
    entry.set_count(count);
  }
  observed_.RefreshUnits();
  SetHorizon(horizon).IgnoreError();  // it is one of ours
  if (counts.size() > kMostLengths) {
    matching_.SetMessage(absl::StrCat("of the log's ", counts.size(),
                                      " different lengths only the first ", kMostLengths,
                                      " are told apart; round them to a multiple"));
  }
  // As a whole, not as it grew.
  engines_.StoreWhole();
  observed_.StoreWhole();
  changes_.Mark(Change::kRow);
  changes_.Mark(Change::kIterations);
}

absl::StatusOr<std::unique_ptr<Job>> StoreImport(Store& store, JobRow row, const ImportedRun& run,
                                                 const JobOptions& options,
                                                 const std::vector<traces::RecordedTrace>& traces) {
  auto job = std::make_unique<Job>(std::move(row), options);
  job->Import(run, [&] { return store.NewProcessId(); });
  const int64_t job_id = job->row().job_id;
  if (absl::Status status = store.BeginJob(job_id); !status.ok()) return status;
  if (absl::Status status = StoreTraces(store, job_id, traces); !status.ok()) return status;
  WriteBatch batch;
  const auto write = [&](int32_t rank, const std::vector<ImportedIteration>& iterations) {
    for (size_t i = 0; i < iterations.size(); ++i) {
      batch.iterations.push_back(RowOf(run, rank, iterations[i], job_id, static_cast<int64_t>(i)));
      if (batch.iterations.size() < kPieceRows && i + 1 < iterations.size()) continue;
      if (absl::Status status = store.Write(batch); !status.ok()) return status;
      batch.Clear();
    }
    return absl::OkStatus();
  };
  for (const ImportedRank& rank : run.ranks) {
    if (absl::Status status = write(rank.rank, rank.iterations); !status.ok()) return status;
  }
  if (run.ranks.size() != 1) {
    const int32_t rank = run.ranks.empty() ? 0 : kStepsRank;
    if (absl::Status status = write(rank, run.iterations); !status.ok()) return status;
  }
  job->TakeRows(batch);
  if (absl::Status status = store.Write(batch); !status.ok()) return status;
  return job;
}

}  // namespace seqpoint::jobs
