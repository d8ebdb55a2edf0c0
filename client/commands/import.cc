#include "client/commands/import.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "client/commands/commands.h"
#include "client/commands/log_options.h"
#include "client/commands/send_log.h"
#include "client/commands/trace_import.h"
#include "client/text/format.h"
#include "client/text/help.h"
#include "client/text/job_text.h"
#include "proto/status_macros.h"

namespace seqpoint::client {
namespace {

// "log.csv, lengths in lenpair_est, times in time_ms"
std::string Source(const ImportOptions& options, const LogFile& log) {
  std::string text = absl::StrCat(std::filesystem::path(options.log.path).filename().string(),
                                  ", lengths in ", absl::StrJoin(log.key_columns, " and "));
  const size_t dimensions = log.key_columns.size();
  for (size_t d = 0; d < dimensions; ++d) {
    if (log.length_step[d] == 1) continue;
    absl::StrAppend(&text, " (",
                    dimensions > 1 ? absl::StrCat(log.key_columns[d], " ") : std::string(),
                    "in steps of ", log.length_step[d], ")");
  }
  return absl::StrCat(text, ", times in ", log.time_column);
}

}  // namespace

std::string JobNameOfFile(const std::string& path) {
  const std::string file = std::filesystem::path(path).filename().string();
  absl::string_view stem = file;
  for (const char* ending : {".gz", ".csv", ".json", ".trace", ".pt"}) {
    stem = absl::StripSuffix(stem, ending);
  }
  std::string name(stem);
  std::replace(name.begin(), name.end(), '@', '_');  // it parts name and run id
  return name.empty() ? "log" : Printable(name);
}

absl::StatusOr<LogFile> ReadLogToImport(const ImportOptions& options, std::string* notes) {
  LogOptions read = options.log;
  read.or_trace = true;
  read.keep_untimed = true;
  SEQPOINT_ASSIGN_OR_RETURN(LogFile log, ReadLogFile(read));
  *notes = ReadingNotes(options.log.path, log);
  SEQPOINT_RETURN_IF_ERROR(CheckTimeUnit(options.log.path, log));
  return log;
}

namespace {

// The option of logs that was given; empty: none was.
std::string LogOptionOf(const LogOptions& log) {
  return !log.key_columns.empty()     ? "--key"
         : !log.time_column.empty()   ? "--time"
         : !log.time_unit.empty()     ? "--time-unit"
         : !log.group_columns.empty() ? "--group"
                                      : "";
}

absl::StatusOr<int> ImportLog(const Context& context, const ImportOptions& options) {
  std::string notes;
  const absl::StatusOr<LogFile> log = ReadLogToImport(options, &notes);
  fprintf(stderr, "%s", Printable(notes).c_str());
  if (!log.ok()) return log.status();
  v1::ImportJobRequest question;
  question.set_name(options.name);
  question.set_run_id(options.run_id);
  question.set_source(Printable(Source(options, *log)));
  SEQPOINT_ASSIGN_OR_RETURN(
      v1::ImportJobReply reply,
      SendLog(context, &v1::Profiler::Stub::ImportJob, std::move(question), *log));
  return context.PrintReply(&reply, [](const v1::ImportJobReply& shown) {
    const std::string& id = shown.job().id();
    return absl::StrCat(JobText(shown.job()), "\nask next: seqpoint project ", id,
                        ", seqpoint seqpoints ", id, ", seqpoint iterations ", id,
                        "\nof a run with other data: seqpoint project ", id,
                        " --lengths FILE --epochs N\n");
  });
}

absl::StatusOr<int> ImportFiles(const Context& context, ImportOptions& options) {
  if (absl::StrContains(options.name, "@")) {
    return context.UsageError(absl::StrCat("--name: ", Quote(options.name),
                                           " contains \"@\", which parts name and run id"));
  }
  if (options.name.empty()) options.name = JobNameOfFile(options.files[0]);
  const std::string log_option = LogOptionOf(options.log);
  for (const std::string& path : options.files) {
    SEQPOINT_ASSIGN_OR_RETURN(const bool is_trace, IsTrace(path));
    if (is_trace && !log_option.empty()) {
      return context.UsageError(absl::StrCat(log_option, " is of a log; ", path, " is none"));
    }
    if (is_trace) continue;
    if (options.files.size() > 1) {
      return context.UsageError(
          absl::StrCat("several files must be traces, one of each rank; ", path, " is none"));
    }
    if (!options.marker.empty()) {
      return context.UsageError(absl::StrCat("--marker is of traces; ", path, " is none"));
    }
    options.log.path = path;
    return ImportLog(context, options);
  }
  SEQPOINT_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, context.Connect());
  SEQPOINT_ASSIGN_OR_RETURN(v1::ImportTraceReply reply, ImportTraces(connection.get(), options));
  return context.PrintReply(&reply, [](const v1::ImportTraceReply& shown) {
    return TraceImportText(shown, Context::Width());
  });
}

}  // namespace

void AddImport(CLI::App* app, Context* context) {
  auto [command, options] =
      AddCommand<ImportOptions>(app, context, "import",
                                "Make a job from a log of iterations or from traces of "
                                "another profiler, so that all other commands can use it.",
                                &ImportFiles);
  command->footer(kImportHelp);
  AddValue(command, "FILE FILE", &options->files,
           "a log: CSV (or .gz) with a header, a row is an iteration; or traces, one for "
           "each rank: JSON of torch.profiler or of `seqpoint export --chrome`")
      ->required();
  AddLogColumns(command, &options->log, "Of a log");
  AddValue(command, "--marker REGEX", &options->marker,
           "regular expression (RE2) for the annotations at which iterations begin; its "
           "one or two groups are their lengths; default: ProfilerStep#N, else iterations "
           "are found by themselves",
           Name())
      ->group("Of traces");
  AddValue(command, "--name NAME", &options->name,
           "name of the job; default: that of the (first) file", Name());
  AddValue(command, "--run-id ID", &options->run_id, "run id of the job; default: a new one",
           Name());
}

}  // namespace seqpoint::client
