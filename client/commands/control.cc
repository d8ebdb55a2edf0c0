// `seqpoint control JOB ...`: what is measured in a running job, and how long it will run.
#include <stdio.h>

#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "client/commands/commands.h"
#include "client/commands/horizon.h"
#include "client/commands/options.h"
#include "client/text/notes.h"
#include "proto/status_macros.h"

namespace seqpoint::client {
namespace {

struct ControlOptions {
  std::string job, level;
  double budget_share = 0;
  HorizonOptions horizon;
};

// The state of the job from now on, in a line.
std::string ControlText(const v1::Job& job, const v1::ControlRequest& request,
                        const ControlOptions& options) {
  std::string text = absl::StrCat(JobTitle(job), ", ", JobStateName(job.state()));
  if (request.action() == v1::ControlRequest::ACTION_SET_LEVEL) {
    absl::StrAppend(&text, ", level ", options.level);
  }
  if (request.action() == v1::ControlRequest::ACTION_SET_OVERHEAD_BUDGET) {
    absl::StrAppend(&text, ", of the run's time ", FormatShare(options.budget_share),
                    " for measurements");
  }
  return text + "\n";
}

std::string HorizonText(const v1::Job& job) {
  const v1::Horizon& horizon = job.horizon();
  return absl::StrCat(
      JobTitle(job), ", ", JobStateName(job.state()), ", horizon ",
      horizon.iterations() > 0 ? FormatCount(horizon.iterations(), "iteration") : "not known",
      horizon.source().empty()   ? ""
      : horizon.iterations() > 0 ? " from "
                                 : ", from ",
      horizon.source(), "\n", Note(job.rule().message()));
}

// Ending a job twice is no error, but no news either.
void SayIfOver(const Context& context, const std::string& name) {
  absl::StatusOr<std::unique_ptr<Connection>> connection = context.Connect();
  if (!connection.ok()) return;  // the question itself will say so
  absl::StatusOr<v1::Job> job = (*connection)->GetJob(name);
  if (!job.ok() || !IsOver(*job)) return;
  MakePrintable(&*job);
  fprintf(stderr, "seqpoint: %s has ended already\n", JobTitle(*job).c_str());
}

absl::StatusOr<int> Control(const Context& context, const ControlOptions& options,
                            v1::ControlRequest::Action action) {
  v1::ControlRequest request;
  request.set_action(action);
  request.set_job(options.job);
  request.set_overhead_budget_share(options.budget_share);
  if (action == v1::ControlRequest::ACTION_SET_LEVEL && options.level != "auto") {
    v1::Level level = v1::LEVEL_UNSPECIFIED;
    v1::Level_Parse("LEVEL_" + absl::AsciiStrToUpper(options.level), &level);
    request.set_level(level);
  }
  if (action == v1::ControlRequest::ACTION_END_WAITING) SayIfOver(context, options.job);
  return context.Ask(&v1::Profiler::Stub::Control, request, [&](const v1::ControlReply& reply) {
    return ControlText(reply.job(), request, options);
  });
}

absl::StatusOr<int> SetHorizon(const Context& context, const ControlOptions& options) {
  if (!options.horizon.given()) return context.UsageError("say --iterations N or --lengths FILE");
  SEQPOINT_ASSIGN_OR_RETURN(v1::Horizon read, options.horizon.Read());
  v1::SetHorizonRequest request;
  request.set_job(options.job);
  *request.mutable_horizon() = std::move(read);
  return context.Ask(&v1::Profiler::Stub::SetHorizon, request,
                     [](const v1::SetHorizonReply& reply) { return HorizonText(reply.job()); });
}

}  // namespace

void AddControl(CLI::App* app, Context* context) {
  // Its subcommands are what runs; a callback of its own would come after theirs.
  CLI::App* command = AddSubcommand(app, "control", "Change what is measured in a running job.");
  auto options = std::make_shared<ControlOptions>();
  AddJob(command, &options->job)->required();
  command->require_subcommand(1);
  auto add = [&](const std::string& name, const std::string& help,
                 v1::ControlRequest::Action action) {
    CLI::App* sub = AddSubcommand(command, name, help);
    sub->callback([context, options, action] {
      context->set_command(
          [context, options, action] { return Control(*context, *options, action); });
    });
    return sub;
  };
  add("pause", "Measure nothing more; iterations are still found.",
      v1::ControlRequest::ACTION_PAUSE);
  add("resume", "Go on after pause or release.", v1::ControlRequest::ACTION_RESUME);
  add("end", "End a job that waits for a program that will not come.",
      v1::ControlRequest::ACTION_END_WAITING);
  add("release", "Leave CUPTI to another tool.", v1::ControlRequest::ACTION_RELEASE_CUPTI);
  CLI::App* level =
      add("level", "Keep one level of measuring.", v1::ControlRequest::ACTION_SET_LEVEL);
  AddChoice(level, "LEVEL", &options->level, {"auto", "mark", "trace"},
            "auto: the daemon chooses; mark: boundaries, lengths and times; trace: all GPU work")
      ->required();
  add("budget", "Set the largest share of the run's time for stops to measure.",
      v1::ControlRequest::ACTION_SET_OVERHEAD_BUDGET)
      ->add_option("SHARE", options->budget_share, "such as 0.5% or 0.005")
      ->transform(Share())
      ->required();
  CLI::App* horizon =
      AddSubcommand(command, "horizon", "Say how long the run is, also of a job that has ended.");
  options->horizon.AddTo(horizon);
  horizon->callback([context, options] {
    context->set_command([context, options] { return SetHorizon(*context, *options); });
  });
}

}  // namespace seqpoint::client
