#include "proto/tls_probe.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <memory>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/openssl_objects.h"

namespace seqpoint {
namespace {

// A server on another continent needs less than a second for a step of the handshake.
constexpr int kStepMs = 3'000;

using openssl::Bio;
using openssl::Certificate;
using openssl::Memory;
using openssl::NoPassPhrase;
using openssl::Owned;
using Key = Owned<EVP_PKEY, &EVP_PKEY_free>;

struct HostPort {
  std::string host, port;
};

// "[::1]:7443" has the host "::1".
HostPort Split(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return {address, ""};
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string::npos) {
    return {address, ""};  // an IPv6 address without brackets
  }
  return {host, address.substr(colon + 1)};
}

// OpenSSL writes to the socket itself, and a peer that is gone would end the process.
class WithoutSigpipe {
 public:
  WithoutSigpipe() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~WithoutSigpipe() {
    const timespec now = {};
    if (sigismember(&before_, SIGPIPE) == 0) sigtimedwait(&pipe_, nullptr, &now);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  WithoutSigpipe(const WithoutSigpipe&) = delete;
  WithoutSigpipe& operator=(const WithoutSigpipe&) = delete;

 private:
  sigset_t pipe_, before_;
};

// A socket that is connected, or the error number.
struct Connected {
  int fd = -1;
  int error = 0;
};

Connected ConnectTo(const addrinfo& to) {
  Connected result;
  result.fd = socket(to.ai_family, to.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (result.fd < 0) return {-1, errno};
  if (connect(result.fd, to.ai_addr, to.ai_addrlen) != 0) result.error = errno;
  if (result.error == EINPROGRESS) {
    pollfd wait = {.fd = result.fd, .events = POLLOUT, .revents = 0};
    socklen_t size = sizeof result.error;
    if (poll(&wait, 1, kStepMs) != 1) {
      result.error = ETIMEDOUT;
    } else {
      getsockopt(result.fd, SOL_SOCKET, SO_ERROR, &result.error, &size);
    }
  }
  if (result.error != 0) {
    close(result.fd);
    result.fd = -1;
    return result;
  }
  const timeval patience = {.tv_sec = kStepMs / 1000, .tv_usec = 0};
  setsockopt(result.fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  setsockopt(result.fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  fcntl(result.fd, F_SETFL, fcntl(result.fd, F_GETFL) & ~O_NONBLOCK);
  return result;
}

std::string TimeText(const ASN1_TIME* time) {
  tm parts = {};
  char text[32] = "";
  if (ASN1_TIME_to_tm(time, &parts) == 1) strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &parts);
  return text;
}

// "hub.example, 10.0.0.1": the alternative names of a certificate.
std::string NamesOf(X509* certificate) {
  std::vector<std::string> names;
  auto* list = static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr));
  for (int i = 0; i < sk_GENERAL_NAME_num(list); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(list, i);
    if (name->type == GEN_DNS) {
      names.emplace_back(reinterpret_cast<const char*>(ASN1_STRING_get0_data(name->d.dNSName)),
                         static_cast<size_t>(ASN1_STRING_length(name->d.dNSName)));
    } else if (name->type == GEN_IPADD) {
      const int bytes = ASN1_STRING_length(name->d.iPAddress);
      char text[INET6_ADDRSTRLEN] = "";
      inet_ntop(bytes == 4 ? AF_INET : AF_INET6, ASN1_STRING_get0_data(name->d.iPAddress), text,
                sizeof text);
      names.emplace_back(text);
    }
  }
  GENERAL_NAMES_free(list);
  return absl::StrJoin(names, ", ");
}

class Handshake {
 public:
  explicit Handshake(const TlsProbe& probe)
      : probe_(probe), to_(Split(probe.address)), context_(SSL_CTX_new(TLS_client_method())) {
    SSL_CTX_set_min_proto_version(context_.get(), TLS1_3_VERSION);
    SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER, &KeepRefused);
  }

  // Reads the texts. A sentence where one is unusable.
  std::string Prepare() {
    if (probe_.authorities.empty()) {
      SSL_CTX_set_default_verify_paths(context_.get());
    } else {
      const Bio text = Memory(probe_.authorities);
      int count = 0;
      while (const Certificate authority{
          PEM_read_bio_X509(text.get(), nullptr, &NoPassPhrase, nullptr)}) {
        X509_STORE_add_cert(SSL_CTX_get_cert_store(context_.get()), authority.get());
        ++count;
      }
      if (count == 0) return absl::StrCat(probe_.authorities_from, ": no certificate in PEM in it");
    }
    if (probe_.certificate.empty()) return "";
    own_.reset(
        PEM_read_bio_X509(Memory(probe_.certificate).get(), nullptr, &NoPassPhrase, nullptr));
    const Key key(
        PEM_read_bio_PrivateKey(Memory(probe_.key).get(), nullptr, &NoPassPhrase, nullptr));
    if (own_ == nullptr || SSL_CTX_use_certificate(context_.get(), own_.get()) != 1) {
      return absl::StrCat(probe_.certificate_from, ": no certificate in PEM in it");
    }
    if (key == nullptr || SSL_CTX_use_PrivateKey(context_.get(), key.get()) != 1) {
      return absl::StrCat(probe_.certificate_from,
                          ": the key beside it is not its own, has a pass phrase, or is no PEM");
    }
    return "";
  }

  // On a connected socket.
  std::string Try(int fd) {
    const Owned<SSL, &SSL_free> tls(SSL_new(context_.get()));
    SSL_set_app_data(tls.get(), this);
    X509_VERIFY_PARAM* names = SSL_get0_param(tls.get());
    if (X509_VERIFY_PARAM_set1_ip_asc(names, to_.host.c_str()) != 1) {
      SSL_set1_host(tls.get(), to_.host.c_str());
      SSL_set_tlsext_host_name(tls.get(), to_.host.c_str());
    }
    constexpr unsigned char kHttp2[] = {2, 'h', '2'};
    SSL_set_alpn_protos(tls.get(), kHttp2, sizeof kHttp2);
    SSL_set_fd(tls.get(), fd);
    ERR_clear_error();
    errno = 0;
    if (const int code = SSL_connect(tls.get()); code != 1) {
      return OfServer(tls.get(), SSL_get_error(tls.get(), code), errno);
    }
    // With TLS 1.3 the server looks at the client's certificate after the client is done.
    char byte;
    ERR_clear_error();
    errno = 0;
    const int got = SSL_read(tls.get(), &byte, 1);
    if (got == 1) return "";
    const bool silent = errno == EAGAIN || errno == EWOULDBLOCK;
    return silent ? "" : OfClient();
  }

 private:
  // OpenSSL forgets the certificate that it refuses.
  static int KeepRefused(int accepted, X509_STORE_CTX* store) {
    if (accepted == 1) return 1;
    auto* tls =
        static_cast<SSL*>(X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx()));
    auto* handshake = static_cast<Handshake*>(SSL_get_app_data(tls));
    X509* const refused = X509_STORE_CTX_get_current_cert(store);
    if (refused != nullptr && X509_up_ref(refused) == 1) handshake->refused_.reset(refused);
    return 0;
  }

  std::string OfServer(SSL* tls, int kind, int error) const {
    const std::string whose = absl::StrCat("the certificate of ", probe_.address);
    switch (SSL_get_verify_result(tls)) {
      case X509_V_OK:
        break;
      case X509_V_ERR_CERT_HAS_EXPIRED:
        return absl::StrCat(whose, " expired", When(refused_.get(), &X509_get0_notAfter),
                            "; renew it there, or set this machine's clock");
      case X509_V_ERR_CERT_NOT_YET_VALID:
        return absl::StrCat(whose, " is not valid yet", When(refused_.get(), &X509_get0_notBefore),
                            "; set this machine's clock, or the one where it was made");
      case X509_V_ERR_HOSTNAME_MISMATCH:
      case X509_V_ERR_IP_ADDRESS_MISMATCH:
        return absl::StrCat(whose, " does not have the name ", to_.host, NamesText(refused_.get()),
                            "; use a name that it has, or have one made with this name");
      case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
      case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
      case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
      case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
      case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
      case X509_V_ERR_CERT_SIGNATURE_FAILURE:
        return absl::StrCat(
            whose, " is not of the authority in ",
            probe_.authorities.empty()
                ? absl::StrCat("this system; name its file with ", probe_.authorities_from)
                : absl::StrCat(probe_.authorities_from,
                               "; give the file of the authority that signed it"));
      default:
        return absl::StrCat(
            whose, " is refused: ", X509_verify_cert_error_string(SSL_get_verify_result(tls)));
    }
    const unsigned long code = ERR_peek_error();
    const int reason = ERR_GET_REASON(code);
    if (reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_HTTP_REQUEST ||
        reason == SSL_R_PACKET_LENGTH_TOO_LONG) {
      return absl::StrCat(probe_.address, " answers without TLS; look at the port: ",
                          "--metrics-listen, for one, is without it");
    }
    if (reason == SSL_R_UNSUPPORTED_PROTOCOL || reason == SSL_R_TLSV1_ALERT_PROTOCOL_VERSION) {
      return absl::StrCat(probe_.address, " speaks no TLS 1.3; it is no seqpointd, or one behind ",
                          "a proxy that ends TLS");
    }
    if (kind == SSL_ERROR_SYSCALL && (error == EAGAIN || error == EWOULDBLOCK)) {
      return absl::StrCat(probe_.address, " takes the connection and says nothing; it is no ",
                          "seqpointd, or it is stopped or has no place for more connections");
    }
    if (kind == SSL_ERROR_SYSCALL || reason == SSL_R_UNEXPECTED_EOF_WHILE_READING) {
      return absl::StrCat(probe_.address, " ends the connection before it shows a certificate; ",
                          "it is no seqpointd with --listen, or it has no place for more ",
                          "connections");
    }
    const char* text = ERR_reason_error_string(code);
    return absl::StrCat("TLS with ", probe_.address,
                        " fails: ", text != nullptr ? text : "OpenSSL does not say why");
  }

  // The server ended the connection when it had looked at the client's certificate. gRPC's servers
  // do not say why.
  std::string OfClient() const {
    if (own_ == nullptr) {
      return absl::StrCat(probe_.address, " wants a client's certificate: give one with ",
                          probe_.certificate_from);
    }
    if (X509_cmp_current_time(X509_get0_notAfter(own_.get())) < 0) {
      return absl::StrCat(probe_.certificate_from, ": this certificate expired",
                          When(own_.get(), &X509_get0_notAfter), "; have it renewed");
    }
    return absl::StrCat(probe_.address, " does not take ", probe_.certificate_from,
                        "; one of: it is of another authority than the server's "
                        "(--tls-client-ca there), it is not for clients, or the server's clock "
                        "says that it expired");
  }

  static std::string When(X509* certificate, const ASN1_TIME* (*get)(const X509*)) {
    return certificate == nullptr ? "" : absl::StrCat(" (", TimeText(get(certificate)), ")");
  }
  static std::string NamesText(X509* certificate) {
    const std::string names = certificate == nullptr ? "" : NamesOf(certificate);
    return names.empty() ? " (it has no alternative name)" : absl::StrCat(" (it has ", names, ")");
  }

  const TlsProbe& probe_;
  const HostPort to_;
  const Owned<SSL_CTX, &SSL_CTX_free> context_;
  Certificate own_;
  Certificate refused_;  // of the server, or an authority above it
};

}  // namespace

std::string WhyNoAddress(const std::string& address) {
  const HostPort to = Split(address);
  int port = 0;
  if (!to.host.empty() && absl::SimpleAtoi(to.port, &port) && port > 0 && port < 65536) return "";
  return absl::StrCat("\"", address, "\" is not HOST:PORT, with the port of --listen there, as in ",
                      "hub.example:7443");
}

std::string WhyNoTls(const TlsProbe& probe) {
  if (std::string wrong = WhyNoAddress(probe.address); !wrong.empty()) return wrong;
  const WithoutSigpipe without_sigpipe;
  // gRPC asks the same queue of errors.
  struct ClearErrors {
    ~ClearErrors() { ERR_clear_error(); }
  } clear_errors;
  Handshake handshake(probe);
  if (std::string wrong = handshake.Prepare(); !wrong.empty()) return wrong;
  const HostPort to = Split(probe.address);
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(to.host.c_str(), to.port.c_str(), &hints, &found); error != 0) {
    return absl::StrCat("no address of ", to.host, " is known (", gai_strerror(error),
                        "); look at the name");
  }
  const Owned<addrinfo, &freeaddrinfo> addresses(found);
  std::string why;
  for (const addrinfo* address = found; address != nullptr; address = address->ai_next) {
    const Connected socket = ConnectTo(*address);
    if (socket.fd >= 0) {
      std::string failed = handshake.Try(socket.fd);
      close(socket.fd);
      return failed;
    }
    why = socket.error == ECONNREFUSED
              ? absl::StrCat("nothing listens on ", probe.address,
                             "; look at the port, and whether seqpointd runs there with --listen")
              : absl::StrCat(probe.address, " cannot be reached: ", strerror(socket.error),
                             "; look at the name, the port and the firewalls in between");
  }
  return why;
}

}  // namespace seqpoint
