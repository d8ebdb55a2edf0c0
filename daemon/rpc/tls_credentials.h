// TlsCredentials: what a gRPC server needs to serve TLS with certificates that change, and to ask
// Access about each call.
//
// grpc::SslServerCredentials takes its certificates once, and the experimental
// FileWatcherCertificateProvider of gRPC 1.51 gives up the working pair for one that does not fit.
// gRPC's C interface has both: a function that is asked for new certificates before each handshake,
// and keeps the old ones where that has none.
//
// Threading: as gRPC calls it; the Listener's thread alone makes handshakes. Ownership: owns the
// files and the rules. It outlives the server.
#ifndef DAEMON_RPC_TLS_CREDENTIALS_H_
#define DAEMON_RPC_TLS_CREDENTIALS_H_

#include <grpc/grpc_security.h>
#include <grpcpp/security/server_credentials.h>

#include <memory>
#include <string>

#include "daemon/rpc/access.h"
#include "daemon/rpc/tls_files.h"

namespace seqpoint::rpc {

class TlsCredentials final : public grpc::ServerCredentials {
 public:
  enum class Certificates { kNotAskedFor, kVerifiedIfShown, kRequired };  // of clients

  TlsCredentials(Certificates certificates, std::unique_ptr<TlsFiles> files,
                 std::unique_ptr<Access> access);

  // Access does it.
  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {}

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override;

  // gRPC's C interface: before a handshake, and at the start of each call.
  static grpc_ssl_certificate_config_reload_status Fetch(
      void* self, grpc_ssl_server_certificate_config** config);
  static void Process(void* self, grpc_auth_context* context, const grpc_metadata* metadata,
                      size_t count, grpc_process_auth_metadata_done_cb done, void* done_data);

  const Certificates certificates_;
  const std::unique_ptr<TlsFiles> files_;
  const std::unique_ptr<Access> access_;
  bool fetched_ = false;
};

}  // namespace seqpoint::rpc

#endif  // DAEMON_RPC_TLS_CREDENTIALS_H_
