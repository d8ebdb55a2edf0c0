#include "daemon/rpc/tls_files.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "daemon/base/file_stamp.h"
#include "daemon/base/status_macros.h"
#include "daemon/rpc/text_file.h"
#include "proto/openssl_objects.h"
#include "spdlog/spdlog.h"

namespace seqpoint::rpc {
namespace {

using openssl::Certificate;
using openssl::Memory;
using openssl::NoPassPhrase;
using openssl::Owned;

Certificate ReadCertificate(const std::string& text) {
  return Certificate(PEM_read_bio_X509(Memory(text).get(), nullptr, &NoPassPhrase, nullptr));
}

std::string OpensslError() {
  char text[256] = "";
  ERR_error_string_n(ERR_peek_last_error(), text, sizeof text);
  return text;
}

absl::StatusOr<TlsPem> Read(const TlsPem& paths) {
  TlsPem pem;
  SEQPOINT_ASSIGN_OR_RETURN(pem.certificate, ReadTextFile("TLS certificate", paths.certificate));
  SEQPOINT_ASSIGN_OR_RETURN(pem.key, ReadTextFile("TLS key", paths.key));
  if (paths.authorities.empty()) return pem;
  SEQPOINT_ASSIGN_OR_RETURN(pem.authorities,
                            ReadTextFile("certificate authority", paths.authorities));
  return pem;
}

// As TLS takes it: in PEM, a pair, of a size that this machine's policy allows.
absl::Status Check(const TlsPem& paths, const TlsPem& pem) {
  ERR_clear_error();
  // gRPC asks the same queue of errors.
  const auto clear = absl::MakeCleanup([] { ERR_clear_error(); });
  const auto refused = [](const std::string& path, const char* what) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot use ", path, ": ", what, " (", OpensslError(), ")"));
  };
  const Owned<SSL_CTX, &SSL_CTX_free> tls(SSL_CTX_new(TLS_server_method()));
  const Certificate certificate = ReadCertificate(pem.certificate);
  if (certificate == nullptr || SSL_CTX_use_certificate(tls.get(), certificate.get()) != 1) {
    return refused(paths.certificate, "it holds no certificate in PEM that TLS takes");
  }
  const Owned<EVP_PKEY, &EVP_PKEY_free> key(
      PEM_read_bio_PrivateKey(Memory(pem.key).get(), nullptr, &NoPassPhrase, nullptr));
  if (key == nullptr) {
    return refused(paths.key, "it holds no key in PEM, or one with a pass phrase");
  }
  if (SSL_CTX_use_PrivateKey(tls.get(), key.get()) != 1) {
    return refused(paths.key, absl::StrCat("it is not the key of ", paths.certificate).c_str());
  }
  if (!paths.authorities.empty() && ReadCertificate(pem.authorities) == nullptr) {
    return refused(paths.authorities, "it holds no certificate in PEM");
  }
  return absl::OkStatus();
}

bool HasExpired(const TlsPem& pem) {
  const Certificate certificate = ReadCertificate(pem.certificate);
  return X509_cmp_current_time(X509_get0_notAfter(certificate.get())) < 0;
}

std::string StampOf(const TlsPem& paths) {
  return absl::StrCat(FileStamp(paths.certificate), "; ", FileStamp(paths.key), "; ",
                      FileStamp(paths.authorities));
}

}  // namespace

absl::StatusOr<std::unique_ptr<TlsFiles>> TlsFiles::Open(const TlsPem& paths) {
  std::string stamp = StampOf(paths);
  SEQPOINT_ASSIGN_OR_RETURN(TlsPem pem, Read(paths));
  SEQPOINT_RETURN_IF_ERROR(Check(paths, pem));
  if (HasExpired(pem)) {
    spdlog::warn("the certificate in {} has expired: peers refuse it", paths.certificate);
  }
  return std::unique_ptr<TlsFiles>(new TlsFiles(paths, std::move(pem), std::move(stamp)));
}

bool TlsFiles::Reload() {
  std::string stamp = StampOf(paths_);
  if (stamp == stamp_) return false;
  stamp_ = std::move(stamp);
  auto pem = Read(paths_);
  absl::Status status = pem.status();
  if (status.ok()) status = Check(paths_, *pem);
  if (status.ok() && HasExpired(*pem)) {
    status = absl::InvalidArgumentError(
        absl::StrCat("cannot use ", paths_.certificate, ": it has expired"));
  }
  if (!status.ok()) {
    spdlog::error("{}; the certificate and key from before stay in use",
                  std::string(status.message()));
    return false;
  }
  pem_ = *std::move(pem);
  spdlog::info("{} and its key are read again", paths_.certificate);
  return true;
}

}  // namespace seqpoint::rpc
