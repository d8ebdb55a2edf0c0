// `seqpoint fleet`.
#include <google/protobuf/struct.pb.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/commands/commands.h"
#include "client/commands/jobs.h"
#include "client/commands/options.h"
#include "client/commands/whatif.h"
#include "client/text/fleet_text.h"
#include "client/text/help.h"

namespace seqpoint::client {
namespace {

struct FleetOptions {
  JobsOptions jobs;  // of these only what AddFleet offers
  std::string change;
};

// Asks job by job: each replays its traces, which takes seconds where they are large.
// InvalidArgument: the change is none, with any job.
absl::StatusOr<FleetWhatIf> AskWhatIf(const Context& context, const v1::GetFleetReply& fleet,
                                      const v1::WhatIfChange& change) {
  FleetWhatIf answers;
  absl::Status refused;
  size_t refusals = 0;
  for (const v1::FleetJob& job : fleet.jobs()) {
    if (!job.has_gpu_ns()) continue;
    v1::WhatIfRequest request;
    request.set_job(job.job_id());
    *request.add_changes() = change;
    const auto [answer, added] =
        answers.emplace(job.job_id(), context.Call(&v1::Profiler::Stub::WhatIf, request));
    if (!absl::IsInvalidArgument(answer->second.status())) continue;
    refused = answer->second.status();
    ++refusals;
  }
  if (refusals > 0 && refusals == answers.size()) return refused;
  return answers;
}

std::string Quoted(const std::string& text) {
  google::protobuf::Value value;
  value.set_string_value(text);
  return ToJson(value, /*one_line=*/true);
}

std::string FleetJson(const v1::GetFleetReply& fleet, const FleetWhatIf& what_if) {
  std::string text = absl::StrCat("{\"fleet\": ", ToJson(fleet, /*one_line=*/true));
  if (!what_if.empty()) {
    absl::StrAppend(&text, ", \"whatif\": [");
    const char* comma = "";
    for (const auto& [id, reply] : what_if) {
      absl::StrAppend(&text, comma, "{\"job_id\": ", Quoted(id),
                      ", \"reply\": ", reply.ok() ? ToJson(*reply, /*one_line=*/true) : "null",
                      ", \"error\": ", Quoted(std::string(reply.status().message())), "}");
      comma = ", ";
    }
    absl::StrAppend(&text, "]");
  }
  return text + "}\n";
}

absl::StatusOr<int> ShowFleet(const Context& context, FleetOptions& options) {
  const absl::StatusOr<v1::ListJobsRequest> jobs = options.jobs.Request(absl::Now());
  if (!jobs.ok()) return context.UsageError(std::string(jobs.status().message()));
  v1::WhatIfChange change;
  if (!options.change.empty()) {
    SEQPOINT_ASSIGN_OR_RETURN(change, ReadChange(context, options.change));
  }
  v1::GetFleetRequest request;
  *request.mutable_jobs() = *jobs;
  SEQPOINT_ASSIGN_OR_RETURN(v1::GetFleetReply fleet,
                            context.Call(&v1::Profiler::Stub::GetFleet, request));
  FleetWhatIf what_if;
  if (!options.change.empty()) {
    SEQPOINT_ASSIGN_OR_RETURN(what_if, AskWhatIf(context, fleet, change));
  }
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
           "a preset or a file, with parameters behind commas: what it would save in each job",
           Name());
}

}  // namespace seqpoint::client
