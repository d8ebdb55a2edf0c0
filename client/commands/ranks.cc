// `seqpoint ranks JOB`.
#include "client/commands/commands.h"
#include "client/text/help.h"
#include "client/text/ranks_text.h"

namespace seqpoint::client {
namespace {

struct RanksOptions {
  std::string job;
};

absl::StatusOr<int> ShowRanks(const Context& context, RanksOptions& options) {
  v1::GetRanksRequest request;
  request.set_job(options.job);
  return context.Ask(&v1::Profiler::Stub::GetRanks, request, RanksText);
}

}  // namespace

void AddRanks(CLI::App* app, Context* context) {
  auto [command, options] = AddCommand<RanksOptions>(
      app, context, "ranks", "Who waits for whom in a job of several ranks, and why.", &ShowRanks);
  command->footer(kRanksHelp);
  AddJob(command, &options->job)->required();
}

}  // namespace seqpoint::client
