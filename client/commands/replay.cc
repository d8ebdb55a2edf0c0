// `seqpoint replay JOB`.
#include "client/commands/commands.h"
#include "client/commands/options.h"
#include "client/commands/write_export.h"
#include "client/text/help.h"
#include "client/text/whatif_text.h"

namespace seqpoint::client {
namespace {

struct ReplayOptions {
  std::string job, chrome;
  bool all = false;
};

absl::StatusOr<int> Replay(const Context& context, ReplayOptions& options) {
  if (!options.chrome.empty()) {
    const bool to_output = options.chrome == "-";
    const absl::StatusOr<int64_t> bytes =
        WriteExport(context, options.job, v1::ExportRequest::FORMAT_REPLAY, options.chrome);
    if (!bytes.ok()) return context.Fail(bytes.status(), /*output_taken=*/to_output);
    if (to_output) return kExitOk;
    if (!context.json()) SayWritten(options.chrome, *bytes);
  }
  v1::ReplayRequest request;
  request.set_job(options.job);
  return context.Ask(&v1::Profiler::Stub::Replay, request,
                     [&](const v1::ReplayReply& reply) { return ReplayText(reply, options.all); });
}

}  // namespace

void AddReplay(CLI::App* app, Context* context) {
  auto [command, options] = AddCommand<ReplayOptions>(
      app, context, "replay", "Replay a job's traces unchanged: how well they are understood.",
      &Replay);
  command->footer(kReplayHelp);
  AddJob(command, &options->job)->required();
  AddValue(command, "--chrome FILE", &options->chrome,
           "write the replayed timelines below the measured ones, as trace events in JSON "
           "for Perfetto; \"-\": to standard output, instead of the answer");
  command->add_flag("--all", options->all, "show all iterations");
}

}  // namespace seqpoint::client
