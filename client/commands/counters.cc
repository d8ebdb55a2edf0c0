// `seqpoint counters JOB`.
#include <vector>

#include "client/commands/commands.h"
#include "client/commands/figures.h"
#include "client/commands/options.h"
#include "client/text/figures_text.h"
#include "client/text/help.h"

namespace seqpoint::client {
namespace {

struct CountersOptions {
  std::vector<std::string> metrics;
  bool list_measured = false;
  FigureOptions figures;
};

absl::StatusOr<int> ShowCounters(const Context& context, CountersOptions& options) {
  v1::GetCountersRequest request;
  for (const std::string& metric : options.metrics) request.add_metrics(metric);
  return AskFigures(context, options.figures, &v1::Profiler::Stub::GetCounters, request,
                    [&](const v1::GetCountersReply& reply, const v1::Job& job) {
                      return CountersText(reply, job, Context::Width(), options.list_measured);
                    });
}

}  // namespace

void AddCounters(CLI::App* app, Context* context) {
  auto [command, options] = AddCommand<CountersOptions>(
      app, context, "counters", "Hardware counters of the whole run, with intervals.",
      &ShowCounters);
  command->footer(kCountersHelp);
  AddJob(command, &options->figures.job)->required();
  command->add_option("METRIC", options->metrics, "only these counters")->check(Name());
  command->add_flag("--measured", options->list_measured,
                    "list the measured iterations, and how much longer measuring made each");
  options->figures.AddTo(command);
  options->figures.part.AddTo(command);
}

}  // namespace seqpoint::client
