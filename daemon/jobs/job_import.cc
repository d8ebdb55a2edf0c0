// An imported run becomes a job.
#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/jobs/downsampled.h"
#include "daemon/jobs/hello.h"
#include "daemon/jobs/imported_run.h"
#include "daemon/jobs/job.h"
#include "daemon/jobs/process.h"

namespace seqpoint::jobs {
namespace {

// Traced iterations that the engine gets: as many as a live job measures.
constexpr size_t kMostMeasured = 64;
constexpr size_t kMostLengths = 1 << 18;  // what an engine can tell apart

}  // namespace

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
  rule_->rule.micro_batches = 1;
  rule_->rule.length_count = static_cast<uint8_t>(run.dimensions);
  rule_->boundary_words = run.traced ? run.boundary_words : "each row of the imported log";
  rule_->length_words = run.traced ? run.length_words : run.source;
  rule_->confidence = 1;

  v1::PhaseSummary& startup = *facts_.mutable_startup();
  startup.set_name("start-up");
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
      startup.set_iterations(startup.iterations() + 1);
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
  if (too_many) horizon.set_iterations(rows - startup.iterations());
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

}  // namespace seqpoint::jobs
