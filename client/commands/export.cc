// `seqpoint export JOB`.
#include <stdio.h>

#include "absl/strings/str_cat.h"
#include "client/commands/commands.h"
#include "client/commands/write_export.h"
#include "client/text/notes.h"

namespace seqpoint::client {
namespace {

struct ExportOptions {
  std::string job, chrome, csv;
};

// A file of rows has no place for it.
void SayUnread(const Context& context, const std::string& job_name) {
  absl::StatusOr<std::unique_ptr<Connection>> connection = context.Connect();
  if (!connection.ok()) return;
  const absl::StatusOr<v1::Job> job = (*connection)->GetJob(job_name);
  if (job.ok()) fputs(UncountedNote(job->losses()).c_str(), stderr);
}

absl::StatusOr<int> Export(const Context& context, ExportOptions& options) {
  const bool csv = !options.csv.empty();
  if (csv == !options.chrome.empty()) {
    return context.UsageError("give either --chrome FILE or --csv FILE");
  }
  const std::string& path = csv ? options.csv : options.chrome;
  const bool to_output = path == "-";
  const auto format = csv ? v1::ExportRequest::FORMAT_CSV : v1::ExportRequest::FORMAT_CHROME;
  const absl::StatusOr<int64_t> bytes = WriteExport(context, options.job, format, path);
  if (!bytes.ok()) return context.Fail(bytes.status(), /*output_taken=*/to_output);
  SayUnread(context, options.job);
  if (to_output) return kExitOk;
  if (context.json()) {
    Context::Print(FieldsJson({{"path", path}, {"bytes", absl::StrCat(*bytes)}}) + "\n");
  } else {
    SayWritten(path, *bytes);
  }
  return kExitOk;
}

}  // namespace

void AddExport(CLI::App* app, Context* context) {
  auto [command, options] = AddCommand<ExportOptions>(
      app, context, "export", "Write a job to a file, in one of two formats.", &Export);
  AddJob(command, &options->job)->required();
  AddValue(command, "--chrome FILE", &options->chrome,
           "traced iterations as trace events in JSON, for Perfetto, HTA and "
           "TensorBoard; \"-\": standard output");
  AddValue(command, "--csv FILE", &options->csv, "one row per iteration; \"-\": standard output");
}

}  // namespace seqpoint::client
