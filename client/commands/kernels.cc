// `seqpoint kernels JOB`.
#include "client/commands/commands.h"
#include "client/commands/figures.h"
#include "client/commands/rows.h"
#include "client/text/figures_text.h"
#include "client/text/help.h"

namespace seqpoint::client {
namespace {

struct KernelsOptions {
  RowOptions rows;
  FigureOptions figures;
};

absl::StatusOr<int> ShowKernels(const Context& context, KernelsOptions& options) {
  v1::GetKernelsRequest request;
  request.set_limit(options.rows.all ? 0 : options.rows.limit);
  return AskFigures(context, options.figures, &v1::Profiler::Stub::GetKernels, request,
                    [](const v1::GetKernelsReply& reply, const v1::Job& job) {
                      return KernelsText(reply, job, Context::Width());
                    });
}

}  // namespace

void AddKernels(CLI::App* app, Context* context) {
  auto [command, options] = AddCommand<KernelsOptions>(
      app, context, "kernels", "Kernels by their share of kernel time.", &ShowKernels);
  command->footer(kKernelsHelp);
  AddJob(command, &options->figures.job)->required();
  options->rows.AddTo(command);
  options->figures.AddTo(command);
  options->figures.part.AddTo(command);
}

}  // namespace seqpoint::client
