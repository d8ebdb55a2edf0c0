// `seqpoint iterations JOB`.
#include <stdio.h>

#include <algorithm>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/commands/commands.h"
#include "client/commands/options.h"
#include "client/commands/part.h"
#include "client/commands/rows.h"
#include "client/text/figures_text.h"
#include "client/text/help.h"
#include "client/text/notes.h"
#include "proto/invalid_argument.h"
#include "proto/status_macros.h"

namespace seqpoint::client {
namespace {

constexpr int64_t kRowsPerCall = 10'000;

struct IterationsOptions {
  std::string job;
  bool measured = false;
  std::optional<int> rank;
  RowOptions rows;
  PartOptions part;
};

// A sentence; InvalidArgument when the job has no such rank.
absl::StatusOr<std::string> WhyNoIterations(const IterationsOptions& options,
                                            Connection* connection, int64_t total) {
  SEQPOINT_ASSIGN_OR_RETURN(const v1::Job job, connection->GetJob(options.job));
  std::set<int> ranks;
  for (const v1::Process& process : job.processes()) ranks.insert(process.rank());
  if (options.rank.has_value() && !ranks.empty() && ranks.count(*options.rank) == 0) {
    return InvalidArgument("--rank: job ", Quote(options.job), " has no rank ", *options.rank,
                           "; there are ", absl::StrJoin(ranks, ", "));
  }
  if (options.measured && total > 0) {
    return absl::StrCat("none of ", options.part.given() ? "these of " : "", FormatCount(total),
                        " iterations was measured", IsOver(job) ? "" : " yet");
  }
  if (total > 0) {
    return absl::StrCat("there is none of these iterations", IsOver(job) ? "" : " yet", ": the ",
                        options.rank.has_value() ? "rank" : "run", " has ",
                        FormatCount(total, "iteration"), ", which are counted from 0");
  }
  return absl::StrCat("no iteration was found", IsOver(job) ? "" : " yet",
                      job.error().empty() ? "" : ": ", job.error());
}

// As many pages as the rows need.
absl::StatusOr<v1::ListIterationsReply> ListIterations(const IterationsOptions& options,
                                                       Connection* connection) {
  v1::ListIterationsRequest request;
  request.set_job(options.job);
  request.set_measured_only(options.measured);
  options.part.SetIn(&request);
  if (options.rank.has_value()) request.set_rank(*options.rank);
  v1::ListIterationsReply all;
  int64_t left = options.rows.all ? INT64_MAX : options.rows.limit;
  do {
    request.set_page_size(static_cast<int>(std::min(left, kRowsPerCall)));
    SEQPOINT_ASSIGN_OR_RETURN(v1::ListIterationsReply page,
                              connection->Call(&v1::Profiler::Stub::ListIterations, request));
    left -= page.iterations_size();
    request.set_page_token(page.next_page_token());
    all.MergeFrom(page);
  } while (left > 0 && !request.page_token().empty());
  all.set_next_page_token(request.page_token());
  return all;
}

absl::StatusOr<int> ShowIterations(const Context& context, IterationsOptions& options) {
  SEQPOINT_ASSIGN_OR_RETURN(std::unique_ptr<Connection> connection, context.Connect());
  SEQPOINT_ASSIGN_OR_RETURN(v1::ListIterationsReply listed,
                            ListIterations(options, connection.get()));
  if (listed.iterations_size() == 0) {
    const auto why = WhyNoIterations(options, connection.get(), listed.total());
    return why.ok() ? absl::FailedPreconditionError(*why) : why.status();
  }
  if (!listed.message().empty() && !context.json()) {
    fprintf(stderr, "seqpoint: %s\n", Printable(listed.message()).c_str());
  }
  return context.PrintReply(&listed, [&](const v1::ListIterationsReply& reply) {
    std::string text =
        IterationsText(reply.iterations(), !options.measured) + UncountedNote(reply.losses());
    if (reply.next_page_token().empty()) return text;
    return absl::StrCat(text, "\nthere are more", options.measured ? " that were measured" : "",
                        "; of ", FormatCount(reply.total()),
                        " iterations in all; --all shows them, ", "`seqpoint export ", options.job,
                        " --csv FILE` writes them\n");
  });
}

}  // namespace

void AddIterations(CLI::App* app, Context* context) {
  auto [command, options] = AddCommand<IterationsOptions>(
      app, context, "iterations", "The log of iterations.", &ShowIterations);
  command->footer(kIterationsHelp);
  AddJob(command, &options->job)->required();
  command->add_flag("--measured", options->measured, "only measured iterations");
  AddValue(command, "--rank R", &options->rank, "iterations of this rank; default: the lowest rank",
           WholeNumber(0, INT32_MAX));
  options->rows.AddTo(command);
  options->part.AddTo(command);
}

}  // namespace seqpoint::client
