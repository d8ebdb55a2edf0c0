// `seqpoint roofline JOB`.
#include "client/commands/commands.h"
#include "client/commands/rows.h"
#include "client/text/figures_text.h"
#include "client/text/help.h"

namespace seqpoint::client {
namespace {

struct RooflineOptions {
  std::string job;
  RowOptions rows;
};

absl::StatusOr<int> ShowRoofline(const Context& context, RooflineOptions& options) {
  v1::GetRooflineRequest request;
  request.set_job(options.job);
  request.set_limit(options.rows.all ? 0 : options.rows.limit);
  return context.Ask(
      &v1::Profiler::Stub::GetRoofline, request,
      [](const v1::GetRooflineReply& reply) { return RooflineText(reply, Context::Width()); });
}

}  // namespace

void AddRoofline(CLI::App* app, Context* context) {
  auto [command, options] = AddCommand<RooflineOptions>(
      app, context, "roofline", "Kernels against the roofs of memory bandwidth and arithmetic.",
      &ShowRoofline);
  command->footer(kRooflineHelp);
  AddJob(command, &options->job)->required();
  options->rows.AddTo(command);
}

}  // namespace seqpoint::client
