// `seqpoint-place`: splits a graph of operators over devices (docs/using/placement.md). `seqpoint
// place` starts it.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "client/commands/options.h"
#include "client/files/whole_file.h"
#include "client/place/job_recordings.h"
#include "client/place/place_text.h"
#include "client/place/recordings.h"
#include "client/planners/planner_program.h"
#include "client/text/plain_text.h"
#include "daemon/placement/judge.h"
#include "daemon/placement/problem_json.h"
#include "daemon/placement/split_json.h"
#include "daemon/placement/whole_run.h"
#include "proto/status_macros.h"

namespace seqpoint::client {
namespace {

using placement::Objective;
using placement::Placement;
using placement::Plan;
using placement::PlannerOptions;
using placement::Problem;
using Clock = std::chrono::steady_clock;

constexpr int kLockStepRestarts = 8;  // each as long as those of one length together
constexpr int kMostThreads = 64;
constexpr double kMostProofSeconds = 86'400;
constexpr double kRounding = 1e-9;

class Place : public PlannerProgram {
 public:
  Place()
      : PlannerProgram("Split a graph of operators over accelerators and CPU cores.",
                       "seqpoint place") {
    auto* file = app_.add_option("FILE", file_,
                                 "a problem (docs/formats/placement-files.md), or a JOB of "
                                 "seqpoint run --operators: id, name@run_id or name")
                     ->option_text("FILE|JOB");
    auto* trace = AddValue(&app_, "--trace ET,TIMES[@LENGTH]", &traces_,
                           "a recording instead of FILE: an execution trace of PyTorch and "
                           "the times of its operators; once for each length")
                      ->excludes(file);
    AddValue(&app_, "--lengths FILE", &lengths_,
             "CSV with one row for each iteration of the run, to count how often each "
             "length occurs; default: all count equally")
        ->needs(trace);
    AddChoice(&app_, "--pipeline", &pipeline_, {"decoupled", "lockstep"},
              "for several lengths: decoupled (default): deep queues between stages; lockstep: "
              "each step is as long as its slowest stage");
    AddValue(&app_, "--socket PATH", &socket_, "the daemon's api.sock, for a JOB");
    AddValue(&app_, "--bandwidth SIZE", &bandwidth_,
             "bytes moved per second, for recordings, such as 12GB; default: that of their "
             "copies, else 15.75GB",
             ByteSize());
    AddValue(&app_, "--devices N", &accelerators_,
             "number of accelerators; default: that of the file",
             WholeNumber(0, placement::kMostDevices));
    AddValue(&app_, "--memory SIZE", &memory_,
             "memory of each accelerator, such as 16GiB; default: that of the file", ByteSize());
    AddValue(&app_, "--cpus N", &cpus_, "number of CPU cores; default: that of the file",
             WholeNumber(0, placement::kMostDevices));
    AddChoice(&app_, "--objective", &objective_, {"throughput", "latency"},
              "throughput (default): the slowest device of a pipeline; latency: one sample alone");
    auto* any = app_.add_flag("--any", any_, "a device may hold several stages");
    app_.add_flag("--contiguous", contiguous_, "each device is one stage (default)")->excludes(any);
    AddValue(&app_, "--proof SECONDS", &proof_seconds_,
             "with --any: how long to try to prove that no placement is better; default 30; "
             "0: not at all",
             Number(0, kMostProofSeconds));
    AddValue(&app_, "--threads N", &threads_, "number of threads; default: one per processor",
             WholeNumber(1, kMostThreads));
    AddValue(&app_, "--against SPLIT", &against_, "another split to compare with");
    AddValue(&app_, "-o,--output OUT", &output_, "write the placement to this file; -: print it");
    AddValue(&app_, "--dot FILE", &dot_, "write the graph for Graphviz, a color for each device");
    app_.add_flag("--json", json_, "print the answer as JSON");
    app_.footer(R"(
LOAD           time of a device for each sample: COMPUTE plus COMMUNICATION
COMMUNICATION  transfers in and out, each output once per accelerator; free for cores
OF SLOWEST     share of the largest load, which is the time per sample
COMPARED WITH  one accelerator for everything; equal layers: equally many operators on each, in
               order; one more accelerator: the time with another one
RECORDING      a recorded length; ITERATION and LOADS should be equal on a CPU; BETWEEN is the time
               between operators (docs/formats/operator-costs.md)

Exit codes: 0 ok, also when Ctrl-C ended the search with the best so far; 1 no answer; 2 wrong
usage. More: docs/using/placement.md.)");
  }

 private:
  absl::Status CheckUsage() const override {
    if (memory_ > placement::kMostBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("--memory is ", memory_, " bytes; it can be 0 to ", placement::kMostBytes));
    }
    const bool several = output_ == dot_ || (json_ && (output_ == "-" || dot_ == "-"));
    if (several && !(output_.empty() && dot_.empty())) {
      return absl::InvalidArgumentError("-o, --dot and --json would go to one place; name others");
    }
    std::error_code error;
    for (const std::string& written : {output_, dot_}) {
      if (written.empty() || !std::filesystem::equivalent(written, file_, error)) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(written, " is the problem; write the answer to another file"));
    }
    if (traces_.empty() && file_.empty()) {
      return absl::InvalidArgumentError(
          "give a FILE with a problem, a JOB, or recordings with --trace; see seqpoint place "
          "--help");
    }
    for (const std::string& argument : traces_) {
      SEQPOINT_RETURN_IF_ERROR(ParseTraceArgument(argument).status());
    }
    if (traces_.empty() && !IsJob()) {
      if (bandwidth_ == 0 && socket_.empty()) return absl::OkStatus();
      return absl::InvalidArgumentError(absl::StrCat(bandwidth_ > 0 ? "--bandwidth" : "--socket",
                                                     " goes with recordings, and ", file_,
                                                     " is a file; leave it out"));
    }
    if (pipeline_ == "lockstep" && objective_ == "latency") {
      return absl::InvalidArgumentError(
          "--pipeline lockstep is about a pipeline's throughput; leave out --objective latency");
    }
    if (accelerators_ < 0 && cpus_ < 0) {
      return absl::InvalidArgumentError(
          "recordings do not say how many devices there are; give --devices N, or --cpus N");
    }
    return absl::OkStatus();
  }

  absl::Status Run() override {
    return !traces_.empty() ? RunTraces() : IsJob() ? RunJob() : RunFile();
  }

  absl::Status RunFile() {
    SEQPOINT_ASSIGN_OR_RETURN(const std::string text, ReadWhole(file_));
    SEQPOINT_ASSIGN_OR_RETURN(Problem problem, placement::ReadProblem(text, file_));
    if (accelerators_ >= 0) problem.accelerators = accelerators_;
    if (cpus_ >= 0) problem.cpus = cpus_;
    if (memory_ >= 0) problem.memory_bytes = memory_;
    return Answer(std::move(problem), file_, nullptr, "");
  }

  // The split of --against; empty: none was given.
  absl::StatusOr<Placement> ReadAgainst(const Problem& problem) const {
    if (against_.empty()) return Placement();
    SEQPOINT_ASSIGN_OR_RETURN(const std::string text, ReadWhole(against_));
    return placement::ReadSplit(text, against_, problem);
  }

  // A word that is no file, and does not look like one that is missing.
  bool IsJob() const {
    std::error_code error;
    return traces_.empty() && !file_.empty() && !std::filesystem::exists(file_, error) &&
           file_.find('/') == file_.npos && !file_.ends_with(".json");
  }

  absl::Status RunTraces() {
    RecordingsAsked asked = {.lengths = lengths_};
    for (const std::string& argument : traces_) {
      SEQPOINT_ASSIGN_OR_RETURN(asked.traces.emplace_back(), ParseTraceArgument(argument));
    }
    return RunRecorded(std::move(asked), "the recorded model", "");
  }

  absl::Status RunJob() {
    absl::StatusOr<JobRecordings> found = FindJobRecordings(socket_, file_);
    if (!found.ok()) {
      return absl::Status(found.status().code(),
                          absl::StrCat(Quote(file_), " is no file, and as a job: ",
                                       std::string(found.status().message())));
    }
    return RunRecorded({.traces = std::move(found->traces)}, found->job, found->note);
  }

  absl::Status RunRecorded(RecordingsAsked asked, const std::string& source,
                           const std::string& note) {
    asked.memory_said = memory_ >= 0;
    asked.devices.accelerators = std::max(accelerators_, 0);
    asked.devices.cpus = std::max(cpus_, 0);
    asked.devices.memory_bytes = std::max(memory_, 0.0);
    if (bandwidth_ > 0) asked.devices.bytes_per_second = bandwidth_;
    SEQPOINT_ASSIGN_OR_RETURN(const placement::MeasuredRun run, ReadRecordings(asked));
    Problem average = placement::AverageProblem(run.problems);
    std::string notes = note;
    const std::string unusual = UnusualRecordings(asked.traces, run);
    if (!unusual.empty()) absl::StrAppend(&notes, notes.empty() ? "" : "; ", unusual);
    return Answer(std::move(average), source, &run, notes);
  }

  // `run`: what `problem` is the average of; null: it comes from a file. `note`: about it.
  absl::Status Answer(Problem problem, const std::string& source, const placement::MeasuredRun* run,
                      const std::string& note) {
    SEQPOINT_ASSIGN_OR_RETURN(const Placement against, ReadAgainst(problem));
    CatchInterrupt();
    PlaceAnswer answer;
    answer.source = source;
    if (run != nullptr) {
      answer.unit = absl::StrCat(
          "Times in ms.",
          memory_ < 0 ? " Without --memory each accelerator can hold the whole model." : "");
    }
    answer.options.objective =
        objective_ == "latency" ? Objective::kLatency : Objective::kThroughput;
    answer.options.contiguous = !any_;
    answer.options.proof_seconds = proof_seconds_;
    answer.alternatives = ObviousAlternatives(problem, answer.options);
    if (!against.empty()) {
      answer.alternatives.push_back(Judged(against_, problem, against, answer.options));
    }
    SEQPOINT_RETURN_IF_ERROR(MakePlans(problem, &answer));
    answer.problem = std::move(problem);
    if (run != nullptr) PlanRun(*run, against, note, &answer);
    SEQPOINT_RETURN_IF_ERROR(Write(answer));
    if (output_ == "-") return absl::OkStatus();
    return WriteWhole("-", json_ ? PlaceJson(answer) : PlaceText(answer));
  }

  // The plan, and what one more accelerator would bring.
  absl::Status MakePlans(const Problem& problem, PlaceAnswer* answer) const {
    PlanProgress progress(name_);
    PlannerOptions options = Planning(answer->options);
    options.progress = [&](const std::string& what) { progress.Say(what); };
    const Clock::time_point begin = Clock::now();
    absl::StatusOr<Plan> plan = placement::MakePlan(problem, options);
    if (!plan.ok()) {
      return absl::Status(plan.status().code(),
                          absl::StrCat(answer->source, ": ", std::string(plan.status().message())));
    }
    answer->seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    answer->plan = *std::move(plan);
    if (answer->plan.stopped || problem.accelerators >= placement::kMostDevices) {
      return absl::OkStatus();
    }
    Problem larger = problem;
    ++larger.accelerators;
    options.proof_seconds = 0;
    options.progress = [&](const std::string& what) {
      progress.Say(absl::StrCat("one more accelerator: ", what));
    };
    plan = placement::MakePlan(larger, options);
    if (plan.ok() && !plan->stopped) {
      // A device may stay empty; a search that finds less than before found nothing.
      const double value = std::min(plan->value, answer->plan.value);
      answer->alternatives.push_back({.name = "one more accelerator", .value = value});
    }
    return absl::OkStatus();
  }

  PlannerOptions Planning(PlannerOptions options) const {
    options.threads = threads_ > 0 ? threads_ : Processors();
    options.stop = &Interrupted;
    return options;
  }

  // Over the lengths of a run: the pipeline that was asked for, and beside it the placements that
  // are best for one length alone.
  void PlanRun(const placement::MeasuredRun& run, const Placement& against, const std::string& note,
               PlaceAnswer* answer) const {
    Plan& plan = answer->plan;
    const Pipeline pipeline = pipeline_ == "lockstep" ? Pipeline::kLockStep : Pipeline::kDecoupled;
    const auto judged = [&](const std::string& name, const Placement& placement) {
      Alternative other = Judged(name, answer->problem, placement, answer->options);
      other.value = PipelineTime(run, placement, pipeline);
      return other;
    };
    std::vector<Alternative> others;
    if (pipeline == Pipeline::kLockStep) {
      others.push_back(judged("one device", Placement(answer->problem.operators.size(), 0)));
      if (!against.empty()) others.push_back(judged(against_, against));
      others.push_back(judged("the best decoupled one", plan.placement));
    }
    PlannerOptions options = Planning(answer->options);
    options.proof_seconds = 0;
    Placement start = plan.placement;
    for (size_t r = 0; r < run.problems.size() && run.problems.size() > 1; ++r) {
      const absl::StatusOr<Plan> alone = placement::MakePlan(run.problems[r].problem, options);
      if (!alone.ok() || alone->stopped) continue;
      others.push_back(
          judged(absl::StrCat("best for ", run.problems[r].name, " alone"), alone->placement));
      if (others.back().why_not.empty() &&
          *others.back().value < PipelineTime(run, start, pipeline)) {
        start = alone->placement;
      }
    }
    if (pipeline == Pipeline::kLockStep) {
      answer->alternatives.clear();  // their values are those of a decoupled pipeline
      placement::SearchOptions search;
      search.restarts = kLockStepRestarts;
      search.threads = options.threads;
      search.stop = options.stop;
      const placement::LockStepResult best =
          placement::ImproveLockStep(run.problems, start, answer->options.contiguous, search);
      plan.placement = best.placement;
      plan.judgement = placement::Judge(answer->problem, plan.placement);
      plan.value = best.value;
      // The bound of the decoupled pipeline is one of this pipeline, too.
      plan.optimal = plan.value <= plan.lower_bound * (1 + kRounding);
      plan.stopped = plan.stopped || best.stopped;
      plan.method += ", then search in lock-step";
    }
    answer->alternatives.insert(answer->alternatives.end(), others.begin(), others.end());
    answer->more_text = RecordingsText(run, plan.placement, note);
    answer->more_json = RecordingsJson(run, plan.placement);
  }

  static int Processors() {
    const unsigned processors = std::thread::hardware_concurrency();
    return std::clamp(static_cast<int>(processors), 1, kMostThreads);
  }

  absl::Status Write(const PlaceAnswer& answer) const {
    const Plan& plan = answer.plan;
    absl::Status status;
    if (!output_.empty()) {
      status = WriteWhole(output_,
                          placement::WriteSplit(answer.problem, plan.placement, plan.judgement));
    }
    if (!dot_.empty()) status.Update(WriteWhole(dot_, PlaceDot(answer.problem, plan.placement)));
    return status;
  }

  std::string file_, objective_ = "throughput", against_, output_, dot_;
  std::vector<std::string> traces_;
  std::string lengths_, socket_, pipeline_ = "decoupled";
  double bandwidth_ = 0;                             // bytes in a second; 0: not said
  int accelerators_ = -1, cpus_ = -1, threads_ = 0;  // not said
  double memory_ = -1;                               // bytes; not said
  double proof_seconds_ = 30;
  bool any_ = false, contiguous_ = false;
};

}  // namespace
}  // namespace seqpoint::client

int main(int argc, char** argv) {
  return seqpoint::client::Place().Main(std::vector<std::string>(argv + 1, argv + argc));
}
