// `seqpoint run -- COMMAND`: its options, and the checks of what they say.
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/commands/commands.h"
#include "client/commands/horizon.h"
#include "client/commands/metrics.h"
#include "client/commands/options.h"
#include "client/commands/run/run.h"
#include "proto/invalid_argument.h"
#include "proto/status_macros.h"

namespace seqpoint::client {
namespace {

struct RunCommandOptions {
  RunOptions run;
  HorizonOptions horizon;
  std::string metrics_file, backend;
  const CLI::App* command = nullptr;
};

v1::CounterBackend BackendOf(const std::string& name) {
  return name == "pm"      ? v1::COUNTER_BACKEND_PM
         : name == "range" ? v1::COUNTER_BACKEND_RANGE
                           : v1::COUNTER_BACKEND_UNSPECIFIED;
}

// The words of the command: CLI11 leaves behind what it does not know, up to a "--" and from there
// on.
absl::StatusOr<std::vector<std::string>> CommandWords(const RunCommandOptions& options,
                                                      const std::vector<std::string>& separated) {
  const std::vector<std::string> words = options.command->remaining();
  if (!words.empty() && absl::StartsWith(words[0], "-")) {
    return absl::InvalidArgumentError(NoSuchOption(*options.command, words[0]));
  }
  if (!words.empty() && !separated.empty()) {
    return InvalidArgument(Quote(words[0]), " stands before the --");
  }
  if (words.empty() && separated.empty()) {
    return absl::InvalidArgumentError("there is no command to run");
  }
  return separated.empty() ? words : separated;
}

absl::StatusOr<int> RunCommand(const Context& context, RunCommandOptions& options) {
  RunOptions& run = options.run;
  absl::StatusOr<std::vector<std::string>> words = CommandWords(options, context.separated_words());
  if (!words.ok()) return context.UsageError(std::string(words.status().message()));
  run.command = *std::move(words);
  if (absl::StrContains(run.job, "@")) {
    return context.UsageError(absl::StrCat("--job: ", Quote(run.job),
                                           " contains \"@\", which separates name and run id"));
  }
  options.horizon.lengths.show_progress = run.progress && !run.quiet;
  absl::StatusOr<v1::Horizon> horizon = options.horizon.Read();
  if (!horizon.ok()) return horizon.status();
  run.horizon = *std::move(horizon);
  run.counter_backend = BackendOf(options.backend);
  if (!options.metrics_file.empty()) {
    SEQPOINT_ASSIGN_OR_RETURN(run.metric_file, ReadMetricFile(options.metrics_file));
  }
  run.connect = context.connect();
  run.connect.use_environment = false;  // its programs tell a daemon of this machine
  run.json = context.json();
  return Run(run);
}

}  // namespace

void AddRun(CLI::App* app, Context* context) {
  auto [command, options] =
      AddCommand<RunCommandOptions>(app, context, "run",
                                    "Run a training program under the profiler. The program keeps "
                                    "terminal, signals and exit status.",
                                    &RunCommand);
  options->command = command;
  RunOptions& run = options->run;
  command->prefix_command();
  AddValue(command, "--job NAME", &run.job, "name of the job; default: that of the program",
           Name());
  AddValue(command, "--run-id ID", &run.run_id,
           "ranks and resumed runs with the same id are one job; default: that of "
           "torchrun or Slurm, else a new one",
           Name());
  AddValue(command, "--overhead-budget SHARE", &run.overhead_budget_share,
           "largest share of the run's time for stops to measure; default 1%", Share());
  AddValue(command, "--metrics SET[,SET]", &run.metric_sets,
           "metric sets to collect; `seqpoint metrics` lists them; default: utilisation. "
           "Several sets share the measurements",
           Name())
      ->delimiter(',');
  AddMetricsFile(command, &options->metrics_file);
  AddChoice(command, "--counter-backend", &options->backend, {"range", "pm"},
            "range (default): exact, counts this process only, waits for the GPU at both ends of a "
            "measured iteration; pm: samples the whole GPU and never waits");
  command->add_flag("--roofline", run.roofline,
                    "also measure single kernels, which then run one after the other: at most 4 "
                    "lengths, once with each configuration (`seqpoint roofline`)");
  command->add_flag("--operators", run.operators,
                    "PyTorch: record the operators of two iterations for each SeqPoint's length; "
                    "these take several times as long (`seqpoint place JOB`)");
  command->add_flag_callback(
      "--no-progress", [&run] { run.progress = false; }, "no progress line on the terminal");
  command->add_flag("--quiet", run.quiet, "no progress line and no summary at the end");
  options->horizon.AddTo(command);
}

}  // namespace seqpoint::client
