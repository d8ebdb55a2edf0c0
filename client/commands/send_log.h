// A log of iterations, sent to the daemon in pieces: as a whole it would be too large a message.
// Threading: pure but for the stream. Ownership: keeps nothing.
#ifndef CLIENT_COMMANDS_SEND_LOG_H_
#define CLIENT_COMMANDS_SEND_LOG_H_

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "absl/status/statusor.h"
#include "client/commands/context.h"
#include "client/files/log_file.h"

namespace seqpoint::client {

inline constexpr size_t kRowsPerPiece = 32 << 10;
inline constexpr std::chrono::minutes kLogTimeout{10};  // for the whole answer

// Rows [begin, begin + kRowsPerPiece) as a message; durations in ns where the unit is known.
void FillLog(const LogFile& log, size_t begin, v1::IterationLog* piece);

// `first`, which asks the question, goes with the first rows; `against`, where a request has a
// second log, too. Errors: as the daemon gives them.
template <typename Request, typename Reply>
absl::StatusOr<Reply> SendLog(const Context& context,
                              std::unique_ptr<grpc::ClientWriter<Request>> (
                                  v1::Profiler::Stub::*call)(grpc::ClientContext*, Reply*),
                              Request first, const LogFile& log, const LogFile* against = nullptr) {
  SEQPOINT_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, context.Connect());
  grpc::ClientContext of_call;
  of_call.set_deadline(std::chrono::system_clock::now() + kLogTimeout);
  Reply reply;
  const auto writer = (connection->stub().*call)(&of_call, &reply);
  const size_t rows = std::max(log.lengths.size(), against ? against->lengths.size() : 0);
  for (size_t at = 0; at < rows; at += kRowsPerPiece) {
    if (at < log.lengths.size()) FillLog(log, at, first.mutable_log());
    if constexpr (requires { first.mutable_against(); }) {
      if (against && at < against->lengths.size()) FillLog(*against, at, first.mutable_against());
    }
    if (!writer->Write(first)) break;  // Finish() says why
    first.Clear();
  }
  writer->WritesDone();
  SEQPOINT_RETURN_IF_ERROR(Connection::FromGrpc(writer->Finish()));
  return reply;
}

}  // namespace seqpoint::client

#endif  // CLIENT_COMMANDS_SEND_LOG_H_
