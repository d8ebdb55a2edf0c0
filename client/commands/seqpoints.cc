// `seqpoint seqpoints JOB`.
#include "client/commands/commands.h"
#include "client/text/figures_text.h"
#include "client/text/help.h"

namespace seqpoint::client {
namespace {

struct SeqPointsOptions {
  std::string job;
};

int ShowSeqPoints(const Context& context, SeqPointsOptions& options) {
  v1::GetSeqPointsRequest request;
  request.set_job(options.job);
  return context.Ask(&v1::Profiler::Stub::GetSeqPoints, request, SeqPointsText);
}

}  // namespace

void AddSeqPoints(CLI::App* app, Context* context) {
  auto [command, options] = AddCommand<SeqPointsOptions>(
      app, context, "seqpoints", "The iterations that represent all others, and their weights.",
      &ShowSeqPoints);
  command->footer(kSeqPointsHelp);
  AddJob(command, &options->job)->required();
}

}  // namespace seqpoint::client
