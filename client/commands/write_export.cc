#include "client/commands/write_export.h"

#include <stdio.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "client/files/whole_file.h"
#include "proto/invalid_argument.h"
#include "proto/status_macros.h"

namespace seqpoint::client {

absl::StatusOr<int64_t> WriteExport(const Context& context, const std::string& job,
                                    v1::ExportRequest::Format format, const std::string& path) {
  if (std::error_code error; std::filesystem::is_directory(path, error)) {
    return InvalidArgument("cannot write ", path, ": it is a folder; name a file in it");
  }
  SEQPOINT_ASSIGN_OR_RETURN(std::unique_ptr<Connection> connection, context.Connect());
  v1::ExportRequest request;
  request.set_job(job);
  request.set_format(format);
  SEQPOINT_ASSIGN_OR_RETURN(WholeFile file, WholeFile::Open(path));
  grpc::ClientContext call;
  auto reader = connection->stub().Export(&call, request);
  v1::ExportReply reply;
  int64_t bytes = 0;
  while (reader->Read(&reply)) {
    bytes += static_cast<int64_t>(reply.data().size());
    if (absl::Status status = file.Write(reply.data()); !status.ok()) {
      call.TryCancel();
      return status;
    }
  }
  SEQPOINT_RETURN_IF_ERROR(Connection::FromGrpc(reader->Finish()));
  SEQPOINT_RETURN_IF_ERROR(file.Close());
  return bytes;
}

void SayWritten(const std::string& path, int64_t bytes) {
  fprintf(stderr, "%s: %s\n", path.c_str(), FormatQuantity(double(bytes), "B").c_str());
}

}  // namespace seqpoint::client
