#include "client/commands/trace_import.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "absl/strings/str_cat.h"
#include "client/text/format.h"
#include "client/text/job_text.h"
#include "client/text/notes.h"
#include "client/text/progress.h"
#include "proto/file_content.h"
#include "proto/invalid_argument.h"
#include "proto/status_macros.h"

namespace seqpoint::client {
namespace {

constexpr size_t kPieceBytes = 256 << 10;
constexpr uintmax_t kLargeBytes = 64 << 20;  // in all: progress is shown

absl::Status CannotRead(const std::string& path) {
  return InvalidArgument("cannot read ", path, ": ", strerror(errno));
}

// A line on standard error, how far it is; it goes away in the end.
class SentLine {
 public:
  explicit SentLine(uintmax_t all_bytes)
      : all_bytes_(all_bytes),
        shown_(all_bytes >= kLargeBytes && TerminalWidth(STDERR_FILENO) > 0) {}
  ~SentLine() {
    if (shown_) fputs("\r\033[K", stderr);
  }
  void Add(size_t bytes) {
    sent_bytes_ += bytes;
    const uintmax_t percent = 100 * sent_bytes_ / all_bytes_;
    if (!shown_ || percent == percent_) return;
    percent_ = percent;
    fprintf(stderr, "\r\033[K%s of %s",
            FormatQuantity(static_cast<double>(sent_bytes_), "B").c_str(),
            FormatQuantity(static_cast<double>(all_bytes_), "B").c_str());
  }

 private:
  const uintmax_t all_bytes_;
  const bool shown_;
  uintmax_t sent_bytes_ = 0, percent_ = 0;
};

}  // namespace

absl::StatusOr<bool> IsTrace(const std::string& path) {
  std::error_code error;
  if (std::filesystem::exists(path, error) && !std::filesystem::is_regular_file(path, error)) {
    return false;
  }
  const std::unique_ptr<gzFile_s, decltype(&gzclose)> file(gzopen(path.c_str(), "rb"), &gzclose);
  if (file == nullptr) return CannotRead(path);
  char head[kHeadBytes];
  const int bytes = gzread(file.get(), head, sizeof(head));
  const std::string_view seen(head, static_cast<size_t>(std::max(bytes, 0)));
  return ContentOf(seen) != ContentKind::kText;
}

absl::StatusOr<v1::ImportTraceReply> ImportTraces(Connection* connection,
                                                  const ImportOptions& options) {
  uintmax_t all_bytes = 0;
  for (const std::string& path : options.files) {
    std::error_code error;
    if (const uintmax_t bytes = std::filesystem::file_size(path, error); !error) all_bytes += bytes;
  }
  SentLine line(all_bytes);
  grpc::ClientContext context;
  v1::ImportTraceReply reply;
  const auto writer = connection->stub().ImportTrace(&context, &reply);
  v1::ImportTraceRequest piece;
  piece.set_name(options.name);
  piece.set_run_id(options.run_id);
  piece.set_marker(options.marker);
  std::string data(kPieceBytes, '\0');
  bool wanted = true;  // false: the daemon has answered; Finish() says what
  for (const std::string& path : options.files) {
    const std::unique_ptr<FILE, decltype(&fclose)> file(fopen(path.c_str(), "rb"), &fclose);
    piece.set_file(Printable(path));
    size_t bytes = 0;
    do {
      bytes = file == nullptr ? 0 : fread(data.data(), 1, data.size(), file.get());
      if (file == nullptr || ferror(file.get()) != 0) {
        const absl::Status status = CannotRead(path);
        context.TryCancel();  // what was sent is no whole trace
        return status;
      }
      piece.set_data(data.data(), bytes);
      wanted = writer->Write(piece);
      piece.Clear();
      line.Add(bytes);
    } while (wanted && bytes > 0);
    if (!wanted) break;
  }
  writer->WritesDone();
  SEQPOINT_RETURN_IF_ERROR(Connection::FromGrpc(writer->Finish()));
  return reply;
}

std::string TraceImportText(const v1::ImportTraceReply& reply, int width) {
  Table table({">RANK", ">ITERATIONS", "BEGIN AT", "LENGTH", ">CALLS", ">GPU WORK", "FILE"});
  std::string left_out;
  for (const v1::ImportedTrace& trace : reply.traces()) {
    table.AddRow({absl::StrCat(trace.rank()), FormatCount(trace.iterations()), trace.boundary(),
                  trace.length(), FormatCount(trace.calls()), FormatCount(trace.gpu_tasks()),
                  trace.file()});
    if (trace.message().empty()) continue;
    left_out += Wrap("note: ", absl::StrCat(trace.file(), ": ", trace.message()));
  }
  const std::string& id = reply.job().id();
  // A table of GPU work alone says nothing of what it waited for.
  const bool calls = std::any_of(reply.traces().begin(), reply.traces().end(),
                                 [](const v1::ImportedTrace& trace) { return trace.calls() > 0; });
  return absl::StrCat(
      JobText(reply.job()), "\n", table.ToString(width), left_out, "\nask next: ",
      calls ? absl::StrCat("seqpoint replay ", id, ", seqpoint whatif ", id, " --list,\n          ")
            : "",
      "seqpoint kernels ", id, ", seqpoint export ", id, " --chrome trace.json\n");
}

}  // namespace seqpoint::client
