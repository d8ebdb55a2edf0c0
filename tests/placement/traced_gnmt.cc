#include "tests/placement/traced_gnmt.h"

#include <sys/wait.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <numeric>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/seqpoint/analysis.h"
#include "tests/support/temp_folder.h"
#include "tests/support/trace_file.h"

namespace seqpoint::placement {
namespace {

// All work is traced once the daemon has learned where iterations begin and what their length is:
// some 30 iterations of different lengths, and the time until the program hears of it.
constexpr int kShortest = 8;  // source and target length together; iterations for this are shorter
constexpr int kOfEachShort = 15;
// The short ones take about 0.5 ms each of the software GPU's time, the daemon's answer up to 0.1
// s.
constexpr char kSlowly[] = ",clock.speed_cap=0.2";
// The first one of a length pays for what is found out once (the software GPU's search_ns).
constexpr int kOfEachLength = 2;
// A trace has about half a kilobyte for each kernel, and an iteration thousands of these: it is
// read in one piece.
constexpr size_t kLengthsOfOneTrace = 32;

std::vector<std::string> OptionsOf(const GnmtRun& run) {
  std::vector<std::string> options = {"--model", "gnmt", "--batch", absl::StrCat(run.batch),
                                      "--nvtx", "--optimizer", "foreach",
                                      // Data is loaded beside training, and gradients overwritten:
                                      // what is left is the model's work.
                                      "--load-us", "0", "--zero-grad", "none"};
  options.insert(options.end(), run.options.begin(), run.options.end());
  return options;
}

// The problems of a few lengths, shortest first.
absl::Status TraceSome(whatif::SoftwareRuns& runs, const GnmtRun& run, const std::string& job,
                       const std::vector<Lengths>& some,
                       std::map<Lengths, TracedProblem>* problems) {
  const TempFolder folder;
  const std::string lengths_file = folder.path() / "lengths.csv";
  const std::string operations_file = folder.path() / "operations.jsonl";
  const std::string trace_file = folder.path() / "trace.json";
  std::vector<Lengths> iterations;
  for (int sum = 2; sum < kShortest; ++sum) {
    iterations.insert(iterations.end(), kOfEachShort, {sum / 2, sum - sum / 2});
  }
  const auto lead_in = static_cast<int64_t>(iterations.size());
  for (const Lengths& lengths : some) {
    iterations.insert(iterations.end(), kOfEachLength, lengths);
  }
  iterations.push_back(some.back());  // an iteration lasts until the next begins
  {
    std::ofstream file(lengths_file);
    file << "len_source,len_target\n";
    for (const Lengths& lengths : iterations) {
      for (int i = 0; i < run.batch; ++i) file << absl::StrJoin(lengths, ",") << "\n";
    }
  }
  std::vector<std::string> options = OptionsOf(run);
  for (const std::string& more :
       {std::string("--lengths"), lengths_file, std::string("--order"), std::string("sorted"),
        std::string("--operations"), operations_file}) {
    options.push_back(more);
  }
  // Before the program starts, so that not one iteration is missed.
  v1::PrepareJobRequest prepare;
  prepare.set_name(job);
  prepare.set_run_id("1");
  v1::ControlRequest trace_all;
  trace_all.set_job(job);
  trace_all.set_action(v1::ControlRequest::ACTION_SET_LEVEL);
  trace_all.set_level(v1::LEVEL_TRACE);
  if (!runs.api().Call(&v1::Profiler::Stub::PrepareJob, prepare) ||
      !runs.api().Call(&v1::Profiler::Stub::Control, trace_all)) {
    return absl::InternalError(absl::StrCat(job, ": ", runs.api().error()));
  }
  int status = 0;
  waitpid(runs.StartTraining(job, options, absl::StrCat(run.settings, kSlowly),
                             {"TORCHELASTIC_RUN_ID=1"}),
          &status, 0);
  if (status != 0) return absl::InternalError(absl::StrCat(job, " ended with status ", status));
  const whatif::SoftwareRuns::Said said = runs.Seqpoint({"export", job, "--chrome", trace_file});
  if (said.status != 0) return absl::InternalError(said.text);
  const auto trace = ReadTraceFile(trace_file);
  if (!trace.ok()) return trace.status();
  const auto models = ReadOperations(operations_file);
  if (!models.ok()) return models.status();

  std::map<int64_t, TracedStep> steps;
  for (TracedStep& step : StepsOf(*trace)) steps[step.number] = std::move(step);
  for (size_t i = 0; i < some.size(); ++i) {
    const auto step = steps.find(lead_in + kOfEachLength * static_cast<int64_t>(i + 1) - 1);
    const auto model = std::find_if(models->begin(), models->end(), [&](const auto& candidate) {
      return candidate.lengths == some[i];
    });
    if (step == steps.end() || model == models->end()) {
      return absl::FailedPreconditionError(
          absl::StrCat(job, ": length ", absl::StrJoin(some[i], " x "), " was not traced"));
    }
    auto problem = MakeProblem(*model, step->second, trace->names, run.bytes_per_second);
    if (!problem.ok()) return problem.status();
    (*problems)[some[i]] = *std::move(problem);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<TracedProblem>> TraceGnmt(whatif::SoftwareRuns& runs, const GnmtRun& run,
                                                     const std::vector<Lengths>& lengths) {
  std::vector<Lengths> sorted = lengths;
  // As the program's order "sorted" has them (tests/workloads/batching.h).
  std::stable_sort(sorted.begin(), sorted.end(), [](const Lengths& a, const Lengths& b) {
    return std::accumulate(a.begin(), a.end(), 0) < std::accumulate(b.begin(), b.end(), 0);
  });
  const Lengths& first = sorted.front();
  if (std::accumulate(first.begin(), first.end(), 0) < kShortest) {
    return absl::InvalidArgumentError(absl::StrCat("lengths ", absl::StrJoin(first, " x "),
                                                   ": the shortest that can be traced is ",
                                                   kShortest, " in all"));
  }
  std::map<Lengths, TracedProblem> problems;
  for (size_t begin = 0; begin < sorted.size(); begin += kLengthsOfOneTrace) {
    const size_t end = std::min(sorted.size(), begin + kLengthsOfOneTrace);
    const absl::Status status = TraceSome(runs, run, absl::StrCat("traced", begin),
                                          {sorted.begin() + static_cast<ptrdiff_t>(begin),
                                           sorted.begin() + static_cast<ptrdiff_t>(end)},
                                          &problems);
    if (!status.ok()) return status;
  }
  std::vector<TracedProblem> result;
  for (const Lengths& pair : lengths) result.push_back(problems.at(pair));
  return result;
}

absl::StatusOr<Epoch> TrainGnmt(whatif::SoftwareRuns& runs, const GnmtRun& run,
                                const std::vector<std::string>& examples, int points) {
  std::vector<std::string> options = OptionsOf(run);
  options.insert(options.end(), examples.begin(), examples.end());
  const auto trained = runs.Train("trained", options, run.settings);
  if (!trained.ok()) return trained.status();
  Epoch epoch;
  std::map<Lengths, double> counts;
  RunLog log;
  for (const TrueIteration& iteration : trained->alone.iterations) {
    counts[{iteration.lengths.begin(), iteration.lengths.end()}] += 1;
    log.keys.push_back({iteration.lengths[0], iteration.lengths[1]});
    log.times.push_back(iteration.gpu_time_ns);
  }
  for (const auto& [lengths, count] : counts) epoch.all.push_back({lengths, count});
  epoch.mean_ms = trained->alone_ns / static_cast<double>(trained->alone.iterations.size()) * 1e-6;
  for (const SeqPoint& point : AnalyzeLog(log, nullptr, {.points = points}).selection.points) {
    epoch.seqpoints.push_back(
        {{static_cast<int>(point.key.first), static_cast<int>(point.key.second)}, point.weight});
  }
  return epoch;
}

}  // namespace seqpoint::placement
