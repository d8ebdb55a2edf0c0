// `seqpoint seqpoints JOB`.
#include "client/commands/commands.h"
#include "client/text/figures_text.h"
#include "client/text/help.h"

namespace seqpoint::client {
namespace {

absl::StatusOr<int> ShowSeqPoints(const Context& context, v1::GetSeqPointsRequest& request) {
  return context.Ask(&v1::Profiler::Stub::GetSeqPoints, request, SeqPointsText);
}

}  // namespace

void AddSeqPoints(CLI::App* app, Context* context) {
  auto [command, request] = AddCommand<v1::GetSeqPointsRequest>(
      app, context, "seqpoints", "The iterations that represent all others, and their weights.",
      &ShowSeqPoints);
  command->footer(kSeqPointsHelp);
  AddJob(command, request->mutable_job())->required();
}

}  // namespace seqpoint::client
