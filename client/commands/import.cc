#include "client/commands/import.h"

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "client/commands/send_log.h"
#include "client/text/format.h"
#include "client/text/text.h"

namespace seqpoint::client {
namespace {

constexpr std::chrono::minutes kTimeout{10};

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
  absl::StatusOr<LogFile> log = ReadLogFile(read);
  if (!log.ok()) return log.status();
  *notes = ReadingNotes(options.log.path, *log);
  if (absl::Status status = CheckTimeUnit(options.log.path, *log); !status.ok()) return status;
  return log;
}

absl::StatusOr<v1::ImportJobReply> Import(Connection* connection, const ImportOptions& options,
                                          const LogFile& log) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kTimeout);
  v1::ImportJobReply reply;
  v1::ImportJobRequest question;
  question.set_name(options.name.empty() ? JobNameOfFile(options.log.path) : options.name);
  question.set_run_id(options.run_id);
  question.set_source(Printable(Source(options, log)));
  absl::Status status = SendLog(connection->stub().ImportJob(&context, &reply), std::move(question),
                                log, /*against=*/nullptr);
  if (!status.ok()) return status;
  return reply;
}

std::string ImportText(const v1::ImportJobReply& reply) {
  const std::string& id = reply.job().id();
  return absl::StrCat(JobText(reply.job()), "\nask next: seqpoint project ", id,
                      ", seqpoint seqpoints ", id, ", seqpoint iterations ", id,
                      "\nof a run with other data: seqpoint project ", id,
                      " --lengths FILE --epochs N\n");
}

}  // namespace seqpoint::client
