// `seqpoint fleet`.
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/commands/commands.h"
#include "client/commands/jobs.h"
#include "client/commands/options.h"
#include "client/text/fleet_text.h"
#include "client/text/help.h"
#include "daemon/base/json_string.h"

namespace seqpoint::client {
namespace {

struct FleetOptions {
  JobsOptions jobs;  // of these only what AddFleet offers
  std::string change;
};

// Asks job by job: each replays its traces, which takes seconds where they are large.
FleetWhatIf AskWhatIf(const Context& context, const v1::GetFleetReply& fleet,
                      const std::string& change) {
  FleetWhatIf answers;
  for (const v1::FleetJob& job : fleet.jobs()) {
    if (!job.has_gpu_ns()) continue;
    v1::WhatIfRequest request;
    request.set_job(job.job_id());
    request.add_changes()->set_preset(change);
    answers.emplace(job.job_id(), context.Call(&v1::Profiler::Stub::WhatIf, request));
  }
  return answers;
}

std::string FleetJson(const v1::GetFleetReply& fleet, const FleetWhatIf& what_if) {
  std::string text = absl::StrCat("{\"fleet\": ", ToJson(fleet, /*one_line=*/true));
  if (!what_if.empty()) {
    absl::StrAppend(&text, ", \"whatif\": [");
    const char* comma = "";
    for (const auto& [id, reply] : what_if) {
      absl::StrAppend(&text, comma, "{\"job_id\": ", JsonString(id),
                      ", \"reply\": ", reply.ok() ? ToJson(*reply, /*one_line=*/true) : "null",
                      ", \"error\": ", JsonString(std::string(reply.status().message())), "}");
      comma = ", ";
    }
    absl::StrAppend(&text, "]");
  }
  return text + "}\n";
}

absl::StatusOr<int> ShowFleet(const Context& context, FleetOptions& options) {
  const absl::StatusOr<v1::ListJobsRequest> jobs = options.jobs.Request(absl::Now());
  if (!jobs.ok()) return context.UsageError(std::string(jobs.status().message()));
  v1::GetFleetRequest request;
  *request.mutable_jobs() = *jobs;
  SEQPOINT_ASSIGN_OR_RETURN(v1::GetFleetReply fleet,
                            context.Call(&v1::Profiler::Stub::GetFleet, request));
  FleetWhatIf what_if;
  if (!options.change.empty()) what_if = AskWhatIf(context, fleet, options.change);
  if (context.json()) {
    Context::Print(FleetJson(fleet, what_if));
    return kExitOk;
  }
  MakePrintable(&fleet);
  Context::Print(FleetText(fleet, what_if));
  return kExitOk;
}

}  // namespace

void AddFleet(CLI::App* app, Context* context) {
  auto [command, options] = AddCommand<FleetOptions>(
      app, context, "fleet", "GPU time of all jobs, and what is lost of it.", &ShowFleet);
  command->footer(kFleetHelp);
  command->add_flag("--live", options->jobs.live, "only jobs that run");
  AddValue(command, "--since TIME", &options->jobs.since,
           "only jobs that started then or later: 90m, 7d, 2026-11-20", Name());
  AddValue(command, "--tag TAG[,TAG]", &options->jobs.tags, "only jobs with all of these tags",
           Name())
      ->delimiter(',');
  AddValue(command, "--whatif CHANGE", &options->change,
           "a preset, with parameters behind commas: what it would save in each job", Name());
}

}  // namespace seqpoint::client
