#include "client/commands/jobs.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "client/commands/commands.h"
#include "client/commands/options.h"
#include "client/text/format.h"
#include "client/text/help.h"
#include "client/text/job_text.h"
#include "proto/invalid_argument.h"
#include "proto/status_macros.h"

namespace seqpoint::client {
namespace {

constexpr int64_t kMaxJobs = 1'000'000'000;

const std::map<std::string, v1::JobState>& States() {
  static const auto* const states = [] {
    auto* by_name = new std::map<std::string, v1::JobState>;
    for (int i = v1::JobState_MIN; i <= v1::JobState_MAX; ++i) {
      const auto state = static_cast<v1::JobState>(i);
      if (!v1::JobState_IsValid(i) || state == v1::JOB_STATE_UNSPECIFIED) continue;
      (*by_name)[JobStateName(state)] = state;
    }
    return by_name;
  }();
  return *states;
}

std::string StateNames() {
  return absl::StrJoin(States(), ", ",
                       [](std::string* out, const auto& entry) { *out += entry.first; });
}

}  // namespace

void JobsOptions::AddTo(CLI::App* command) {
  command->add_flag("--live", live, "only jobs that run");
  command->add_flag("--all", all, "also jobs of commands that did not train");
  AddValue(command, "--state STATE[,STATE]", &states,
           absl::StrCat("only jobs in one of these states: ", StateNames()))
      ->delimiter(',');
  AddValue(command, "--since TIME", &since,
           "only jobs that started then or later: 90m, 3d, 2026-11-20, \"2026-11-20 14:30\"",
           Name());
  AddValue(command, "--tag TAG[,TAG]", &tags, "only jobs with all of these tags", Name())
      ->delimiter(',');
  AddValue(command, "--limit N", &limit, "only the latest N", WholeNumber(1, kMaxJobs));
}

absl::StatusOr<v1::ListJobsRequest> JobsOptions::Request(absl::Time now) const {
  v1::ListJobsRequest request;
  request.set_live_only(live);
  for (const std::string& name : states) {
    const auto state = States().find(name);
    if (state == States().end()) {
      return InvalidArgument("--state: ", Quote(name), " is none of ", StateNames());
    }
    request.add_states(state->second);
  }
  if (!since.empty()) {
    SEQPOINT_ASSIGN_OR_RETURN(const absl::Time time, ParseSince(since, now));
    request.set_since_ns(std::max<int64_t>(absl::ToUnixNanos(time), 1));
  }
  for (const std::string& tag : tags) request.add_tags(tag);
  return request;
}

bool JobsOptions::narrowed() const {
  return live || limit > 0 || !states.empty() || !since.empty() || !tags.empty();
}

absl::StatusOr<absl::Time> ParseSince(const std::string& text, absl::Time now) {
  absl::Duration ago;
  double days = 0;
  const bool in_days = !text.empty() && text.back() == 'd' &&
                       absl::SimpleAtod(text.substr(0, text.size() - 1), &days);
  if (in_days) ago = days * absl::Hours(24);
  if ((in_days || absl::ParseDuration(text, &ago)) && ago >= absl::ZeroDuration() &&
      ago < absl::InfiniteDuration()) {
    return now - ago;
  }
  absl::Time time;
  std::string error;
  for (const char* format : {"%Y-%m-%d", "%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M",
                             "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%E*S%Ez"}) {
    if (absl::ParseTime(format, text, absl::LocalTimeZone(), &time, &error)) return time;
  }
  return InvalidArgument(
      "--since: ", Quote(text),
      " is neither a time, such as 2026-11-20 or \"2026-11-20 14:30\", nor how long "
      "ago, such as 90m, 12h or 3d");
}

int KeepLatest(const JobsOptions& options, v1::ListJobsReply* reply) {
  if (options.limit == 0) return 0;
  v1::ListJobsReply kept;
  int left_out = 0;
  for (v1::Job& job : *reply->mutable_jobs()) {
    if (!options.all && job.unused()) continue;  // the table leaves it out: it takes no place
    if (kept.jobs_size() < options.limit) {
      *kept.add_jobs() = std::move(job);
    } else {
      ++left_out;
    }
  }
  *reply = std::move(kept);
  return left_out;
}

std::string JobListText(const v1::ListJobsReply& reply, int left_out, const JobsOptions& options) {
  if (reply.jobs_size() == 0 && options.narrowed()) return "no job matches\n";
  std::string text = JobsText(reply, options.all);
  if (left_out > 0) {
    absl::StrAppend(&text, FormatCount(left_out, "earlier job"),
                    " left out; a larger --limit shows ", left_out == 1 ? "it" : "them", "\n");
  }
  return text;
}

namespace {

absl::StatusOr<int> ShowJob(const Context& context, const JobsOptions& options) {
  if (options.narrowed()) {
    return context.UsageError(
        "what narrows the list (--state, --since, --tag, --limit, --live) goes without JOB");
  }
  v1::GetJobRequest request;
  request.set_job(options.job);
  return context.Ask(&v1::Profiler::Stub::GetJob, request,
                     [](const v1::GetJobReply& reply) { return JobText(reply.job()); });
}

absl::StatusOr<int> ShowJobs(const Context& context, JobsOptions& options) {
  if (!options.job.empty()) return ShowJob(context, options);
  const absl::StatusOr<v1::ListJobsRequest> request = options.Request(absl::Now());
  if (!request.ok()) return context.UsageError(std::string(request.status().message()));
  SEQPOINT_ASSIGN_OR_RETURN(std::unique_ptr<Connection> connection, context.Connect());
  SEQPOINT_ASSIGN_OR_RETURN(v1::ListJobsReply jobs, connection->ListJobs(*request));
  const int left_out = KeepLatest(options, &jobs);
  return context.PrintReply(
      &jobs, [&](const v1::ListJobsReply& reply) { return JobListText(reply, left_out, options); });
}

}  // namespace

void AddJobs(CLI::App* app, Context* context) {
  auto [command, options] = AddCommand<JobsOptions>(
      app, context, "jobs", "List jobs, or show everything about one.", &ShowJobs);
  command->footer(kJobsHelp);
  AddJob(command, &options->job);
  options->AddTo(command);
}

}  // namespace seqpoint::client
