#include "daemon/rpc/hub_channel.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "daemon/base/status_macros.h"
#include "proto/tls_probe.h"

namespace seqpoint::rpc {
namespace {

// A hub that does not answer a ping of HTTP/2 is gone.
constexpr int kPingMs = 10'000, kPongMs = 5'000;
// The pauses of those who connect are their own; those of gRPC would come on top of them.
constexpr int kGrpcPauseMs = 1'000;
// The most that a hub answers: ServerOptions::max_reply_bytes.
constexpr int kMostReplyBytes = 64 << 20;

std::shared_ptr<grpc::Channel> NewChannel(const std::string& address, const TlsFiles* files) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kPingMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kPongMs);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);  // as many as it takes
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kGrpcPauseMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kGrpcPauseMs);
  arguments.SetMaxReceiveMessageSize(kMostReplyBytes);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a channel is a connection
  if (files == nullptr) {
    return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  }
  const auto credentials = grpc::SslCredentials({.pem_root_certs = files->pem().authorities,
                                                 .pem_private_key = files->pem().key,
                                                 .pem_cert_chain = files->pem().certificate});
  return grpc::CreateCustomChannel(address, credentials, arguments);
}

}  // namespace

absl::StatusOr<std::unique_ptr<HubChannel>> HubChannel::Open(const std::string& address,
                                                             const TlsPem& files) {
  std::unique_ptr<TlsFiles> opened;
  if (!absl::StartsWith(address, "unix:")) {
    if (files.certificate.empty() || files.key.empty() || files.authorities.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("hub ", address,
                       " needs --tls-certificate, --tls-key and --hub-ca: what nodes and hubs say "
                       "crosses a network only under TLS"));
    }
    SEQPOINT_ASSIGN_OR_RETURN(opened, TlsFiles::Open(files));
  }
  return std::unique_ptr<HubChannel>(new HubChannel(address, std::move(opened)));
}

HubChannel::HubChannel(std::string address, std::unique_ptr<TlsFiles> files)
    : address_(std::move(address)),
      files_(std::move(files)),
      channel_(NewChannel(address_, files_.get())) {}

std::string HubChannel::WhyNotConnected() const {
  if (files_ != nullptr) {
    return WhyNoTls({.address = address_,
                     .authorities = files_->pem().authorities,
                     .certificate = files_->pem().certificate,
                     .key = files_->pem().key,
                     .authorities_from = "--hub-ca",
                     .certificate_from = "--tls-certificate"});
  }
  const std::string path(absl::StripPrefix(address_, "unix:"));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path)
    return absl::StrCat(path, " is too long for a socket");
  path.copy(address.sun_path, path.size());
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const bool answers =
      connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ||
      errno == EAGAIN;
  const int error = errno;
  close(fd);
  if (answers) return "";
  return absl::StrCat("nobody answers on ", path, " (", strerror(error),
                      "); start the hub, or look at the path");
}

std::shared_ptr<grpc::Channel> HubChannel::Get() {
  if (files_ != nullptr && files_->Reload()) channel_ = NewChannel(address_, files_.get());
  return channel_;
}

}  // namespace seqpoint::rpc
