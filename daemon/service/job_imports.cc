#include "daemon/service/job_imports.h"

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "daemon/base/status_macros.h"
#include "daemon/queries/log_import.h"
#include "daemon/queries/store_import.h"
#include "daemon/queries/trace_import.h"
#include "daemon/traces/stored_trace.h"
#include "daemon/traces/trace_reader.h"
#include "spdlog/spdlog.h"

namespace seqpoint::service {
namespace {

// An imported iteration takes so much, in the database and in its log.
constexpr uint64_t kStoredBytesPerIteration = 250;
// A call, an annotation or a piece of GPU work of an imported trace; 5 to 14 were seen.
constexpr uint64_t kStoredBytesPerElement = 30;
constexpr uint64_t kMostTraceBytes = uint64_t{8} << 30;  // of a file, unpacked

// The files of a stream of messages, as they come.
class TraceFiles {
 public:
  // A message may begin a file, and have bytes of the one that was begun last.
  absl::Status Add(const v1::ImportTraceRequest& message) {
    if (!message.file().empty()) {
      SEQPOINT_RETURN_IF_ERROR(EndFile());
      files_.push_back({.name = message.file()});
      reader_ = std::make_unique<traces::TraceReader>(
          traces::TraceReaderOptions{.name = message.file(), .max_bytes = kMostTraceBytes});
    }
    if (message.data().empty()) return absl::OkStatus();
    if (reader_ == nullptr) {
      return absl::InvalidArgumentError("file: data came before the name of a file");
    }
    return reader_->Add(message.data());
  }

  absl::StatusOr<std::vector<queries::TraceFile>> Finish() {
    SEQPOINT_RETURN_IF_ERROR(EndFile());
    if (files_.empty()) return absl::InvalidArgumentError("file: no trace came");
    return std::move(files_);
  }

 private:
  absl::Status EndFile() {
    if (reader_ == nullptr) return absl::OkStatus();
    SEQPOINT_ASSIGN_OR_RETURN(files_.back().trace, reader_->Finish());
    reader_ = nullptr;
    return absl::OkStatus();
  }

  std::vector<queries::TraceFile> files_;
  std::unique_ptr<traces::TraceReader> reader_;
};

// A store that is full cannot even be emptied: what does not fit is not begun.
absl::Status CheckRoom(const std::string& store_path, uint64_t needed, const char* what) {
  std::error_code error;
  const auto space = std::filesystem::space(std::filesystem::path(store_path).parent_path(), error);
  if (error || needed <= space.available) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("the ", what, " need", std::string_view(what) == "traces" ? "" : "s", " about ",
                   needed >> 20, " MiB beside ", store_path, ", where ", space.available >> 20,
                   " MiB are free; make room, or import a part of it"));
}

absl::StatusOr<int64_t> Add(const DaemonParts& parts, JobRow row, const jobs::ImportedRun& run,
                            const std::vector<traces::RecordedTrace>& traces)
    ABSL_LOCKS_EXCLUDED(parts.registry.mutex()) {
  {
    absl::MutexLock lock(&parts.registry.mutex());
    parts.retention.AwaitPruned();  // it must know what to keep
    SEQPOINT_RETURN_IF_ERROR(parts.registry.BeginImport(row));
  }
  auto job = queries::StoreImport(parts.store, row, run, parts.registry.job_options(), traces);
  absl::MutexLock lock(&parts.registry.mutex());
  parts.registry.EndImport(row, job.ok() ? SharedJob(*std::move(job)) : nullptr);
  if (!job.ok()) return job.status();
  spdlog::info("job {}@{} imported: {} iterations", row.name, row.run_id, run.iterations.size());
  return row.job_id;
}

}  // namespace

absl::StatusOr<int64_t> ImportLog(const DaemonParts& parts, const v1::ImportJobRequest& request) {
  SEQPOINT_ASSIGN_OR_RETURN(const auto run, queries::ReadImport(request, parts.clock.WallNs()));
  SEQPOINT_RETURN_IF_ERROR(
      CheckRoom(parts.store.path(), run.iterations.size() * kStoredBytesPerIteration, "log"));
  return Add(parts, {.name = request.name(), .run_id = request.run_id()}, run, {});
}

absl::StatusOr<int64_t> ImportTraces(
    const DaemonParts& parts, absl::FunctionRef<absl::StatusOr<bool>(v1::ImportTraceRequest*)> next,
    std::vector<v1::ImportedTrace>* described) {
  v1::ImportTraceRequest message;
  JobRow row;
  std::string marker;
  TraceFiles received;
  for (bool first = true;; first = false) {
    SEQPOINT_ASSIGN_OR_RETURN(const auto more, next(&message));
    if (!more) break;
    if (first) {
      row = {.name = message.name(), .run_id = message.run_id()};
      marker = message.marker();
    }
    SEQPOINT_RETURN_IF_ERROR(received.Add(message));
  }
  SEQPOINT_ASSIGN_OR_RETURN(auto files, received.Finish());
  SEQPOINT_ASSIGN_OR_RETURN(auto import,
                            queries::ReadTraces(std::move(files), marker, parts.clock.WallNs()));
  size_t elements = 0;
  for (const traces::RecordedTrace& trace : import.traces) {
    elements += trace.trace.calls.size() + trace.trace.works.size() + trace.trace.spans.size();
  }
  SEQPOINT_RETURN_IF_ERROR(
      CheckRoom(parts.store.path(), elements * kStoredBytesPerElement, "traces"));
  *described = std::move(import.described);
  return Add(parts, std::move(row), import.run, import.traces);
}

}  // namespace seqpoint::service
