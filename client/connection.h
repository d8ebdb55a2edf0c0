// Finding a daemon, starting a private one when none answers, and calling it.
// Threading: a Connection may be used from several threads. Ownership: owns its channel.
#ifndef CLIENT_CONNECTION_H_
#define CLIENT_CONNECTION_H_

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/exit_code.h"
#include "seqpoint/v1/profiler.grpc.pb.h"

namespace seqpoint::client {

int ExitCodeFor(const absl::Status& status);

struct ConnectOptions {
  std::string socket_path;       // empty: search
  bool start_private = true;     // when no daemon answers
  std::string server;            // host:port, with TLS; empty: the socket
  std::string ca_file;           // PEM; empty: the system's
  std::string certificate_file;  // PEM, with key_file: mutual TLS
  std::string key_file;
  std::string token_file;  // who the client is, with or without a certificate
  // Without a socket_path, what is empty above is read from SEQPOINT_SERVER, and with a server from
  // SEQPOINT_CA, SEQPOINT_CERT, SEQPOINT_KEY and SEQPOINT_TOKEN_FILE.
  bool use_environment = true;
};

class Connection {
 public:
  // Errors: Unavailable (exit code 3) with what was tried; InvalidArgument: options that do not go
  // together, or a file that is none.
  static absl::StatusOr<std::unique_ptr<Connection>> Open(const ConnectOptions& given);

  v1::Profiler::Stub& stub() { return *stub_; }
  // Folder of the daemon's sockets, for SEQPOINT_DIR; empty with --server.
  const std::string& directory() const { return directory_; }

  template <typename Request, typename Reply>
  absl::StatusOr<Reply> Call(grpc::Status (v1::Profiler::Stub::*call)(grpc::ClientContext*,
                                                                      const Request&, Reply*),
                             const Request& request) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kCallTimeout);
    Reply reply;
    grpc::Status status = (stub_.get()->*call)(&context, request, &reply);
    if (!status.ok()) return FromGrpc(status);
    return reply;
  }

  // Waits until the daemon can be reached, also after its restart. False: it cannot be within
  // `timeout`.
  bool WaitUntilConnected(absl::Duration timeout) {
    return channel_->WaitForConnected(absl::ToChronoTime(absl::Now() + timeout));
  }

  absl::StatusOr<v1::Job> GetJob(const std::string& job);
  // All pages of a list.
  absl::StatusOr<v1::ListJobsReply> ListJobs(v1::ListJobsRequest request);

  static absl::Status FromGrpc(const grpc::Status& status);

 private:
  static constexpr std::chrono::seconds kCallTimeout{60};

  Connection(std::shared_ptr<grpc::Channel> channel, std::string directory)
      : channel_(std::move(channel)),
        stub_(v1::Profiler::NewStub(channel_)),
        directory_(std::move(directory)) {}

  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Profiler::Stub> stub_;
  std::string directory_;
};

// Folders in which a daemon's sockets may be, in the order of search: $SEQPOINT_DIR alone when it
// is set; else $XDG_RUNTIME_DIR/seqpoint, /run/seqpoint and /tmp/seqpoint-UID.
std::vector<std::string> SocketDirectories();

// True when somebody accepts connections at `path`. `denied`, where there may be one who does not
// let this user in, is whose it is, in a sentence; else empty.
bool Answers(const std::string& path, std::string* denied = nullptr);

// The paths in SEQPOINT_LIBRARY and SEQPOINT_DAEMON, else those installed or built with this
// program: in its folder, in ../lib, ../libexec (and seqpointd in PATH). Errors: Unavailable, with
// the way out.
absl::StatusOr<std::string> FindLibrary();
absl::StatusOr<std::string> FindDaemonProgram();

// The folder of the PyTorch adapter; empty where it is not installed, or SEQPOINT_ADAPTER=0.
std::string FindAdapter();

// Starts `seqpointd --private` and waits until it answers. Returns its folder.
absl::StatusOr<std::string> StartPrivateDaemon();

}  // namespace seqpoint::client

#endif  // CLIENT_CONNECTION_H_
