// `seqpoint watch JOB`.
#include <stdio.h>

#include "client/commands/commands.h"
#include "client/text/job_text.h"
#include "client/text/plain_text.h"
#include "proto/status_macros.h"

namespace seqpoint::client {
namespace {

struct WatchOptions {
  std::string job;
};

absl::StatusOr<int> Watch(const Context& context, WatchOptions& options) {
  SEQPOINT_ASSIGN_OR_RETURN(std::unique_ptr<Connection> connection, context.Connect());
  v1::WatchJobRequest request;
  request.set_job(options.job);
  const bool in_place = !context.json() && Context::Width() > 0;
  if (!in_place && !context.json()) request.set_min_interval_ms(1000);
  grpc::ClientContext call;
  auto reader = connection->stub().WatchJob(&call, request);
  v1::WatchJobReply reply;
  std::string ranks;  // what was said of them
  while (reader->Read(&reply)) {
    if (!context.json()) MakePrintable(&reply);
    if (!context.json() && reply.job().ranks() != ranks) {
      ranks = reply.job().ranks();
      if (!ranks.empty()) Context::Print((in_place ? "\r\033[K" : "") + Wrap("", ranks));
    }
    if (context.json()) {
      Context::Print(ToJson(reply, /*one_line=*/true) + "\n");
    } else if (in_place) {
      Context::Print("\r\033[K" + ProgressLine(reply.job(), Context::Width() - 1));
    } else {
      Context::Print(ProgressLine(reply.job(), 1'000) + "\n");
    }
    fflush(stdout);
  }
  if (in_place) Context::Print("\r\033[K");
  SEQPOINT_RETURN_IF_ERROR(Connection::FromGrpc(reader->Finish()));
  if (!context.json()) Context::Print(JobText(reply.job()));
  return kExitOk;
}

}  // namespace

void AddWatch(CLI::App* app, Context* context) {
  auto [command, options] =
      AddCommand<WatchOptions>(app, context, "watch", "Follow a job until it ends.", &Watch);
  AddJob(command, &options->job)->required();
}

}  // namespace seqpoint::client
